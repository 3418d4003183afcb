"""Arrow arrays as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._columns.arrays import BoolArray, ranges, splits_of
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.ragged import Ragged
from tfrecord._columns.to_arrow import INLINE
from tfrecord._optional import optional

# Arrow's names of floats; its other names of numbers are numpy's.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def column_of(array: Any, name: str) -> tuple[Any, BoolArray]:
    """A column of an Arrow array and which rows are present (not null).

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
        return column_of(array.dictionary_decode(), name)
    valid = _validity(array)
    if pa.types.is_null(kind):
        return Ragged(np.empty(0, object), np.zeros(len(array) + 1, np.int64)), valid
    if pa.types.is_fixed_size_list(kind):
        return _fixed(array, valid, name), valid
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, valid, name), valid
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array, valid), valid
    column = _bytes(array, kind)
    if column is None:
        raise TypeError(
            f"column {name!r} is {kind}; a feature holds integers, floats, bool, binary, strings, "
            "or lists of one of these: cast it first"
        )
    if not valid.all():
        column.lengths[~valid] = 0
        column.offsets[~valid] = 0
    return column, valid


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
        values = np.frombuffer(array.buffers()[1] or b"", dtype)[
            array.offset : array.offset + len(array)
        ].copy()
    if not valid.all():
        values[~valid] = 0
    return values


def _bytes(array: Any, kind: Any) -> BytesColumn | None:
    pa = optional("pyarrow")
    types, count, start = pa.types, len(array), array.offset
    buffers = [memoryview(buffer or b"").cast("B") for buffer in array.buffers()[1:]]
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        offsets = np.arange(start, start + count, dtype=np.int64) * kind.byte_width
        return BytesColumn(buffers, offsets, np.full(count, kind.byte_width))
    if types.is_binary_view(kind) or types.is_string_view(kind):
        views = np.frombuffer(buffers[0], np.int32).reshape(-1, 4)[start : start + count].astype(np.int64)
        inline = views[:, 0] <= INLINE
        places = np.arange(start, start + count, dtype=np.int64) * 16 + 4
        ids = np.where(inline, 0, views[:, 2] + 1)
        return BytesColumn(buffers, np.where(inline, places, views[:, 3]), views[:, 0].copy(), ids)
    wide = types.is_large_binary(kind) or types.is_large_string(kind)
    if not (wide or types.is_binary(kind) or types.is_string(kind)):
        return None
    if not count:
        return BytesColumn.from_list([])
    splits = np.frombuffer(buffers[0], np.int64 if wide else np.int32)[start : start + count + 1].astype(
        np.int64
    )
    return BytesColumn(buffers[1:], splits[:-1].copy(), np.diff(splits))


def _fixed(array: Any, valid: BoolArray, name: str) -> Any:
    """Fixed-size lists: a dense column, or a Ragged where the elements are lists of differing length."""
    size = array.type.list_size
    child, child_valid = column_of(array.values.slice(array.offset * size, len(array) * size), name)
    if isinstance(child, Ragged):
        column = Ragged(child, np.arange(len(array) + 1, dtype=np.int64) * size)
        return column if valid.all() else _emptied(column, valid)
    if not child_valid.reshape(len(array), size)[valid].all():
        raise ValueError(
            f"column {name!r} has a null among a list's values; a feature's values cannot be null"
        )
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
        stored = np.frombuffer(array.buffers()[1], width)
        splits = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(splits[0]), int(splits[-1])
    child, child_valid = column_of(array.values.slice(first, last - first), name)
    if pa.types.is_null(array.type.value_type) and first == last:
        child = np.empty(0, object)
    column = Ragged(child, splits - first)
    is_leaf = not isinstance(child, Ragged) or pa.types.is_null(array.type.value_type)
    if not child_valid.all() and is_leaf:
        counted = Ragged(child_valid, column.row_splits)
        counted = counted if valid.all() else _emptied(counted, valid)
        if not counted.values.all():
            raise ValueError(
                f"column {name!r} has a null among a list's values; a feature's values cannot be null"
            )
    return column if valid.all() else _emptied(column, valid)


def _emptied(column: Ragged, valid: BoolArray) -> Ragged:
    """The same rows, those that are not valid with no values (Arrow lets a null row span some)."""
    lengths = np.where(valid, column.lengths(), 0)
    return Ragged._trusted(column.values[ranges(column.row_splits[:-1], lengths)], splits_of(lengths))
