"""Checks of options that several functions share."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple, TypeVar, cast

__all__ = [
    "CallerPlace",
    "caller_place",
    "calls_from",
    "check_count",
    "check_options",
    "check_threads",
    "known_names",
    "listed",
    "near_matches",
    "suggests_options",
    "warn_caller",
]

_MOST_THREADS = 256
# Comparing names takes about 10 microseconds each.
_MOST_COMPARED = 10_000
_MOST_LISTED = 24
# Stack frames of these packages may lie between the user's line and the library code that warns.
_PASSED_THROUGH = (
    *("indexer", "tfrecord", "torch", "torchdata"),
    *("concurrent", "contextlib", "multiprocessing", "threading"),
)
_thread = threading.local()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def check_count(value: Any, what: str) -> int:
    """``value`` as an int of at least 1; for anything else a ValueError that calls it ``what``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{what} is {value!r}; it must be an integer of at least 1")
    return number


def check_threads(value: Any, what: str = "num_threads") -> int:
    """`check_count` for a number of threads; more than 256 counts as 256."""
    return min(check_count(value, what), _MOST_THREADS)


def near_matches(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'label'?"`` if a known name is similar to ``name``, else ``""``.

    Upper and lower case count as equal. At most three names are given, the most similar first.
    """
    if not isinstance(name, str):
        return ""
    spellings: dict[str, str] = {}
    for one in islice(known, _MOST_COMPARED):
        spellings.setdefault(one.casefold(), one)
    found = difflib.get_close_matches(name.casefold(), spellings, cutoff=0.66)
    return f"; did you mean {' or '.join(repr(spellings[one]) for one in found)}?" if found else ""


def listed(names: Iterable[str]) -> str:
    """Quoted names for a message: the first 24, or ``none``."""
    shown = list(map(repr, islice(names, _MOST_LISTED + 1)))
    if len(shown) > _MOST_LISTED:
        shown[-1] = "..."
    return ", ".join(shown) or "none"


def known_names(name: object, known: Iterable[str], words: str = "there are") -> str:
    """The end of a message about an unknown name: similar names, and the known ones."""
    names = list(known)
    near = near_matches(name, names)
    return f"{near} ({words} {listed(names)})" if near else f"; {words} {listed(names)}"


def check_options(
    called: Callable[..., Any],
    options: Iterable[str],
    known: Sequence[str],
    rest: str = "reader_options",
    *,
    owner: object = None,
) -> None:
    """Check the names of the options that a function passes on.

    Args:
        called: the function that the user called; its argument ``rest`` holds the options.
        options: the names given.
        known: the names that may be given.
        owner: the object or class of a method, which an inherited one is blamed on.

    Raises:
        TypeError: an unknown name. It blames ``called`` and suggests close names.
    """
    for name in options:
        if name not in known:
            own = [own for own in inspect.signature(called).parameters if own not in ("self", "cls", rest)]
            shown = called.__qualname__
            if owner is not None:
                kind = owner if isinstance(owner, type) else type(owner)
                shown = f"{kind.__name__}.{called.__name__}"
            shown = shown.removesuffix(".__init__")
            near = near_matches(name, [*own, *known])
            raise TypeError(f"{shown}() got an unexpected keyword argument {name!r}{near}")


def suggests_options(function: _Function) -> _Function:
    """The same function, which answers an option that it does not have with those much like it.

    For public functions, constructors and methods with options: Python names similar ones only since 3.13.
    """
    parameters = inspect.signature(function).parameters
    known = tuple(parameters)
    is_method = known[:1] in (("self",), ("cls",))

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        for name in options:
            if name not in parameters:
                check_options(function, options, known, owner=args[0] if is_method and args else None)
        return function(*args, **options)

    return cast("_Function", call)


class CallerPlace(NamedTuple):
    """A line of the user's program, in the form that `warnings.warn_explicit` takes."""

    filename: str
    lineno: int
    module: str | None
    registry: dict[Any, Any]


def caller_place() -> CallerPlace | None:
    """The line that called into the library, however deep the call and through whatever loader.

    In a thread for which `calls_from` set a place, that place. None if there is no such line.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_THROUGH:
        frame = frame.f_back
    if frame is None:
        return getattr(_thread, "place", None)
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    return CallerPlace(frame.f_code.co_filename, frame.f_lineno, names.get("__name__"), registry)


def calls_from(place: CallerPlace | None) -> None:
    """Set the user's line that this thread works for."""
    _thread.place = place


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called into the library (see `caller_place`)."""
    place = caller_place()
    if place is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warnings.warn_explicit(message, category, *place)
