"""The width of padded rows, and the value that pads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfrecord._columns.arrays import Int64Array, is_integer


def limits_of(max_length: Any) -> tuple[Any, Any]:
    """The limit for the rows, and the limit for the steps within them."""
    if max_length is None or is_integer(max_length):
        return max_length, None
    limits = tuple(max_length)
    return (limits[0] if limits else None), limits[1:]


def width_of(limit: Any, lengths: Int64Array) -> int:
    """The width of padded rows of these lengths: the limit, or the longest row."""
    if limit is None:
        return int(lengths.max()) if len(lengths) else 0
    if not is_integer(limit) or limit < 0:
        raise ValueError(f"max_length must be an integer of at least 0, got {limit!r}")
    return int(limit)


def fill_for(dtype: np.dtype[Any], fill_value: Any) -> Any:
    """`fill_value` as a value of `dtype`; TypeError or ValueError if that would change it."""
    if dtype.kind == "O":
        if is_integer(fill_value) and fill_value == 0:
            return b""
        if not isinstance(fill_value, (bytes, type(None))):
            got = type(fill_value).__name__
            raise TypeError(f"the fill value of a bytes column is bytes or None, got {got}")
        return fill_value
    try:
        with np.errstate(all="ignore"):
            cast = np.asarray(fill_value).astype(dtype)
            exact = dtype.kind == "f" or bool(cast == fill_value)
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact or cast.ndim:
        raise ValueError(f"fill value {fill_value!r} does not fit dtype {dtype}")
    return cast
