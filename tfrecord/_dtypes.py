"""The types, shapes and defaults of features: checked, and each in one form."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from indexer.options import known_names

__all__ = ["DTYPES", "check_cast", "normal_default", "normal_shape", "resolve_dtype", "resolve_stored"]

# The stored type of each name, and the dtype of the result. Bytes have no dtype.
DTYPES: dict[str, tuple[str, str | None]] = {
    "byte": ("bytes", None),
    "bytes": ("bytes", None),
    "str": ("bytes", None),
    "string": ("bytes", None),
    "int": ("int64", "int64"),
    "float": ("float", "float32"),
    **{name: ("float", name) for name in ("float16", "float32", "float64")},
    **{name: ("int64", name) for name in ("int8", "int16", "int32", "int64")},
    **{name: ("int64", name) for name in ("uint8", "uint16", "uint32", "uint64", "bool")},
}
_RAW = tuple(name for name, (_, dtype) in DTYPES.items() if dtype == name)
_PYTHON_TYPES: dict[Any, str] = {bytes: "bytes", int: "int64", float: "float32", bool: "bool"}


def resolve_dtype(dtype: Any) -> tuple[str, str | None]:
    """The stored type and the result's dtype that a type name stands for.

    Args:
        dtype: a name (surrounding blanks are ignored), a NumPy dtype or scalar class, one of the classes
            `bytes`, `int`, `float`, `bool`, or a dtype of TensorFlow or torch, such as ``tf.string``.

    Raises:
        ValueError: the type is unknown; the message lists the valid names.
    """
    name = _dtype_name(dtype)
    if name is None or name not in DTYPES:
        raise ValueError(f"unknown type {dtype!r}{known_names(name, DTYPES, 'valid are')}")
    return DTYPES[name]


def _dtype_name(dtype: Any) -> str | None:
    if isinstance(dtype, str):
        return dtype.strip()
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        described = np.dtype(dtype)
        return "bytes" if described.kind == "S" else described.name
    # A TensorFlow dtype, recognized by these two attributes.
    if hasattr(dtype, "as_numpy_dtype") and isinstance(getattr(dtype, "name", None), str):
        return str(dtype.name).removesuffix("_ref")
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    return None


def check_cast(values: np.ndarray[Any, Any], dtype: str) -> tuple[np.ndarray[Any, Any], int]:
    """Stored numbers (int64 or float32) in another dtype, and the index of the first that does not fit (-1
    if all fit).

    Integers and bool must keep their value; float64 always does. float16 rounds to nearest; only a finite
    value that would become infinite does not fit.
    """
    target = np.dtype(dtype)
    if values.dtype == target:
        return values, -1
    if target.kind == "f":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            cast = values.astype(target)
        bad = np.isinf(cast) & ~np.isinf(values) if target.itemsize < values.dtype.itemsize else None
    else:
        cast = values.astype(target)
        bad = cast.astype(np.int64) != values
        if target.kind == "u" and target.itemsize == 8:
            bad = values < 0
    if bad is None or not bad.any():
        return cast, -1
    return cast, int(bad.argmax())


def resolve_stored(dtype: Any, raw: bool) -> tuple[str, str | None]:
    """Like `resolve_dtype`, for raw arrays, which are stored as little-endian bytes."""
    kind, target = resolve_dtype(dtype)
    if not raw:
        return kind, target
    if target is None:
        raise ValueError(f"raw=True needs the dtype of the array in the bytes: one of {', '.join(_RAW)}")
    if isinstance(dtype, np.dtype) and dtype.byteorder == ">":
        raise ValueError(f"raw buffers are little-endian; {dtype!r} is not")
    return "bytes", target


def normal_shape(shape: Any, *, raw: bool) -> tuple[int, ...]:
    if isinstance(shape, Iterable) and not isinstance(shape, str | bytes):
        sizes = list(shape)
    else:
        sizes = [shape]
    try:
        result = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise ValueError(f"a shape must be integers, not {shape!r}") from None
    open_sizes = sum(size == -1 for size in result)
    if any(size < -1 for size in result) or open_sizes > (1 if raw else 0):
        allowed = (
            "sizes of at least 0 and at most one -1"
            if raw
            else "sizes of at least 0 (-1 is for raw bytes only)"
        )
        raise ValueError(f"the shape {result} is not valid: {allowed}")
    if -1 in result and 0 in result:
        raise ValueError(f"the shape {result} is not valid: -1 cannot be computed beside a 0")
    if math.prod(abs(size) for size in result) >= 2**31:
        raise ValueError(f"the shape {result} has more than 2**31 - 1 elements")
    return result


def normal_default(value: Any, kind: str, dtype: str | None, shape: tuple[int, ...], raw: bool) -> Any:
    """A default in hashable form: little-endian bytes of a whole row, or a tuple of bytes."""
    if kind == "bytes" and not raw:
        values = (
            [value]
            if isinstance(value, str | bytes | bytearray | memoryview)
            else list(np.ravel(np.array(value, object)))
        )
        try:
            row = [item.encode() if isinstance(item, str) else bytes(memoryview(item)) for item in values]
        except TypeError:
            raise ValueError(f"default_value of a bytes feature must be bytes, not {value!r}") from None
        count = math.prod(shape)
        if len(row) == 1:
            row *= count
        if len(row) != count:
            raise ValueError(f"default_value has {len(row)} values; the shape {shape} has {count}")
        return tuple(row)
    assert dtype is not None
    target = np.dtype(dtype)
    if raw and isinstance(value, bytes | bytearray | memoryview):
        array = np.frombuffer(value, target.newbyteorder("<"))
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"default_value {value!r} is not of type {dtype}")
        with np.errstate(all="ignore"):
            cast = array.astype(target)
        exact = target.kind == "f" or (array.dtype.kind != "f" or np.isfinite(array).all())
        if not exact or (
            target.kind != "f" and not np.array_equal(cast.astype(object), array.astype(object))
        ):
            raise ValueError(f"default_value {value!r} does not fit {dtype}")
        if target.kind == "f" and (np.isinf(cast) & ~np.isinf(array)).any():
            raise ValueError(f"default_value {value!r} overflows {dtype}")
        array = cast
    if -1 in shape:
        if array.size % -math.prod(shape):
            raise ValueError(f"default_value has {array.size} values, which do not fill the shape {shape}")
    elif array.ndim == 0 or array.size == 1:
        array = np.broadcast_to(array.reshape(()), shape)
    elif array.size != math.prod(shape):
        raise ValueError(f"default_value has {array.size} values; the shape {shape} has {math.prod(shape)}")
    return np.ascontiguousarray(array).astype(target.newbyteorder("<")).tobytes()
