"""Random access to an object behind a URL, by range requests."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .datafile import DataFile, Gathered
from .localfile import open_descriptor
from .stores import ObjectInfo, Store, Url, open_store
from .stores.ahead import Ahead
from .stores.pieces import UInt64Array

__all__ = ["RemoteFile", "open_remote"]


class RemoteFile(DataFile):
    """An object behind a URL, read by ranges. All reads get the version that it had when it was opened."""

    remote = True

    def __init__(self, url: Url, store: Store, info: ObjectInfo) -> None:
        super().__init__(url, info.size)
        self.etag = info.etag
        self.identity = None if info.etag is None else (0, zlib.crc32(info.etag.encode()))
        self._url, self._opened_by, self._place = url, os.getpid(), (store, info.key)
        self._ahead = Ahead()

    def _store(self) -> tuple[Store, str]:
        if self._opened_by != os.getpid():  # a forked child needs a store of its own
            self._place, self._opened_by = open_store(self._url), os.getpid()
            self._ahead = Ahead()
        return self._place

    def check_size(self) -> None:
        self._check_open()

    def reader(self, position: int = 0) -> Any:
        self._check_open()
        store, key = self._store()
        return store.stream(key, position, self.size, self.etag)

    def advise(self, ranges: Iterable[tuple[int, int]]) -> Any:
        self._check_open()
        table = np.asarray(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(
            -1, 2
        )
        starts = np.clip(table[:, 0], 0, self.size).astype(np.uint64)
        ends = np.clip(table[:, 0] + table[:, 1], 0, self.size).astype(np.uint64)
        store, key = self._store()  # in a forked child this also discards what the parent asked for
        return self._ahead.ask(store, key, starts, ends, self.etag)

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array, *, again: bool = False
    ) -> Callable[[], Gathered]:
        self._check_open()
        store, key = self._store()
        if again:
            return _whole(store.start_ranges(key, starts, ends, self.etag).result)
        found, which = self._ahead.find(starts, ends)
        rest = np.flatnonzero(which < 0)
        others = _whole(store.start_ranges(key, starts[rest], ends[rest], self.etag).result)
        if len(rest) == len(starts):
            return others
        numbers, ids = np.unique(which, return_inverse=True)
        # If some are not here, the first number is -1: the place of what is fetched now.
        pieces = [found[number] for number in numbers.tolist() if number >= 0]

        def wait() -> Gathered:
            parts = [piece.bytes() for piece in pieces]
            bases = np.array([piece.begin for piece in pieces], np.uint64)
            if not len(rest):
                return Gathered(tuple(parts), starts - bases[ids], ids.astype(np.int32))
            buffers, places, _ = others()
            begins = starts - np.concatenate((np.zeros(1, np.uint64), bases))[ids]
            begins[rest] = places
            return Gathered((*buffers, *parts), begins, ids.astype(np.int32))

        return wait

    def _read(self, offset: int, length: int) -> memoryview:
        edges = np.array([offset, offset + length], np.uint64)
        (buffer,), places, _ = self.start_gather(edges[:1], edges[1:])()
        return buffer[int(places[0]) : int(places[0]) + length]


def _whole(wait: Callable[[], tuple[memoryview, UInt64Array]]) -> Callable[[], Gathered]:
    def whole() -> Gathered:
        buffer, places = wait()
        return Gathered((buffer,), places)

    return whole


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
