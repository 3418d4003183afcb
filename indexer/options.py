"""Checks of options that several functions share."""

from __future__ import annotations

import difflib
import operator
import sys
import warnings
from collections.abc import Iterable
from itertools import islice
from typing import Any

__all__ = ["check_count", "check_threads", "listed", "near_matches", "warn_caller"]

_MOST_THREADS = 256
# Comparing names takes about 10 microseconds each.
_MOST_COMPARED = 10_000
_MOST_LISTED = 20
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


def near_matches(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'label'?"`` where known names are much like ``name``, else ``""``.

    Upper and lower case count as equal. At most three names are given, the nearest first.
    """
    if not isinstance(name, str):
        return ""
    spellings: dict[str, str] = {}
    for one in islice(known, _MOST_COMPARED):
        spellings.setdefault(one.casefold(), one)
    found = difflib.get_close_matches(name.casefold(), spellings, cutoff=0.66)
    return f"; did you mean {' or '.join(repr(spellings[one]) for one in found)}?" if found else ""


def listed(names: Iterable[str]) -> str:
    """Names in quotes, for a message: the first 20 of them, or ``none``."""
    shown = list(map(repr, islice(names, _MOST_LISTED + 1)))
    if len(shown) > _MOST_LISTED:
        shown[-1] = "..."
    return ", ".join(shown) or "none"


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called into the library, however deep in it this is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
