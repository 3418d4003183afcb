"""The interface of every store, whatever library moves its bytes: ranges, streams, lists, conditional puts.

A store is one bucket, container or host; a key names an object in it. `Store` has the common part: it merges
ranges that are close to each other, runs requests in parallel within one limit for the process, and retries
after transient failures. A subclass makes single requests.
"""

from __future__ import annotations

import fnmatch
import os
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from indexer.errors import RemoteError, StaleIndexError
from indexer.stores.costs import RequestCosts
from indexer.stores.options import StoreOptions, clean_url
from indexer.stores.pieces import PendingRanges, UInt64Array, join_ranges

__all__ = [
    "Changed",
    "ObjectInfo",
    "Passing",
    "Store",
    "side_by_side",
]

Item = TypeVar("Item")
Result = TypeVar("Result")

_PART = 8 << 20
_PARTS_AHEAD = 3
_STEPS_AT_ONCE = 32
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


class ObjectInfo(NamedTuple):
    """One object: its key, size in bytes, ETag (None if the store has none) and modification time."""

    key: str
    size: int
    etag: str | None
    mtime_ns: int | None


class Passing(Exception):
    """A transient failure: a timeout, a 5xx, a reset, a short body. `Store` retries."""


class Changed(Exception):
    """The object does not have the ETag that was asked for."""


