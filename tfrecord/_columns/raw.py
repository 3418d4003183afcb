"""Raw features as columns of numbers: each row is a byte string with the buffer of an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from indexer.errors import DecodeError
from tfrecord._columns.arrays import splits_of
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.ragged import Ragged
from tfrecord.features import Column

__all__ = ["bad_row", "in_step", "raw_shape", "unpack"]


def bad_row(column: Column, reason: str, row: int, outer: Any) -> DecodeError:
    """The error for a row. With ``outer``, rows are steps of a feature list."""
    if outer is None:
        return DecodeError(reason, key=column.key, record=int(row))
    record = int(np.searchsorted(outer, row, "right")) - 1
    return DecodeError(in_step(reason, int(row - outer[record])), key=column.key, record=record)


def wrong_count(count: int, expected: int) -> str:
    """The reason of an error: a value of a fixed shape has another number of values."""
    return f"has {count} values, not {expected} (VarLenFeature takes any number of values)"


def in_step(reason: str, step: int) -> str:
    """The reason of an error, for one step of a feature list."""
    return f"step {step} of this feature list: {reason}"


def raw_shape(column: Column, length: int) -> tuple[int, ...] | None:
    """The shape of an array of that many bytes; None if no array has this size."""
    assert column.shape is not None
    size = _unit(column)
    if -1 not in column.shape:
        return column.shape if length == size else None
    if length % size:
        return None
    return tuple(length // size if extent == -1 else extent for extent in column.shape)


def _unit(column: Column) -> int:
    """The bytes of an array whose variable size (-1) is 1."""
    assert column.shape is not None
    return math.prod(abs(extent) for extent in column.shape) * np.dtype(column.dtype).itemsize


def unpack(column: Column, data: BytesColumn, count: int, outer: Any) -> Any:
    """Raw byte strings, one per row, as a Ragged if the first size varies (-1), else as a dense array."""
    assert column.shape is not None
    if column.shape[:1] == (-1,):
        return _unpack_ragged(column, data, outer)
    dtype = np.dtype(column.dtype)
    least = math.prod(max(extent, 0) for extent in column.shape) * dtype.itemsize
    length = int(data.lengths[0]) if count else least
    shape = raw_shape(column, length)
    if shape is None:
        raise bad_row(column, _reason(column, length, data.view(0)), 0, outer)
    differs = data.lengths != length
    if differs.any():
        row = int(differs.argmax())
        other = int(data.lengths[row])
        reason = _reason(column, other, data.view(row))
        if raw_shape(column, other) is not None:
            reason = (
                f"holds {other} bytes, but {length} in the records before; all must have one shape, "
                "unless the first size is the -1"
            )
        raise bad_row(column, reason, row, outer)
    flat = data._gathered().reshape(count, length)
    _check_bool(column, flat.reshape(-1), np.arange(count + 1) * length, outer)
    array = flat.view(dtype.newbyteorder("<")) if length else np.empty((count, 0), dtype)
    return array.astype(dtype, copy=False).reshape(count, *shape)


def _unpack_ragged(column: Column, data: BytesColumn, outer: Any) -> Ragged:
    """Rows whose first size varies."""
    assert column.shape is not None
    dtype, size = np.dtype(column.dtype), _unit(column)
    wrong = data.lengths % size != 0
    if wrong.any():
        row = int(wrong.argmax())
        raise bad_row(column, _reason(column, int(data.lengths[row]), data.view(row)), row, outer)
    flat = data._gathered()
    _check_bool(column, flat, splits_of(data.lengths), outer)
    values = flat.view(dtype.newbyteorder("<")).astype(dtype, copy=False)
    return Ragged._trusted(values.reshape(-1, *column.shape[1:]), splits_of(data.lengths // size))


def _check_bool(column: Column, flat: Any, splits: Any, outer: Any) -> None:
    if column.dtype != "bool" or not flat.size or flat.max() <= 1:
        return
    row = int(np.searchsorted(splits, int((flat > 1).argmax()), "right")) - 1
    raise bad_row(column, "holds bytes other than 0 and 1, which are no bool", row, outer)


def _reason(column: Column, length: int, payload: memoryview) -> str:
    is_image = bytes(payload[:4]).startswith((b"\xff\xd8\xff", b"\x89PNG"))
    hint = "; it is a JPEG or PNG file, which ImageFeature decodes" if is_image else ""
    return f"holds {length} bytes, which do not make an array of {column.dtype} of shape {column.shape}{hint}"
