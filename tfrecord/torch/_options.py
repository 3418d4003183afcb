"""Options of the datasets, checked when a dataset is made."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tfrecord.iterator_utils import check_queue_size
from tfrecord.reader import TFRecordReader
from tfrecord.torch._producer import Finish
from tfrecord.torch._source import Source, missing_rule

__all__ = [
    "EpochOptions",
    "as_integer",
    "check_shuffle",
    "check_split",
    "count_units",
    "make_finish",
    "open_source",
    "one_of",
]

_RAGGED = ("ragged", "pad", "nested")


@dataclass(frozen=True)
class EpochOptions:
    """How a dataset orders, deals and batches an epoch, as the caller gave it: see `TFRecordDataset`."""

    seed: int | None
    rank: int | None
    world_size: int | None
    split: str
    batch_size: int | None
    drop_last: bool
    reshuffle_each_epoch: bool


def one_of(features: Any, description: Any, prefix: str = "") -> Any:
    """`features` and `description` are one thing under two names; TypeError where both are given."""
    if features is not None and description is not None:
        raise TypeError(
            f"give {prefix}features or {prefix}description, not both: they are two names for one thing"
        )
    return description if features is None else features


def check_shuffle(shuffle: Any, queue_size: int | None) -> tuple[bool | str, int | None]:
    """The two options that shuffle; a queue size of 0 is none."""
    if shuffle is None:
        shuffle = False
    if not isinstance(shuffle, bool) and shuffle != "block":
        raise ValueError(f"shuffle is False, True or 'block', got {shuffle!r}")
    return shuffle, check_queue_size(queue_size) if queue_size else None


def as_integer(value: Any, what: str, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int; TypeError where it is none, ValueError outside of `least` .. `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is an integer, got {value!r}") from None
    below = least is not None and (number < least or isinstance(value, bool))
    if below or (most is not None and number > most):
        upper = "" if most is None else f" and at most {most}"
        raise ValueError(f"{what} is an integer of at least {least}{upper}, got {value!r}")
    return number


def make_finish(transform: Callable[[Any], Any] | None, drop_none: bool, ragged: str, split: str) -> Finish:
    """What is done with decoded records or batches."""
    if transform is not None and not callable(transform):
        raise TypeError(f"transform is a function, got {type(transform).__name__}")
    if ragged not in _RAGGED:
        raise ValueError(f"ragged is one of {', '.join(map(repr, _RAGGED))}, got {ragged!r}")
    return Finish(transform, bool(drop_none), ragged, split == "pad")


def open_source(
    data_path: Any,
    index_path: Any,
    features: Any,
    sequence_features: Any,
    compression_type: str | None,
    **options: Any,
) -> tuple[TFRecordReader, Source]:
    """The records of a path, list, glob, folder or reader: the reader, and its records for a dataset."""
    if isinstance(data_path, TFRecordReader):
        given = {
            "index_path": index_path,
            "description": features,
            "sequence_description": sequence_features,
            "compression_type": compression_type,
            **options,
        }
        usual = {"on_error": "raise"}
        named = [name for name, value in given.items() if value != usual.get(name)]
        if named:
            raise ValueError(f"a TFRecordReader has its own {', '.join(named)}: give them to the reader")
        return data_path, Source(data_path._view)
    if features and sequence_features is None:
        # As the loaders have it: a description alone asks for plain Examples.
        options.setdefault("record_type", "example")
    reader = TFRecordReader(
        data_path,
        index="auto" if index_path is None else index_path,
        features=features,
        sequence_features=sequence_features,
        compression_type=compression_type,
        **options,
    )
    return reader, Source(reader._view, missing_rule(features))


def check_split(split: str, sources: Sequence[Source], drop_none: bool) -> None:
    """Equal shares need exact counts: ValueError where they cannot be had."""
    if split == "exact":
        return
    if drop_none or any(source.skips for source in sources):
        raise ValueError(
            f"split={split!r} promises equal shares, but drop_none and on_error may leave records out"
        )
    for source in sources:
        if not source.positioned:
            raise ValueError(
                f"split={split!r} needs the number of records, and {source.paths[0]} is compressed "
                "and has no index: build an index (python -m indexer build PATH)"
            )


def count_units(num_records: int, batch_size: int | None, drop_last: bool) -> int:
    """Items of one epoch: records, or batches."""
    if batch_size is None:
        return num_records
    return num_records // batch_size if drop_last else -(-num_records // batch_size)
