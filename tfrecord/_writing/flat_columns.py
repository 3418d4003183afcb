"""Columns of every accepted kind as the flat arrays that the row encoders take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.options import near_matches
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.frames import is_table
from tfrecord._columns.lists import is_list
from tfrecord._columns.ragged import as_column, is_unknown
from tfrecord._kernels.codes import BYTES, FLOAT
from tfrecord._writing import values as _values
from tfrecord._writing.values import INT, check_key, describe, refuse

_EXPECTED = "an array, Ragged, BytesColumn or list with one entry per record, or a pair of it and a type name"


class FlatColumn(NamedTuple):
    """One feature over all rows; `tfrecord._kernels.encode.RowEncoder` explains the fields."""

    key: bytes
    kind: int
    present: npt.NDArray[np.uint8] | None
    steps: npt.NDArray[np.int64] | None
    splits: npt.NDArray[np.int64] | None
    width: int
    values: npt.NDArray[Any] | None
    offsets: npt.NDArray[np.int64] | None
    lengths: npt.NDArray[np.int64] | None
    ids: npt.NDArray[np.int32] | None
    buffers: tuple[Any, ...]


class FlatBatch(NamedTuple):
    """Flat columns of a batch: the context's first, then (if `is_sequence`) those of the feature lists."""

    columns: list[FlatColumn]
    num_rows: int
    num_context: int
    is_sequence: bool


def flatten_batch(batch: Any, present: Mapping[str, Any] | None) -> FlatBatch:
    """A ColumnBatch, SequenceBatch, table of any library, or mapping of columns as flat columns.

    Raises TypeError and ValueError as the writer's `write` does; the messages name the column.
    """
    if not isinstance(batch, (ColumnBatch, SequenceBatch, Mapping)):
        batch = _from_table(batch)
    if isinstance(batch, SequenceBatch):
        if present is not None:
            raise ValueError("present is not allowed with a SequenceBatch, which has that information itself")
        context = [_flat(key, batch.context, batch.num_rows, False) for key in batch.context]
        lists = [_flat(key, batch.feature_lists, batch.num_rows, True) for key in batch.feature_lists]
        return FlatBatch(context + lists, batch.num_rows, len(context), True)
    if isinstance(batch, ColumnBatch):
        if present is not None:
            raise ValueError("present is not allowed with a ColumnBatch or a table, which say it themselves")
        columns = [_flat(key, batch, batch.num_rows, False) for key in batch]
        return FlatBatch(columns, batch.num_rows, len(columns), False)
    flags = dict(present or {})
    for key in flags:
        if key not in batch:
            expected = f"one of {list(batch)}{near_matches(key, batch)}"
            refuse(ValueError, key, "present flags without a column", expected)
    columns = []
    num_rows: int | None = None
    for key, column in batch.items():
        flat, rows = _flat_column(key, column, flags.get(key), num_rows, False)
        columns.append(flat)
        num_rows = rows
    return FlatBatch(columns, num_rows or 0, len(columns), False)


def _from_table(batch: Any) -> ColumnBatch | SequenceBatch:
    if not is_table(batch):
        hint = "; a LazyFrame becomes a DataFrame by collect()" if hasattr(batch, "collect") else ""
        if isinstance(batch, list):
            hint = "; records one by one are for TFRecordWriter.write"
        raise TypeError(
            f"the columns: got {describe(batch)}, expected a dict of columns, a ColumnBatch, a "
            f"SequenceBatch, a DataFrame (pandas, polars), or an Arrow RecordBatch or Table{hint}"
        )
    record_type = getattr(batch, "record_type", None)  # of a reader
    if record_type == "bytes":
        raise TypeError("records of type bytes have no columns: write each with write_bytes")
    made = ColumnBatch.from_arrow(batch)
    if record_type == "sequence_example" or SequenceBatch._is_named(made):
        return SequenceBatch._from_whole(made)
    return made


def _flat(key: str, batch: ColumnBatch, num_rows: int, nested: bool) -> FlatColumn:
    return _flat_column(key, batch[key], batch.present[key], num_rows, nested)[0]


def _flat_column(
    key: str, column: Any, present: Any, num_rows: int | None, nested: bool
) -> tuple[FlatColumn, int]:
    name = check_key(key)
    kind: int | None = None
    if isinstance(column, tuple) and len(column) == 2 and isinstance(column[1], str):
        column, kind = _values.split_spec(key, column)
    column = _as_column(key, column, kind)
    rows = len(column)
    if num_rows is not None and rows != num_rows:
        refuse(ValueError, key, f"{rows} rows", f"{num_rows}, as the columns before it have")
    flags = None if present is None else _flags(key, present, rows)
    steps: npt.NDArray[np.int64] | None = None
    if nested:
        steps, column = _split_steps(key, column)
    splits, width, leaves = _split_values(key, column)
    if kind is not None and is_unknown(leaves):
        leaves = BytesColumn.from_list([]) if kind == BYTES else np.empty(0, np.int64)
    if isinstance(leaves, BytesColumn):
        if kind not in (None, BYTES):
            refuse(TypeError, key, "byte strings", f"numbers (type {_values.KIND_NAMES[kind]!r})")
        offsets, lengths = np.ascontiguousarray(leaves.offsets), np.ascontiguousarray(leaves.lengths)
        ids = None if leaves.buffer_ids is None else np.ascontiguousarray(leaves.buffer_ids)
        buffers = tuple(memoryview(buffer).cast("B") for buffer in leaves.buffers)
        flat = FlatColumn(name, BYTES, flags, steps, splits, width, None, offsets, lengths, ids, buffers)
        return flat, rows
    if is_unknown(leaves) and kind is None:
        # No row tells its type: the feature is missing everywhere, and steps have no type.
        flags = flags if nested else np.zeros(rows, np.uint8)
        kind, values = 0, np.empty(0, np.int64)
    else:
        kind, values = _numbers(key, leaves, kind)
    return FlatColumn(name, kind, flags, steps, splits, width, values, None, None, None, ()), rows


