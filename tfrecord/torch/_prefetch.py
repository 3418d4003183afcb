"""Items prepared in a background thread while the caller works on the ones before them."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from indexer.options import CallerPlace, caller_place, calls_from

__all__ = ["Prefetched"]

T = TypeVar("T")

_running: weakref.WeakSet[Prefetched[Any]] = weakref.WeakSet()


class Prefetched(Generic[T]):
    """The items of an iterator, up to `depth` of them prepared ahead by its own thread.

    An error of the iterator is raised after the items before it. The thread holds no reference to this
    object; it ends after the last item, at `close`, and when this object is deleted.
    """

    def __init__(self, items: Iterator[T], depth: int) -> None:
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(
            target=_fill,
            args=(items, self._results, self._room, self._stop, caller_place()),
            name="tfrecord-prefetch",
            daemon=True,
        )
        self._ended = False
        self._thread.start()
        _running.add(self)

    def __iter__(self) -> Prefetched[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        if self._pid != os.getpid():
            raise RuntimeError("this pass began before the process forked: start a new one here")
        item, failure = self._results.get()
        if failure is not None:
            self._ended = True
            try:
                raise failure
            finally:
                del (
                    failure
                )  # its traceback holds this frame: the cycle would keep alive what the caller drops
        self._room.release()
        found: T = item
        return found

    def close(self) -> None:
        """End the thread and wait for it, at most until its current item is done."""
        self._ended = True
        self.stop()
        if self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Let the thread end, without waiting for it."""
        self._stop.set()
        self._room.release()

    def __del__(self) -> None:
        self.stop()


def _fill(
    items: Iterator[Any],
    results: SimpleQueue[Any],
    room: threading.Semaphore,
    stop: threading.Event,
    place: CallerPlace | None,
) -> None:
    calls_from(place)
    try:
        while True:
            room.acquire()
            if stop.is_set():
                return
            results.put((next(items), None))
    except BaseException as error:  # StopIteration too; the caller gets it in place of its item
        results.put((None, error))
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


@atexit.register
def _close_all() -> None:
    """End all threads: one that runs while the interpreter shuts down may crash it."""
    for prefetched in list(_running):
        prefetched.close()
