"""Collate functions for records whose features differ in length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from indexer.options import suggests_options
from tfrecord._columns.batch import Ragged

__all__ = ["pad_collate"]


@suggests_options
def pad_collate(value: Any = 0, max_length: int | None = None) -> Any:
    """A `collate_fn` that pads: `DataLoader(dataset, batch_size=32, collate_fn=pad_collate(0, 128))`.

    Args:
        value: pads short rows.
        max_length: the width of all rows; longer ones are truncated. None: the longest row of the batch.

    In dicts of numbers, a key `x` whose arrays have a length becomes a tensor (n, width, ...), with a bool
    tensor `x_mask` (n, width) that is True where the record has a value. Steps of a sequence feature are
    padded too (three dimensions). Scalars are stacked; byte strings and other objects stay lists. Pairs
    (SequenceExamples) are collated one half at a time. The function itself is also a collate function
    (`collate_fn=pad_collate`).

    Raises:
        ValueError: a key `x_mask` already exists.
    """
    if isinstance(value, list):  # called by a loader, with a batch
        return _PadCollate(0, None)(value)
    return _PadCollate(value, max_length)


class _PadCollate:
    def __init__(self, value: Any, max_length: int | None) -> None:
        if max_length is not None and max_length < 0:
            raise ValueError(f"max_length must be an integer >= 0 or None, got {max_length!r}")
        self.value, self.max_length = value, max_length

    def __call__(self, records: Sequence[Any]) -> Any:
        first = records[0]
        if isinstance(first, tuple):
            return tuple(self(half) for half in zip(*records, strict=True))
        if not isinstance(first, dict):
            return list(records) if isinstance(first, bytes) else default_collate(list(records))
        out: dict[str, Any] = {}
        for name in dict.fromkeys(name for record in records for name in record):
            missing = [i for i, record in enumerate(records) if name not in record]
            if missing:
                raise KeyError(f"record {missing[0]} of the batch has no {name!r}, but others do")
            column = [record[name] for record in records]
            padded = self._padded(column)
            if padded is None:
                out[name] = _stacked(column)
                continue
            if f"{name}_mask" in first:
                raise ValueError(
                    f"the mask of {name!r} needs the name '{name}_mask', which is already a feature"
                )
            out[name], out[f"{name}_mask"] = padded
        return out

    def _padded(self, column: list[Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """A padded column and its mask, or None if there is nothing to pad."""
        if all(isinstance(value, list) for value in column):  # steps of a sequence feature
            steps = [[_array(step) for step in row] for row in column]
            if any(step is None for row in steps for step in row):
                return None
            flat = [step for row in steps for step in row]
            dtype = flat[0].dtype if flat else np.dtype(np.float32)
            inner = Ragged(_joined(flat, dtype), _splits(flat))
            ragged = Ragged(inner, _splits(steps))
        else:
            rows = [_array(value) for value in column]
            if any(row is None or row.ndim == 0 for row in rows):
                return None
            ragged = Ragged(_joined(rows, rows[0].dtype), _splits(rows))
        values = ragged.to_padded(self.value, self.max_length)
        return torch.from_numpy(values), torch.from_numpy(ragged.mask(self.max_length))


def _array(value: Any) -> Any:
    """A value as an array of numbers, or None if it is not one."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value
    return None


def _joined(rows: list[Any], dtype: Any) -> Any:
    return np.concatenate(rows) if rows else np.zeros(0, dtype)


def _splits(rows: Sequence[Any]) -> Any:
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)


def _stacked(column: list[Any]) -> Any:
    if all(
        isinstance(value, (int, float, np.number, np.bool_, bool, torch.Tensor)) for value in column
    ) or all(isinstance(value, np.ndarray) and value.dtype.kind in "biuf" for value in column):
        return default_collate(column)
    return list(column)
