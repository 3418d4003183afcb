"""Errors of workers: which record a transform failed on, and attributes that survive the worker process."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from typing import Any

import torch.utils.data

from indexer.errors import TFRecordError

__all__ = ["call_with_place", "for_loader"]


def call_with_place(
    function: Callable[[Any], Any], item: Any, name: str, place: str | Callable[[], str]
) -> Any:
    """`function(item)` of the user; an error that it raises gets its `name` and the place added."""
    try:
        return function(item)
    except Exception as error:
        where = place if isinstance(place, str) else place()
        raise _placed(error, f"{where}: {name} raised {type(error).__name__}: {error}") from error


def _placed(error: Exception, message: str) -> Exception:
    """An error like `error` with another message, of the same type if that takes a message."""
    if not isinstance(error, StopIteration):  # that would end the iteration silently
        try:
            named = type(error)(message)
        except Exception:
            named = None
        if isinstance(named, Exception) and message in str(named):
            return named
    return RuntimeError(message)


class WorkerError(Exception):
    """The text of a worker's traceback, as the cause of the error that it belongs to."""


class _Carrier(type):
    """The type of a worker's error, with the error packed in.

    A DataLoader sends only an error's type and a text to the main process and calls the type with the text
    there. The result of this call is the worker's error itself, with its path, record and offset.
    """

    packed: bytes

    def __call__(cls, message: str = "", *_: Any) -> Any:
        error = pickle.loads(cls.packed)
        error.__cause__ = WorkerError(message)
        return error


def _make(name: str, packed: bytes) -> Any:
    base = type(pickle.loads(packed))
    return _Carrier(name, (base,), {"packed": packed, "__module__": base.__module__})


copyreg.pickle(_Carrier, lambda cls: (_make, (cls.__name__, cls.packed)))


def for_loader(error: TFRecordError) -> TFRecordError:
    """`error` in the form that a DataLoader worker should raise; the same error outside a worker."""
    if torch.utils.data.get_worker_info() is None:
        return error
    kind = _make(type(error).__name__, pickle.dumps(error))
    carried: TFRecordError = kind.__new__(kind)
    carried.__dict__.update(error.__dict__)
    carried.args = error.args
    return carried
