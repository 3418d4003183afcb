"""Turns the output of the kernel into what the specs ask for: dtypes, shapes, defaults."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from indexer.errors import DecodeError, MissingFeatureError
from tfrecord._columns.batch import BytesColumn, Ragged
from tfrecord._columns.images import one_image
from tfrecord._columns.raw import bad_row, raw_shape, unpack, wrong_count
from tfrecord._dtypes import check_cast
from tfrecord._kernels.codes import BYTES, UNKNOWN
from tfrecord.features import Column

__all__ = ["finish_column", "finish_value"]


def finish_column(
    column: Column, kind: int, splits: Any, values: Any, buffers: tuple[Any, ...], count: int, outer: Any
) -> Any:
    """A column made from the output of the kernel.

    `count` is its number of rows. If the rows are steps, `outer` maps them to records.
    """
    data: Any = values
    if kind == UNKNOWN:  # any kind was allowed, and no record has the feature
        data = np.empty(0, object)
    elif kind == BYTES:
        data = BytesColumn._trusted(buffers, *values)
    if column.shape is None:
        if column.dtype is not None and data.dtype != column.dtype:
            data = _cast(column, data, splits, outer)
        return Ragged._trusted(data, splits)
    size = 1 if column.raw else math.prod(column.shape)
    if splits is not None:
        return _fill_defaults(column, data, splits, size, count, outer, buffers)
    if column.raw:
        return unpack(column, data, count, outer)
    if column.kind == "bytes":
        return (
            data
            if column.shape == ()
            else BytesColumn._trusted(buffers, values[0], values[1], values[2], (count, *column.shape))
        )
    if data.dtype != column.dtype:
        cast = _cast(column, data.reshape(-1), np.arange(count + 1) * size, outer)
        return cast.reshape(count, *column.shape)
    return data


def _cast(column: Column, values: Any, splits: Any, outer: Any) -> Any:
    assert column.dtype is not None
    cast, bad = check_cast(values, column.dtype)
    if bad >= 0:
        row = int(np.searchsorted(splits, bad, "right")) - 1
        raise bad_row(column, f"the value {values[bad].item()!r} does not fit {column.dtype}", row, outer)
    return cast


def _fill_defaults(
    column: Column, data: Any, splits: Any, size: int, count: int, outer: Any, buffers: tuple[Any, ...]
) -> Any:
    """A dense column, made from a ragged one and the defaults."""
    assert column.shape is not None
    lengths = np.diff(splits)
    filled = lengths > 0
    wrong = filled & (lengths != size)
    if wrong.any():
        row = int(wrong.argmax())
        raise bad_row(column, wrong_count(lengths[row], size), row, outer)
    if column.kind != "bytes":
        cast = _cast(column, data, splits, outer)
        dense = np.empty((count, size), cast.dtype)
        dense[filled] = cast.reshape(-1, size) if size else cast.reshape(int(filled.sum()), 0)
        dense[~filled] = np.frombuffer(column.default, np.dtype(column.dtype).newbyteorder("<"))
        return dense.reshape(count, *column.shape)
    defaults = (column.default,) if column.raw else column.default
    ends = np.cumsum([len(item) for item in defaults], dtype=np.int64)
    sizes = np.array([len(item) for item in defaults], np.int64)
    parts: list[Any] = []
    own = data.buffer_ids if data.buffer_ids is not None else np.zeros(len(data.offsets), np.int32)
    for stored, default in (
        (data.offsets, ends - sizes),
        (data.lengths, sizes),
        (own, np.int32(len(buffers))),
    ):
        part = np.empty((count, size), stored.dtype)
        part[filled] = stored.reshape(-1, size) if size else 0
        part[~filled] = default
        parts.append(part.reshape(-1))
    column_data = BytesColumn._trusted((*buffers, b"".join(defaults)), parts[0], parts[1], parts[2])
    if column.raw:
        return unpack(column, column_data, count, outer)
    return BytesColumn._trusted(
        column_data.buffers,
        column_data.offsets,
        column_data.lengths,
        column_data.buffer_ids,
        (count, *column.shape),
    )


def finish_value(column: Column, value: Any) -> Any:
    """One record's value of a column that differs from what is stored."""
    key, shape = column.key, column.shape
    if column.stored and len(value) == math.prod(shape):  # type: ignore[arg-type]
        return value.reshape(shape)
    length = 1 if isinstance(value, bytes) else len(value)
    if shape is None:
        return _cast(column, value, np.array([0, length]), None)
    if not length and column.default is None and (column.raw or math.prod(shape) > 0):
        raise MissingFeatureError("is empty and has no default", key=key, record=0)
    if not length and column.default is not None:
        if column.kind == "bytes" and not column.raw:
            value = column.default[0] if len(column.default) == 1 else list(column.default)
            length = len(column.default)
        else:
            stored = np.dtype(column.dtype).newbyteorder("<")
            default = np.frombuffer(column.default, stored).astype(column.dtype)
            return default.reshape(raw_shape(column, len(column.default)) if column.raw else shape)
    size = 1 if column.raw else math.prod(shape)
    if length != size:
        raise DecodeError(wrong_count(length, size), key=key, record=0)
    if column.raw:
        data = BytesColumn._trusted((value,), np.zeros(1, np.int64), np.array([len(value)]), None)
        array = unpack(column, data, 1, None)
        return array[0] if isinstance(array, Ragged) else array[0, ...]
    if column.kind != "bytes":
        return _cast(column, value, np.array([0, length]), None).reshape(shape)
    if shape == ():
        return value if column.image is None else one_image(column, value)
    array = np.empty(length, object)
    array[:] = [value] if isinstance(value, bytes) else value
    return array.reshape(shape)
