"""Arrow arrays as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._columns.arrays import BoolArray, ranges, splits_of
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.ragged import Ragged
from tfrecord._columns.to_arrow import INLINE
from tfrecord._optional import optional

# Arrow's names for floats; its names for other numbers are those of numpy.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def columns_of(batch: Any) -> dict[str, tuple[Any, BoolArray]]:
    """The columns of a RecordBatch by name, and which rows of each are present."""
    arrays = named_arrays(batch.schema.names, batch.columns)
    return {name: column_of(array, name) for name, array in arrays.items()}


def named_arrays(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    """Arrays by name. ValueError if two have the same."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two columns have the name {twice!r}, among {names}")
    return dict(zip(names, arrays, strict=True))


def column_of(array: Any, name: str) -> tuple[Any, BoolArray]:
    """The column of an Arrow array, and which rows are present (not null).

    Numbers become a numpy array that owns its memory, strings and binary a BytesColumn over Arrow's buffers,
    fixed-size lists a dense column, other lists a Ragged (of Ragged). A null row is zero, empty bytes, or an
    empty list; a null list among steps is an empty step.

    Raises ValueError for a null among a list's values, TypeError for a type that no feature can hold.
    """
    pa = optional("pyarrow")
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return column_of(array.storage, name)
    if pa.types.is_dictionary(kind):
        return _dictionary(array, name)
    if pa.types.is_run_end_encoded(kind):
        return column_of(optional("pyarrow.compute").run_end_decode(array), name)
    valid = _validity(array)
    if pa.types.is_null(kind):
        return Ragged(np.empty(0, object), np.zeros(len(array) + 1, np.int64)), valid
    if pa.types.is_fixed_size_list(kind):
        return _fixed(array, valid, name), valid
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, valid, name), valid
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _list_views(array, valid, name), valid
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array, valid), valid
    column = _bytes(array, kind)
    if column is None:
        raise TypeError(
            f"column {name!r} is {kind}; a feature holds integers, floats, bool, binary, strings, "
            "or lists of one of these: cast it first"
        )
    return _cleared(column, valid), valid


def _dictionary(array: Any, name: str) -> tuple[Any, BoolArray]:
    """Each row's value instead of its code; the values themselves are not copied."""
    if not len(array.dictionary):
        return column_of(optional("pyarrow").nulls(len(array), array.type.value_type), name)
    values, known = column_of(array.dictionary, name)
    numbers, valid = column_of(array.indices, name)
    present = valid & known[numbers]
    return _cleared(values[numbers.astype(np.int64)], present), present


def _validity(array: Any) -> BoolArray:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid())


def _numbers(array: Any, valid: BoolArray) -> npt.NDArray[Any]:
    pa = optional("pyarrow")
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        values: npt.NDArray[Any] = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
        values = values[array.offset :].astype(np.bool_)
    else:
        dtype = np.dtype(_FLOATS.get(str(array.type), str(array.type)))
        values = _items(array.buffers()[1], dtype, array.offset, len(array)).copy()
    cleared: npt.NDArray[Any] = _cleared(values, valid)
    return cleared


def _items(buffer: Any, dtype: Any, start: int, count: int) -> npt.NDArray[Any]:
    """Some items of a buffer. Without rows, the buffer may be missing or have any size."""
    if not count:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count, start * np.dtype(dtype).itemsize)


def _bytes(array: Any, kind: Any) -> BytesColumn | None:
    pa = optional("pyarrow")
    types, count, start = pa.types, len(array), array.offset
    buffers = [memoryview(buffer or b"").cast("B") for buffer in array.buffers()[1:]]
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        offsets = np.arange(start, start + count, dtype=np.int64) * kind.byte_width
        return BytesColumn(buffers, offsets, np.full(count, kind.byte_width))
    if types.is_binary_view(kind) or types.is_string_view(kind):
        views = _items(buffers[0], np.int32, 4 * start, 4 * count).reshape(-1, 4).astype(np.int64)
        inline = views[:, 0] <= INLINE
        places = np.arange(start, start + count, dtype=np.int64) * 16 + 4
        ids = np.where(inline, 0, views[:, 2] + 1)
        return BytesColumn(buffers, np.where(inline, places, views[:, 3]), views[:, 0].copy(), ids)
    wide = types.is_large_binary(kind) or types.is_large_string(kind)
    if not (wide or types.is_binary(kind) or types.is_string(kind)):
        return None
    if not count:
        return BytesColumn.from_list([])
    splits = _items(buffers[0], np.int64 if wide else np.int32, start, count + 1).astype(np.int64)
    return BytesColumn(buffers[1:], splits[:-1].copy(), np.diff(splits))


