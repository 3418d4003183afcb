"""Nested Python lists as flat values and row splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrecord._columns.arrays import Int64Array, splits_of
from tfrecord._columns.bytes_column import BytesColumn

_STRINGS = (bytes, bytearray, memoryview, str)


def is_list(value: Any) -> bool:
    """Whether a value is a row of values: a list, a tuple, or an array of at least one dimension."""
    return isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def flatten_rows(rows: Any, dtype: Any) -> tuple[Any, list[Int64Array]]:
    """The values of nested rows, and the row splits of each level, the outermost first.

    Raises TypeError if a row is not a list, and ValueError if rows are nested to different depths.
    """
    levels: list[Int64Array] = []
    items: Sequence[Any] = list(rows)
    while True:
        for number, item in enumerate(items):
            if not is_list(item):
                if levels:
                    raise ValueError(f"rows are nested to different depths: {_name(item)} beside a list")
                raise TypeError(f"row {number} is {_name(item)}, not a list of values")
        levels.append(splits_of(np.fromiter(map(len, items), np.int64, len(items))))
        if items and all(isinstance(item, np.ndarray) for item in items):
            return _joined_arrays(items, dtype), levels
        items = [value for item in items for value in item]
        if not any(map(is_list, items)):
            return flat_values(items, dtype), levels


def _joined_arrays(arrays: Sequence[Any], dtype: Any) -> Any:
    filled = [array for array in arrays if array.size] or list(arrays[:1])
    try:
        joined = np.concatenate(filled)
    except ValueError as error:
        raise ValueError(f"the arrays of the rows cannot be joined: {error}") from None
    return flat_values(joined, dtype)


def flat_values(values: Any, dtype: Any = None) -> Any:
    """Values as an array of numbers, or as a BytesColumn (text as UTF-8)."""
    is_array = isinstance(values, np.ndarray)
    if is_array and values.dtype.kind in "biuf":
        return values if dtype is None else _cast(values, dtype)
    if dtype is bytes or (is_array and values.dtype.kind in "SUT" and len(values)):
        return strings(values)
    if not len(values):
        return np.empty(0, object if dtype is None else dtype)
    if any(isinstance(value, _STRINGS) for value in values):
        return strings(values)
    items = values.reshape(-1).tolist() if is_array else values
    array = np.asarray(items)
    if array.dtype.kind not in "iub" and all(isinstance(v, (int, np.integer)) for v in items):
        raise ValueError("an integer is beyond 64 bits")  # NumPy would switch to floats or objects
    if array.dtype.kind not in "biuf":
        wrong = next((v for v in items if not isinstance(v, (int, float, np.number, np.bool_))), items[0])
        raise TypeError(f"a value is {_name(wrong)}; a column holds numbers, bool, bytes or str")
    array = array.reshape(values.shape) if is_array else array
    return array if dtype is None else _cast(array, dtype)


def _cast(values: Any, dtype: Any) -> Any:
    """The numbers as another dtype: floats may be rounded, all else must be exact. ValueError otherwise."""
    with np.errstate(over="ignore", invalid="ignore"):
        made = values.astype(dtype)
        wrong = np.isinf(made) & np.isfinite(values) if made.dtype.kind == "f" else made != values
    if wrong.any():
        raise ValueError(f"the value {values[wrong].flat[0]!s} does not fit {made.dtype}")
    return made


def strings(values: Any) -> BytesColumn:
    """Byte strings and text as a BytesColumn, the text as UTF-8."""
    items = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else values
    made = []
    for item in items:
        try:
            made.append(str.encode(item) if isinstance(item, str) else item)
        except UnicodeEncodeError:
            raise ValueError("a str has a lone surrogate, which UTF-8 cannot encode") from None
    column = BytesColumn.from_list(made)
    return column._reshaped(values.shape) if isinstance(values, np.ndarray) else column


def _name(value: Any) -> str:
    return "None" if value is None else type(value).__name__
