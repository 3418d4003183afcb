"""Random access to an object behind a URL, by range requests."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .datafile import DataFile
from .localfile import open_descriptor
from .stores import ObjectInfo, Store, Url, open_store
from .stores.pieces import Pieces, UInt64Array

__all__ = ["RemoteFile", "open_remote"]


class RemoteFile(DataFile):
    """An object behind a URL, read by ranges. All reads get the version that it had when it was opened."""

    remote = True

    def __init__(self, url: Url, store: Store, info: ObjectInfo) -> None:
        super().__init__(url, info.size)
        self.etag = info.etag
        self.identity = None if info.etag is None else (0, zlib.crc32(info.etag.encode()))
        self._url, self._opened_by, self._place = url, os.getpid(), (store, info.key)
        # Read ahead: the piece that is being consumed, and the next one.
        self._ahead: deque[Pieces] = deque(maxlen=2)

    def _store(self) -> tuple[Store, str]:
        if self._opened_by != os.getpid():  # a forked child needs a store of its own
            self._place, self._opened_by = open_store(self._url), os.getpid()
            self._ahead.clear()
        return self._place

    def check_size(self) -> None:
        self._check_open()

    def reader(self, position: int = 0) -> Any:
        self._check_open()
        store, key = self._store()
        return store.stream(key, position, self.size, self.etag)

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._check_open()
        table = np.asarray(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(
            -1, 2
        )
        starts = np.clip(table[:, 0], 0, self.size).astype(np.uint64)
        ends = np.clip(table[:, 0] + table[:, 1], 0, self.size).astype(np.uint64)
        store, key = self._store()
        self._ahead.append(store.start_pieces(key, starts, ends, self.etag))

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array
    ) -> Callable[[], tuple[memoryview, UInt64Array]]:
        self._check_open()
        for pieces in self._ahead:
            found = pieces.inside(starts, ends)
            if found is not None:
                return found
        store, key = self._store()
        return store.start_ranges(key, starts, ends, self.etag).result

    def gather(self, starts: UInt64Array, ends: UInt64Array) -> tuple[memoryview, UInt64Array]:
        return self.start_gather(starts, ends)()

    def _read(self, offset: int, length: int) -> memoryview:
        edges = np.array([offset, offset + length], np.uint64)
        return self.gather(edges[:1], edges[1:])[0]


def open_remote(url: str, mmap: bool) -> DataFile:
    known = url if isinstance(url, Url) else Url(url)
    store, key = open_store(known)
    info = store.stat(key)
    if known.options.cache is not None and info.size:
        from .stores.cache import Cache

        descriptor = Cache(known.options).get(store, info)
        if descriptor is not None:
            data = open_descriptor(known, descriptor, mmap)
            data.etag, data.mtime_ns = info.etag, None
            return data
    return RemoteFile(known, store, info)
