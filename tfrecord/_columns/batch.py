"""Columns and batches of them, and how batches join."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.column_batch import ColumnBatch
from tfrecord._columns.ragged import Ragged, TensorRagged, concat_columns
from tfrecord._columns.sequence_batch import SequenceBatch

__all__ = ["BytesColumn", "ColumnBatch", "Ragged", "SequenceBatch", "TensorRagged", "concat"]

_Joined = TypeVar("_Joined")


def concat(batches: Iterable[_Joined]) -> _Joined:
    """Join the rows of batches (or columns) of the same type.

    Columns may be in any order; the order of the first batch is kept. Byte strings are not copied. A column
    whose type is unknown, because no record of a batch has a value, joins with any other. Raises ValueError
    if there is nothing to join, or if names, types or shapes differ; it names the column.
    """
    if isinstance(batches, (ColumnBatch, SequenceBatch, Ragged, TensorRagged, BytesColumn)):
        raise TypeError(f"concat takes a list of batches or columns, not one {type(batches).__name__}")
    parts: list[Any] = list(batches)
    if not parts:
        raise ValueError("nothing to join: give at least one batch")
    for part in parts:
        if type(part) is not type(parts[0]):
            raise ValueError(f"a {type(parts[0]).__name__} and a {type(part).__name__} cannot be joined")
    if isinstance(parts[0], SequenceBatch):
        joined: Any = SequenceBatch(
            ColumnBatch._concat([part.context for part in parts]),
            ColumnBatch._concat([part.feature_lists for part in parts]),
        )
    elif isinstance(parts[0], ColumnBatch):
        joined = ColumnBatch._concat(parts)
    else:
        joined = concat_columns(parts)
    return joined  # type: ignore[no-any-return]
