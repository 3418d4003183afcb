"""Small array steps that the columns share: checked conversion, positions, ranges."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_BOOLS = {bool, np.bool_}
_INT64_MAX = np.iinfo(np.int64).max


def as_int64(values: Any, what: str) -> Int64Array:
    """`values` as contiguous int64 (n,); TypeError for other dtypes, ValueError for values that do not
    fit."""
    array = np.asarray(values)
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} must be integers, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got shape {array.shape}")
    if array.dtype == np.uint64 and array.size and int(array.max()) > _INT64_MAX:
        raise ValueError(f"{what} must fit int64, got {int(array.max())}")
    return np.ascontiguousarray(array, dtype=np.int64)


def as_positions(index: Any, count: int, what: str) -> Int64Array:
    """Positions 0..count-1 meant by an integer or bool array (or list); negative ones count from the end."""
    try:
        array = np.asarray(index)
    except ValueError as error:  # a list of lists of different lengths
        raise TypeError(f"positions of {what} must be a flat sequence of integers") from error
    if array.size == 0 and not isinstance(index, np.ndarray):
        array = array.astype(np.int64)
    if array.ndim == 0:
        raise TypeError(f"{what} are chosen by integers, slices or masks, not by {index!r}")
    if array.ndim != 1:
        raise IndexError(f"{what} are chosen by a one-dimensional array, got shape {array.shape}")
    if array.dtype.kind == "b":
        if len(array) != count:
            raise IndexError(f"a mask over {count} {what} needs {count} entries, got {len(array)}")
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.dtype.kind == "O":  # Python makes this of integers beyond int64 too
        array = np.array([as_position(one, count, what) for one in array.tolist()], np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"positions of {what} must be integers, got dtype {array.dtype}")
    # NumPy converts a True among integers to 1.
    if isinstance(index, (list, tuple)) and array.size and array.min() <= 1:
        if not _BOOLS.isdisjoint(map(type, index)):
            raise TypeError(f"positions of {what} are integers or a mask of bools, not both in one list")
    # As unsigned, a negative position exceeds any count: one comparison for the usual case.
    if array.dtype == np.int64 and array.size and int(array.view(np.uint64).max()) < count:
        return array if isinstance(index, list) else array.copy()  # do not change the caller's array
    bad = (array < -count) | (array >= count)
    if bad.any():
        raise IndexError(f"position {int(array[bad][0])} is out of range: there are {count} {what}")
    array = array.astype(np.int64)
    array[array < 0] += count
    return array


def as_position(index: Any, count: int, what: str) -> int:
    """The position 0..count-1 meant by one integer (a bool is not one); IndexError names the range."""
    if isinstance(index, (bool, np.bool_)) or str(getattr(index, "dtype", "")).endswith("bool"):
        raise TypeError(f"a position of {what} is an integer, not a bool")
    try:
        position = operator.index(index)
    except TypeError:
        raise TypeError(f"a position of {what} is an integer, not {type(index).__name__}") from None
    if not -count <= position < count:
        raise IndexError(f"position {position} is out of range: there are {count} {what}")
    return position + count if position < 0 else position


def is_integer(index: Any) -> bool:
    """Whether `index` is one integer (a bool is not one)."""
    if isinstance(index, (bool, np.bool_)):
        return False
    return isinstance(index, (int, np.integer)) or (
        isinstance(index, np.ndarray) and index.ndim == 0 and index.dtype.kind in "iu"
    )


def splits_of(lengths: Int64Array) -> Int64Array:
    """Row splits (n + 1) of n row lengths."""
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits


def ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """The integers of [start, start + length) of each pair, concatenated."""
    splits = splits_of(lengths)
    return np.arange(splits[-1], dtype=np.int64) + np.repeat(starts - splits[:-1], lengths)