class Store(ABC):
    """The objects under one root, such as ``s3://bucket``. Thread-safe; a forked child needs its own."""

    def __init__(self, root: str, options: StoreOptions, tail: str = "") -> None:
        self.root = root
        self.options = options
        self.tail = tail
        self._costs = RequestCosts()

    @property
    def gap(self) -> int:
        """Ranges of one batch that lie at most this many bytes apart become one request."""
        return self._costs.gap

    def url(self, key: str) -> str:
        """The URL of an object, without credentials."""
        return clean_url(f"{self.root}/{key}{self.tail}")

    # ---- single requests: the subclass's part ----------------------------------------------------------

    @abstractmethod
    def _get(self, key: str, start: int, end: int, etag: str | None) -> Any:
        """Bytes ``start`` to ``end`` of an object, as a buffer of exactly that length.

        Raises `Passing`, `Changed`, or a permanent error: FileNotFoundError, PermissionError, RemoteError.
        """

    @abstractmethod
    def _stat(self, key: str) -> ObjectInfo: ...

    @abstractmethod
    def _list(self, folder: str) -> list[ObjectInfo]:
        """The objects directly in a folder (``""`` or a key that ends in ``/``)."""

    @abstractmethod
    def _folders(self, folder: str) -> list[str]:
        """The names of the folders directly in a folder."""

    @abstractmethod
    def _put(self, key: str, data: Any, if_match: str | None, if_absent: bool) -> str | None: ...

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""

    @abstractmethod
    def _upload(self, key: str, file: BinaryIO) -> None:
        """Write an object from the whole content of a file, completely or not at all."""

    # ---- what callers use --------------------------------------------------------------------------------

    def stat(self, key: str) -> ObjectInfo:
        """Size, ETag and modification time of an object; one request. FileNotFoundError if there is none."""
        return self._retry(lambda: self._stat(key), key, "asking for its size")

    def exists(self, key: str) -> bool:
        """Whether the object exists; one request."""
        try:
            self.stat(key)
        except (FileNotFoundError, IsADirectoryError):
            return False
        return True

    def list(self, pattern: str) -> list[ObjectInfo]:
        """The objects that match a pattern, sorted by key.

        A folder (``""`` or a key that ends in ``/``) matches the objects directly in it. Otherwise `*`, `?`
        and `[...]` match within the last part of the key.
        """
        folder, _, name = pattern.rpartition("/")
        folder += "/" if folder else ""
        self._check_lists(folder)
        found = self._retry(lambda: self._list(folder), folder, "listing")
        if name:
            matches = re.compile(fnmatch.translate(name)).match
            found = [info for info in found if matches(info.key[len(folder) :])]
        return sorted(found, key=lambda info: info.key)

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders directly in a folder (``""`` or ending in ``/``), sorted."""
        self._check_lists(folder)
        return sorted(self._retry(lambda: self._folders(folder), folder, "listing"))

    def _check_lists(self, folder: str) -> None:
        if self.root.startswith(("http://", "https://")):
            raise ValueError(f"{self.url(folder)}: http and https cannot list; name each file")

    def put(self, key: str, data: Any, *, if_match: str | None = None, if_absent: bool = False) -> str | None:
        """Write an object and return its ETag; with a condition, only if that holds.

        Raises:
            FileExistsError: ``if_absent`` was given and the object exists.
            StaleIndexError: ``if_match`` was given and the object has another ETag now.
        """
        try:
            return self._retry(lambda: self._put(key, data, if_match, if_absent), key, "writing")
        except Changed:
            raise StaleIndexError(self.url(key), None, "the object changed before it was replaced") from None

    def upload(self, key: str, file: BinaryIO) -> None:
        """Write an object from the whole content of a file, completely or not at all."""
        self._retry(lambda: self._upload(key, file), key, "writing")

    def fetch_ranges(
        self, key: str, starts: UInt64Array, ends: UInt64Array, etag: str | None = None
    ) -> tuple[memoryview, UInt64Array]:
        """Many ranges of one object in one buffer: (buffer, where each range begins in it, uint64 ``(n,)``).

        No byte is fetched twice. The caller owns the buffer. With ``etag``, all ranges are of that version.

        Raises:
            StaleIndexError: the object changed.
            RemoteError: a range could not be read, after all retries; it names the URL and the range.
        """
        return self.start_ranges(key, starts, ends, etag).result()

    def start_ranges(
        self, key: str, starts: UInt64Array, ends: UInt64Array, etag: str | None = None
    ) -> PendingRanges:
        """`fetch_ranges` in the background; ``result()`` of the returned object waits for it."""
        begins, stops, which = join_ranges(starts, ends, self.gap)
        futures = self.submit(key, begins, stops, etag)
        sizes = stops - begins
        bases = np.cumsum(sizes, dtype=np.uint64) - sizes
        return PendingRanges(futures, starts - begins[which] + bases[which])

    def submit(
        self, key: str, begins: UInt64Array, stops: UInt64Array, etag: str | None
    ) -> Sequence[Future[Any]]:
        """Start one request for each of these ranges, in this order."""
        pool = _pool(self.options.io_concurrency)
        pairs = zip(begins.tolist(), stops.tolist(), strict=True)
        return [pool.submit(self._fetch, key, start, end, etag) for start, end in pairs]

    def stream(self, key: str, start: int = 0, end: int | None = None, etag: str | None = None) -> Stream:
        """A binary file object that reads an object forward in parts of 8 MiB, a few parts ahead."""
        info = self.stat(key) if end is None else None
        return Stream(self, key, start, info.size if info else int(end or 0), info.etag if info else etag)

    def _fetch(self, key: str, start: int, end: int, etag: str | None) -> Any:
        if end <= start:
            return b""
        try:
            return self._retry(
                lambda: self._timed_get(key, start, end, etag), key, f"reading bytes {start} to {end}"
            )
        except Changed:
            raise StaleIndexError(self.url(key), None, "the object changed while it was read") from None

    def _timed_get(self, key: str, start: int, end: int, etag: str | None) -> Any:
        began = time.monotonic()
        data = self._get(key, start, end, etag)
        self._costs.add(end - start, time.monotonic() - began)
        return data

    def _retry(self, call: Callable[[], Result], key: str, what: str) -> Result:
        """``call()``, retried after transient failures with growing pauses, then RemoteError."""
        pause = _FIRST_PAUSE
        for left in range(self.options.max_retries, -1, -1):
            try:
                return call()
            except Passing as error:
                if not left:
                    tries = self.options.max_retries + 1
                    text = self.options.redact(f"{what} failed {tries} times; last error: {error}")
                    raise RemoteError(self.url(key), text) from None
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AssertionError("unreachable")


class Stream:
    """Reads an object forward, like a binary file; made by `Store.stream`."""

    def __init__(self, store: Store, key: str, start: int, end: int, etag: str | None) -> None:
        self.name = store.url(key)
        self.position = start
        self.closed = False
        self._store, self._key, self._end, self._etag = store, key, end, etag
        self._asked = start
        self._parts: deque[Future[Any]] = deque()
        self._part = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end; all the rest if it is negative."""
        pieces = []
        wanted = self._end - self.position if size < 0 else size
        while wanted > 0 and (piece := self.read_some(wanted)).nbytes:
            pieces.append(piece)
            wanted -= piece.nbytes
        return b"".join(pieces)

    def read_some(self, size: int) -> memoryview:
        """At least one byte and at most ``size``, without a copy; nothing at the end."""
        if not self._part.nbytes:
            self._fill()
        piece, self._part = self._part[:size], self._part[size:]
        self.position += piece.nbytes
        return piece

    def again(self, start: int, end: int) -> bytes:
        """Bytes ``start`` to ``end`` once more: they may have been damaged on their way."""
        return bytes(self._store._fetch(self._key, start, min(end, self._end), self._etag))

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        piece = self.read_some(view.nbytes)
        view[: piece.nbytes] = piece
        return piece.nbytes

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
        for part in self._parts:
            part.cancel()
        self._parts.clear()
        self._part = memoryview(b"")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _fill(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        pool = _pool(self._store.options.io_concurrency)
        while self._asked < self._end and len(self._parts) <= _PARTS_AHEAD:
            stop = min(self._asked + _PART, self._end)
            self._parts.append(pool.submit(self._store._fetch, self._key, self._asked, stop, self._etag))
            self._asked = stop
        if self._parts:
            self._part = memoryview(self._parts.popleft().result()).cast("B")


def side_by_side(
    call: Callable[[Item], Result], items: Sequence[Item], most: int = _STEPS_AT_ONCE
) -> list[Result]:
    """``call`` for each item, many at once, for steps that wait for a store. Raises the first failure."""
    if len(items) < 2:
        return [call(item) for item in items]
    # Separate threads, because the calls wait for the pool of requests.
    with ThreadPoolExecutor(min(len(items), most)) as pool:
        return list(pool.map(call, items))


_lock = threading.Lock()
_pools: dict[str, Any] = {"pid": 0, "size": 0, "pool": None}


def _pool(size: int) -> ThreadPoolExecutor:
    """The process's pool of requests, as large as the largest asked for. A forked child gets a new one."""
    if _pools["pid"] != os.getpid() or _pools["size"] < size:
        with _lock:
            if _pools["pid"] != os.getpid():
                _pools.update(pid=os.getpid(), size=0, pool=None)
            if _pools["size"] < size:
                _pools["pool"] = ThreadPoolExecutor(size, thread_name_prefix="tfrecord-io")
                _pools["size"] = size
    pool: ThreadPoolExecutor = _pools["pool"]
    return pool


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
