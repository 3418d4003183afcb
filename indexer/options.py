"""Checks of options that several functions share."""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any

__all__ = ["check_count", "check_threads", "warn_caller"]

_MOST_THREADS = 256
_OWN = ("indexer", "tfrecord")


def check_count(value: Any, what: str) -> int:
    """``value`` as an int of at least 1; ValueError, which names it as ``what``, for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{what} is {value!r}; it is an integer of at least 1")
    return number


def check_threads(value: Any, what: str = "num_threads") -> int:
    """`check_count` of a number of threads; more than 256 are taken for 256."""
    return min(check_count(value, what), _MOST_THREADS)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called into the library, however deep in it this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