def _flags(key: str, present: Any, rows: int) -> npt.NDArray[np.uint8] | None:
    flags = np.asarray(present)
    if flags.dtype != np.bool_ or flags.shape != (rows,):
        refuse(
            ValueError,
            key,
            f"present flags of {flags.dtype}, shape {flags.shape}",
            f"bool of shape ({rows},)",
        )
    return None if flags.all() else np.ascontiguousarray(flags).view(np.uint8)


def _as_column(key: str, column: Any, kind: int | None) -> Any:
    """A Ragged, a BytesColumn, or a numeric array of at least one dimension."""
    if isinstance(column, (Ragged, BytesColumn)):
        return column
    if isinstance(column, (list, range)):
        column = _list_column(key, column)
        if isinstance(column, (Ragged, BytesColumn)):
            return column
    column = _values.as_array(key, column, None)
    if not isinstance(column, np.ndarray) or column.ndim == 0:
        refuse(TypeError, key, describe(column), _EXPECTED)
    _values.refuse_masked(key, column, None)
    if column.dtype.kind not in "SUTO":
        return column
    return _bytes_column(key, column) if kind in (None, BYTES) else _object_numbers(key, column, kind)


def _list_column(key: str, column: Any) -> Any:
    types = set(map(type, column))
    if type(None) in types:
        at = next(i for i, item in enumerate(column) if item is None)
        expected = "a value for each record; present= says which records lack a feature"
        refuse(TypeError, key, f"None at position {at}", expected)
    if any(hasattr(item, "__array__") for item in types):
        column = [_values.as_array(key, item, None) for item in column]
        for item in column:
            _values.refuse_masked(key, item, None)
    if any(map(is_list, column)):
        # The values of a feature are flat, so the dimensions of rows may differ.
        rows = [row.reshape(-1) if isinstance(row, np.ndarray) else row for row in column]
        try:
            return as_column(rows, "")
        except Exception as error:  # rows may be of any type, with an __array__ of any kind
            kind = ValueError if isinstance(error, ValueError) else TypeError
            refuse(kind, key, f"a list that gives no array ({error})", _EXPECTED, cause=error)
    if any(issubclass(item, (bytes, bytearray, memoryview, str)) for item in types):
        # Never through a fixed-width array: it would lose trailing zero bytes.
        made = np.empty(len(column), object)
        made[:] = column
        return made
    try:
        made = np.asarray(column)
    except Exception as error:
        refuse(TypeError, key, f"a list that gives no array ({error})", _EXPECTED, cause=error)
    if made.dtype.kind == "f" and types <= {int, bool}:  # NumPy's way out for integers beyond 64 bits
        _values.to_values(key, column, INT)
    return made


def _bytes_column(key: str, column: npt.NDArray[Any]) -> BytesColumn:
    if column.dtype.kind == "S":
        column = np.ascontiguousarray(column)
        lengths = np.char.str_len(column).reshape(-1).astype(np.int64)
        offsets = np.arange(column.size, dtype=np.int64) * column.dtype.itemsize
        return BytesColumn((column.tobytes(),), offsets, lengths, shape=column.shape)
    leaves = BytesColumn.from_list(
        [_values.bytes_leaf(key, item, i) for i, item in enumerate(column.reshape(-1).tolist())]
    )
    return BytesColumn(leaves.buffers, leaves.offsets, leaves.lengths, shape=column.shape)


def _object_numbers(key: str, column: npt.NDArray[Any], kind: int) -> npt.NDArray[Any]:
    values = _values.to_values(key, column, kind)
    assert isinstance(values, np.ndarray)
    if values.size != column.size:
        refuse(TypeError, key, "an object array of arrays", "numbers, or Ragged(values, row_splits)")
    return values.reshape(column.shape)


def _numbers(key: str, leaves: npt.NDArray[Any], kind: int | None) -> tuple[int, npt.NDArray[Any]]:
    if kind == BYTES:
        refuse(TypeError, key, describe(leaves), _values.EXPECTED[BYTES])
    if kind is None:
        kind = INT if leaves.dtype.kind in "iub" else FLOAT
    return kind, _values.int64_array(key, leaves) if kind == INT else _values.float32_array(key, leaves)


def _split_steps(key: str, column: Any) -> tuple[npt.NDArray[np.int64], Any]:
    """Where each row's steps start, and the steps as a separate column."""
    if isinstance(column, Ragged):
        return np.ascontiguousarray(column.row_splits), column.values
    if isinstance(column, BytesColumn):
        refuse(TypeError, key, "one byte string per record", "a Ragged over the steps of each record")
    if column.ndim < 2:
        refuse(TypeError, key, describe(column), "a Ragged, or an array (records, steps, ...)")
    splits = np.arange(len(column) + 1, dtype=np.int64) * column.shape[1]
    return splits, column.reshape(len(column) * column.shape[1], *column.shape[2:])


def _split_values(key: str, column: Any) -> tuple[npt.NDArray[np.int64] | None, int, Any]:
    """Row splits (or None and the same width for all), and the values of all rows in one run."""
    splits: npt.NDArray[np.int64] | None = None
    if isinstance(column, Ragged):
        splits, column = column.row_splits, column.values
        if isinstance(column, Ragged):
            refuse(TypeError, key, "a Ragged of Ragged", "one level of rows; steps belong in a SequenceBatch")
    width = int(np.prod(column.shape[1:], dtype=np.int64))
    if splits is not None:
        return np.ascontiguousarray(splits * width), 0, column
    return None, width, column
