"""What callers may pass for a feature, and how it becomes one of the three stored types.

Every rule about accepted values is here. The compiled encoder handles the common cases itself (exact Python
scalars, flat lists of them, contiguous arrays) and calls this module for everything else, so both engines
accept and refuse the same values with the same messages.

A wrong type is a `TypeError`, a value that does not fit is a `ValueError`; both messages have the form
``feature KEY: got WHAT, expected WHAT``. No message quotes the content of a byte string.
"""

from __future__ import annotations

import array
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from indexer.options import near_matches
from tfrecord._kernels.codes import BYTES, FLOAT, INT64

INT = INT64
KIND_NAMES = {BYTES: "bytes", FLOAT: "float", INT: "int"}
TYPE_NAMES = {
    **dict.fromkeys(("byte", "bytes", "str", "string"), BYTES),
    **dict.fromkeys(("float", "float32"), FLOAT),
    **dict.fromkeys(("int", "int64"), INT),
}

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_MAX_DEPTH = 64
EXPECTED = {
    BYTES: "bytes or str, or a list or array of them (type 'bytes'); numbers as raw bytes: array.tobytes()",
    FLOAT: "a number, or a list or array of them (type 'float')",
    INT: "an integer, or a list or array of them (type 'int')",
}
_INT_RANGE = "an integer from -2**63 to 2**63 - 1 (larger ones can be kept as bytes: array.tobytes())"
_FLOAT_RANGE = "a number that fits float32 (doubles can be kept as bytes: array.tobytes())"
_SHORT_NAMES = "'bytes' ('byte', 'str', 'string'), 'float' ('float32'), 'int' ('int64')"

Values = list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]


def refuse(
    error: type[Exception],
    key: object,
    got: str,
    expected: str,
    step: int | None = None,
    cause: Exception | None = None,
) -> NoReturn:
    """Raise `error` in the one form of every message about a value."""
    place = f"feature {ascii(key)}" + ("" if step is None else f", step {step}")
    raise error(f"{place}: got {got}, expected {expected}") from cause


def describe(value: object) -> str:
    """A short, safe description of a value: numbers by value, everything else by type and size."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, int):
        # Python refuses str() of a huge integer, and the text would help nobody.
        return f"int {value}" if value.bit_length() <= 256 else f"an int of {value.bit_length()} bits"
    if isinstance(value, (float, complex, np.number)):
        return f"{type(value).__name__} {value!s}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    if isinstance(value, (str, bytes, bytearray, list, tuple, dict, set)):
        return f"{type(value).__name__} of length {len(value)}"
    return type(value).__name__


def _at(got: str, position: int | None) -> str:
    return got if position is None else f"{got} at position {position}"


def check_key(key: object) -> bytes:
    """The UTF-8 of a feature's name. `TypeError` if it is not a str, `ValueError` for a lone surrogate."""
    if not isinstance(key, str):
        refuse(TypeError, key, f"{describe(key)} as a feature's name", "str")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        refuse(ValueError, key, "a name with a lone surrogate", "a name that UTF-8 can hold", cause=error)


def split_spec(key: object, spec: object, steps: bool = False) -> tuple[Any, int]:
    """`(value, typename)` to the value and its kind."""
    expected = f"a pair (value, typename) with typename one of {_SHORT_NAMES}"
    if not isinstance(spec, (tuple, list)) or len(spec) != 2:
        refuse(TypeError, key, f"{describe(spec)} without a type name", expected)
    value, name = spec
    if not isinstance(name, str):
        refuse(TypeError, key, f"{describe(name)} as the type name", expected)
    kind = TYPE_NAMES.get(name.strip())
    if kind is None:
        near = near_matches(name.strip(), TYPE_NAMES)
        refuse(ValueError, key, f"the type name {ascii(name[:40])}", f"one of {_SHORT_NAMES}{near}")
    return value, kind


def split_value(key: object, spec: object, steps: bool) -> tuple[Any, int]:
    """Like `split_spec`, but also accepts a value as a reader returns it, whose type is known.

    With `steps` it is the value of a feature list. Kind 0 means that the type of the feature is unknown.
    """
    if not isinstance(spec, (tuple, list)) or len(spec) != 2 or not isinstance(spec[1], str):
        told = _steps_of(key, spec) if steps else _value_of(key, spec)
        if told is not None:
            return told
    return split_spec(key, spec)


def _value_of(key: object, value: Any) -> tuple[Any, int] | None:
    """A value as a reader returns it (array, NumPy scalar, bytes or None) with its kind; None for others.

    Python numbers are not included: the caller must say whether 1 is an integer or a float.
    """
    if value is None:
        return None, 0
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value, BYTES
    value = as_array(key, value, None)
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    kind = {"i": INT, "u": INT, "b": INT, "f": FLOAT, "O": BYTES, "S": BYTES, "U": BYTES, "T": BYTES}
    return (value, kind[value.dtype.kind]) if value.dtype.kind in kind else None


