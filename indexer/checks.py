"""Checks of options that several functions share."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["check_threads"]

_MOST_THREADS = 256


def check_threads(value: Any, what: str = "num_threads") -> int:
    """A number of threads as an int of at least 1; more than 256 are taken for 256. ValueError for what is
    none."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{what} is {value!r}; it is an integer of at least 1")
    return min(number, _MOST_THREADS)
