"""Work on several threads, with results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from tfrecord._reading.locks import ForkSafeLock

__all__ = ["LEAST_BYTES", "in_turn"]

# Work on fewer bytes than this is not worth a thread.
LEAST_BYTES = 1 << 18
# The most threads that are started, and the most results that are kept.
_MOST_THREADS = 64

T = TypeVar("T")

# The pool of this process: its pid, its number of threads, and itself.
_pool: tuple[int, int, ThreadPoolExecutor] | None = None
_lock = ForkSafeLock()


def _pool_of(num_threads: int) -> ThreadPoolExecutor:
    """The one pool of this process, which is kept; a larger one replaces it when needed."""
    global _pool
    with _lock:
        if _pool is None or _pool[0] != os.getpid() or _pool[1] < num_threads:
            if _pool is not None and _pool[0] == os.getpid():
                _pool[2].shutdown(wait=False)
            _pool = os.getpid(), num_threads, ThreadPoolExecutor(num_threads, "tfrecord")
        return _pool[2]


def in_turn(calls: Iterator[tuple[int, Callable[[], T]]], num_threads: int) -> Iterator[T]:
    """The result of each call, in order; up to ``num_threads`` calls run at once, ahead of the consumer.

    Each call comes with the number of bytes that it works on. The first call, and small ones, run in the
    consumer's thread. An error that ``calls`` raises comes after the earlier results; an error that a call
    raises comes in place of its result.
    """
    num_threads = min(num_threads, _MOST_THREADS)
    waiting: deque[_Call[T]] = deque()
    failure: Exception | None = None
    wanted, more = 1, True
    try:
        while True:
            while more and len(waiting) < wanted:
                try:
                    size, call = next(calls)
                except StopIteration:
                    more = False
                except Exception as error:
                    more, failure = False, error
                else:
                    waiting.append(_Call(call, num_threads if wanted > 1 and size >= LEAST_BYTES else 0))
            if not waiting:
                break
            yield waiting.popleft().result()
            wanted = num_threads
    finally:
        for item in waiting:
            item.cancel()
    if failure is not None:
        raise failure


class _Call(Generic[T]):
    """A call that the pool runs or, with ``num_threads`` 0, that has not been started."""

    def __init__(self, call: Callable[[], T], num_threads: int) -> None:
        self._call = call
        self._pid = os.getpid()
        self._future: Future[T] | None = _submit(call, num_threads) if num_threads else None

    def result(self) -> T:
        if self._future is None or self._pid != os.getpid():  # the threads do not exist in a forked child
            return self._call()
        return self._future.result()

    def cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()


def _submit(call: Callable[[], T], num_threads: int) -> Future[T]:
    while True:
        pool = _pool_of(num_threads)
        try:
            return pool.submit(call)
        except RuntimeError:  # another thread replaced the pool by a larger one, or Python is exiting
            if _pool is not None and _pool[2] is pool:
                raise