def _steps_of(key: object, value: Any) -> tuple[Any, int] | None:
    """The steps of a feature list as a reader returns them, with their kind; None is an empty step."""
    if (
        isinstance(value, (str, bytes, tuple, Mapping))
        or not isinstance(value, Iterable)
        or not getattr(value, "ndim", 1)
    ):
        return None
    told = [_value_of(key, step) for step in value]
    kinds = {pair[1] for pair in told if pair is not None and pair[1]}
    if None in told or len(kinds) > 1:
        return None
    return [[] if pair[0] is None else pair[0] for pair in told if pair is not None], max(kinds, default=0)


def check_datum(datum: object, what: str) -> Mapping[str, Any]:
    """Refuse anything but a mapping of features; the error shows the expected form."""
    if not isinstance(datum, Mapping):
        raise TypeError(f"{what}: got {describe(datum)}, expected a dict {{name: (value, typename)}}")
    return datum


def to_values(key: str, value: Any, kind: int, step: int | None = None) -> Values:
    """The values of one feature (or of one step) in C order.

    Returns a list of `bytes`, or a contiguous 1-D array of float32 or int64 (the caller's own if it is one).
    """
    value = as_array(key, value, step)
    if isinstance(value, np.ndarray):
        return _from_array(key, value, kind, step)
    if _is_leaf(value) or not isinstance(value, Sequence):
        return _pack(key, [_leaf(key, value, kind, None, step)], kind, step)
    leaves: list[Any] = []
    _flatten(key, value, kind, step, leaves, 0)
    return _pack(key, leaves, kind, step)


def to_steps(key: str, value: Any, kind: int) -> Sequence[Any]:
    """The steps of a sequence feature, each for `to_values`. The first axis of an array counts the steps."""
    value = as_array(key, value, None)
    if isinstance(value, np.ndarray) and value.ndim:
        refuse_masked(key, value, None)
        return list(value)
    if isinstance(value, Sequence) and not _is_leaf(value):
        return value
    expected = f"a list of steps, each {EXPECTED[kind]}"
    refuse(TypeError, key, describe(value), expected)


def _is_leaf(value: object) -> bool:
    return isinstance(value, (str, bytes, bytearray, memoryview, int, float, np.generic)) or value is None


def as_array(key: object, value: Any, step: int | None) -> Any:
    """Arrays of other libraries as NumPy arrays; anything else unchanged."""
    kind = type(value)
    if kind in (int, float, bytes, str, list, tuple) or isinstance(value, (np.ndarray, np.generic)):
        return value
    if isinstance(value, array.array):
        return np.asarray(value)
    if not hasattr(value, "__array__"):
        return value
    try:
        # torch is never imported here: a tensor has the methods that are needed.
        if hasattr(value, "detach") and hasattr(value, "device"):
            return _tensor_to_array(value)
        return np.asarray(value)
    except Exception as error:
        got = f"{kind.__module__.partition('.')[0]} {kind.__name__} that gives no array ({error})"
        refuse(TypeError, key, got, "an array in CPU memory (a tensor elsewhere: tensor.cpu())", step, error)


def _tensor_to_array(tensor: Any) -> npt.NDArray[Any]:
    if tensor.device.type != "cpu":
        raise TypeError(f"it is on device {tensor.device}")
    tensor = tensor.detach()
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()  # NumPy has no bfloat16; float32 holds every bfloat16 and float16
    result: npt.NDArray[Any] = tensor.resolve_neg().resolve_conj().numpy()
    return result


def refuse_masked(key: object, values: npt.NDArray[Any], step: int | None) -> None:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        expected = "values only: array.compressed() or array.filled(x)"
        refuse(ValueError, key, "an array with masked values", expected, step)


def _from_array(key: object, values: npt.NDArray[Any], kind: int, step: int | None) -> Values:
    refuse_masked(key, values, step)
    values = np.asarray(values)
    if values.dtype.kind == "O":
        leaves: list[Any] = []
        # tolist() of an object array leaves its items as they are.
        _flatten(key, values.tolist() if values.ndim else [values.item()], kind, step, leaves, 0)
        return _pack(key, leaves, kind, step)
    if not values.size:
        values = np.zeros(0, "S1" if kind == BYTES else np.int64)  # without values any dtype will do
    if kind == BYTES:
        if values.dtype.kind not in "SUT":
            refuse(TypeError, key, describe(values), EXPECTED[kind], step)
        return [bytes_leaf(key, item, i, step) for i, item in enumerate(values.reshape(-1).tolist())]
    return int64_array(key, values, step) if kind == INT else float32_array(key, values, step)


def int64_array(key: object, values: npt.NDArray[Any], step: int | None = None) -> npt.NDArray[np.int64]:
    """An integer or bool array as contiguous 1-D int64: exact, or an error with value and position."""
    if values.dtype.kind not in "iub":
        refuse(TypeError, key, describe(values), EXPECTED[INT], step)
    flat = values.reshape(-1)
    if flat.dtype.kind == "u" and flat.dtype.itemsize == 8 and flat.size and int(flat.max()) > INT64_MAX:
        place = int(np.argmax(flat > INT64_MAX))
        refuse(ValueError, key, f"{describe(int(flat[place]))} at position {place}", _INT_RANGE, step)
    return np.ascontiguousarray(flat, dtype=np.int64)