def _fixed(array: Any, valid: BoolArray, name: str) -> Any:
    """Fixed-size lists: a dense column, or a Ragged if the elements are lists of different lengths."""
    size = array.type.list_size
    if optional("pyarrow").types.is_null(array.type.value_type):
        if size and valid.any():
            raise _null_among(name)
        return Ragged(np.empty(0, object), np.zeros(len(array) + 1, np.int64))
    child, child_valid = column_of(array.values.slice(array.offset * size, len(array) * size), name)
    if isinstance(child, Ragged):
        column = Ragged(child, np.arange(len(array) + 1, dtype=np.int64) * size)
        return _cleared(column, valid)
    if not child_valid.reshape(len(array), size)[valid].all():
        raise _null_among(name)
    if isinstance(child, BytesColumn):
        return BytesColumn._trusted(
            child.buffers,
            child.offsets,
            child.lengths,
            child.buffer_ids,
            (len(array), size, *child.shape[1:]),
        )
    return child.reshape(len(array), size, *child.shape[1:])


def _lists(array: Any, valid: BoolArray, name: str) -> Ragged:
    pa = optional("pyarrow")
    width = np.int64 if pa.types.is_large_list(array.type) else np.int32
    splits = np.zeros(1, np.int64)
    if len(array):
        splits = _items(array.buffers()[1], width, array.offset, len(array) + 1).astype(np.int64)
    first, last = int(splits[0]), int(splits[-1])
    child, child_valid = column_of(array.values.slice(first, last - first), name)
    return _rows_of(array, valid, Ragged(child, splits - first), child_valid, name)


def _list_views(array: Any, valid: BoolArray, name: str) -> Ragged:
    """Rows that may be in any order, overlap, and leave values out."""
    pa = optional("pyarrow")
    width = np.int64 if pa.types.is_large_list_view(array.type) else np.int32
    starts, lengths = (
        _items(buffer, width, array.offset, len(array)).astype(np.int64) for buffer in array.buffers()[1:3]
    )
    lengths[~valid] = 0
    child, child_valid = column_of(array.values, name)
    places = ranges(starts, lengths)
    return _rows_of(array, valid, Ragged(child[places], splits_of(lengths)), child_valid[places], name)


def _rows_of(array: Any, valid: BoolArray, column: Ragged, child_valid: BoolArray, name: str) -> Ragged:
    """Rows over values, none of which may be null; a null list among steps is an empty step."""
    is_null = optional("pyarrow").types.is_null(array.type.value_type)
    if is_null and not len(column.values):
        column = Ragged(np.empty(0, object), column.row_splits)
    if not child_valid.all() and (is_null or not isinstance(column.values, Ragged)):
        counted = Ragged(child_valid, column.row_splits)
        if not _cleared(counted, valid).values.all():
            raise _null_among(name)
    cleared: Ragged = _cleared(column, valid)
    return cleared


def _null_among(name: str) -> ValueError:
    return ValueError(f"column {name!r} has a null among a list's values; a feature's values cannot be null")


def _cleared(column: Any, valid: BoolArray) -> Any:
    """The column with zero, empty bytes or no values in the rows that are not valid. (In Arrow these may hold
    anything.)"""
    if valid.all():
        return column
    if isinstance(column, Ragged):
        lengths = np.where(valid, column.lengths(), 0)
        return Ragged._trusted(column.values[ranges(column.row_splits[:-1], lengths)], splits_of(lengths))
    if isinstance(column, BytesColumn):
        for numbers in (column.offsets, column.lengths):
            numbers.reshape(column.shape)[~valid] = 0
        return column
    column[~valid] = 0
    return column
