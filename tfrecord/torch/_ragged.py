"""Decoded batches as tensors, and the form of their ragged columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from indexer.options import near_matches
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch, TensorRagged
from tfrecord.torch._workers.packing import TensorDict

__all__ = ["RaggedOptions", "tensors_of"]

_KINDS = ("ragged", "pad", "nested")


@dataclass(frozen=True)
class RaggedOptions:
    """How a batch holds ragged columns; `pad_value` and `max_length` may be dicts by feature.

    Raises ValueError or TypeError for invalid options.
    """

    kind: str = "ragged"
    pad_value: Any = None
    max_length: Any = None
    pad_to_multiple_of: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            kinds, near = ", ".join(map(repr, _KINDS)), near_matches(self.kind, _KINDS)
            raise ValueError(f"ragged must be one of {kinds}, got {self.kind!r}{near}")
        given = {
            "pad_value": self.pad_value,
            "max_length": self.max_length,
            "pad_to_multiple_of": self.pad_to_multiple_of,
        }
        for name, value in given.items():
            if value is not None and self.kind != "pad":
                raise ValueError(f"{name} needs ragged='pad', not ragged={self.kind!r}")
        lengths = self.max_length.values() if isinstance(self.max_length, Mapping) else [self.max_length]
        for length in lengths:
            _check_width("max_length", length, 0)
        _check_width("pad_to_multiple_of", self.pad_to_multiple_of, 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The features that some option names."""
        named = [option for option in (self.pad_value, self.max_length) if isinstance(option, Mapping)]
        return tuple({name: None for option in named for name in option})

    def value_of(self, name: str) -> Any:
        """The value that pads short rows of a feature."""
        value = self.pad_value.get(name) if isinstance(self.pad_value, Mapping) else self.pad_value
        return 0 if value is None else value

    def length_of(self, name: str) -> int | None:
        """How many values of each row are kept; None: all."""
        found = self.max_length.get(name) if isinstance(self.max_length, Mapping) else self.max_length
        return None if found is None else int(found)


def _check_width(what: str, value: Any, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{what} must be an integer of at least {least}, got {value!r}")


def tensors_of(batch: Any, options: RaggedOptions) -> Any:
    """A decoded batch as a dict of tensors, a pair of such dicts, or a list of bytes."""
    if isinstance(batch, SequenceBatch):
        return tensors_of(batch.context, options), tensors_of(batch.feature_lists, options)
    if isinstance(batch, BytesColumn):
        return batch.to_list()
    if isinstance(batch, dict):  # nested features
        return TensorDict(batch.mapped(lambda level: tensors_of(level, options)))  # type: ignore[attr-defined]
    assert isinstance(batch, ColumnBatch)
    if options.kind != "pad":
        return TensorDict(batch.to_torch(ragged=options.kind))
    tensors = TensorDict()
    for name, column in batch.to_torch().items():
        if not isinstance(column, TensorRagged):
            tensors[name] = column
            continue
        if f"{name}_mask" in batch:
            raise ValueError(f"the mask of {name!r} needs the name '{name}_mask', which is already a feature")
        tensors[name], tensors[f"{name}_mask"] = _padded(name, column, options)
    return tensors


def _padded(name: str, column: TensorRagged, options: RaggedOptions) -> tuple[Any, Any]:
    """The rows of a column as one tensor, and where it holds values."""
    length, fill = options.length_of(name), options.value_of(name)
    values, mask = column.to_padded(fill, length), column.mask(length)
    multiple = options.pad_to_multiple_of
    missing = -values.shape[1] % multiple if multiple else 0
    if missing:
        shape = (values.shape[0], missing)
        values = torch.cat([values, values.new_full((*shape, *values.shape[2:]), fill)], dim=1)
        mask = torch.cat([mask, mask.new_zeros((*shape, *mask.shape[2:]))], dim=1)
    return values, mask