def float32_array(key: object, values: npt.NDArray[Any], step: int | None = None) -> npt.NDArray[np.float32]:
    """A numeric array as contiguous 1-D float32, rounded; a finite value that overflows is an error."""
    if values.dtype.kind == "V" and values.dtype.name.startswith(("bfloat16", "float8")):
        values = values.astype(np.float32)  # ml_dtypes, as JAX and TensorFlow return them
    if values.dtype.kind not in "fiub":
        refuse(TypeError, key, describe(values), EXPECTED[FLOAT], step)
    flat = values.reshape(-1)
    if flat.dtype.kind == "f" and flat.dtype.itemsize <= 4:
        return np.ascontiguousarray(flat, dtype=np.float32)
    if flat.dtype.kind != "f":
        flat = flat.astype(np.float64)  # rounds as a Python int does when converted to a C float
    with np.errstate(over="ignore", under="ignore"):
        narrow = np.ascontiguousarray(flat, dtype=np.float32)
    overflowed = np.isinf(narrow) & np.isfinite(flat)
    if overflowed.any():
        place = int(np.argmax(overflowed))
        refuse(ValueError, key, f"float {flat[place]!s} at position {place}", _FLOAT_RANGE, step)
    return narrow


def _flatten(
    key: object, items: Sequence[Any], kind: int, step: int | None, leaves: list[Any], depth: int
) -> tuple[int, ...]:
    """Append the leaves of a nested list in C order; returns its shape, or refuses a ragged one."""
    if depth >= _MAX_DEPTH:
        refuse(ValueError, key, f"a list nested more than {_MAX_DEPTH} deep", "a list of rows", step)
    shape: tuple[int, ...] | None = None
    for item in items:
        item = as_array(key, item, step)
        inner: tuple[int, ...] = ()
        if isinstance(item, np.ndarray):
            leaves.extend(_from_array(key, item, kind, step))
            inner = item.shape
        elif isinstance(item, Sequence) and not _is_leaf(item):
            inner = _flatten(key, item, kind, step, leaves, depth + 1)
        else:
            leaves.append(_leaf(key, item, kind, len(leaves), step))
        if shape is not None and inner != shape:
            got = f"a ragged nested list (shape {inner} beside {shape})"
            expected = "rows of one shape; rows of their own length are sequence features"
            refuse(ValueError, key, got, expected, step)
        shape = inner
    return (len(items), *(shape or ()))


def _leaf(key: object, value: Any, kind: int, position: int | None, step: int | None) -> bytes | float | int:
    """One value of the kind, or the error with its position."""
    if kind == BYTES:
        return bytes_leaf(key, value, position, step)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if kind == INT:
        return _int_leaf(key, value, position, step)
    if not isinstance(value, np.generic) or isinstance(value, (np.integer, np.floating)):
        return _float_leaf(key, value, position, step)
    refuse(TypeError, key, _at(describe(value), position), EXPECTED[kind], step)


def bytes_leaf(key: object, value: Any, position: int | None, step: int | None = None) -> bytes:
    """One byte string, text as UTF-8, or the error with its position."""
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError as error:
            got = _at("str with a lone surrogate", position)
            refuse(ValueError, key, got, "text that UTF-8 can hold", step, error)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    refuse(TypeError, key, _at(describe(value), position), EXPECTED[BYTES], step)


def _int_leaf(key: object, value: Any, position: int | None, step: int | None) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        refuse(TypeError, key, _at(describe(value), position), EXPECTED[INT], step, error)
    if not INT64_MIN <= number <= INT64_MAX:
        refuse(ValueError, key, _at(describe(number), position), _INT_RANGE, step)
    return number


def _float_leaf(key: object, value: Any, position: int | None, step: int | None) -> float:
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        refuse(TypeError, key, _at(describe(value), position), EXPECTED[FLOAT], step)
    try:
        number = float(value)
    except OverflowError as error:
        refuse(ValueError, key, _at(describe(value), position), _FLOAT_RANGE, step, error)
    except (TypeError, ValueError) as error:
        refuse(TypeError, key, _at(describe(value), position), EXPECTED[FLOAT], step, error)
    # A Decimal or long double beyond float64 becomes inf in the conversion, although it was finite.
    if math.isinf(number) and value != number:
        refuse(ValueError, key, _at(describe(value), position), _FLOAT_RANGE, step)
    return number


def _pack(key: object, leaves: list[Any], kind: int, step: int | None) -> Values:
    if kind == BYTES:
        return leaves
    if kind == INT:
        return np.array(leaves, dtype=np.int64)
    return float32_array(key, np.array(leaves, dtype=np.float64), step)
