"""Ranges of an object that are asked for before they are used."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.stores.pieces import NEAR, UInt64Array, join_ranges
from indexer.stores.ranges import Store

__all__ = ["Ahead", "Piece", "Pieces"]


class Piece:
    """A range that is being fetched. When nobody holds it, its request is cancelled if it has not begun."""

    __slots__ = ("_pid", "begin", "future", "stop")

    def __init__(self, begin: int, stop: int, future: Future[Any]) -> None:
        self.begin, self.stop, self.future = begin, stop, future
        self._pid = os.getpid()

    def bytes(self) -> memoryview:
        """Wait for the bytes. Raises what kept them from being read."""
        return memoryview(self.future.result()).cast("B").toreadonly()

    def __del__(self) -> None:
        if self._pid == os.getpid():  # in a forked child, a thread that does not exist may hold its lock
            self.future.cancel()


class Pieces:
    """The pieces that hold what one call asked for: new ones, and ones that existed already. They do not
    overlap. ``num_requests`` and ``num_bytes`` count the new ones."""

    def __init__(self, made: Sequence[Piece], used: Sequence[Piece]) -> None:
        self.num_requests = len(made)
        self.num_bytes = sum(piece.stop - piece.begin for piece in made)
        self.pieces = sorted([*made, *used], key=lambda piece: piece.begin)
        self.begins = np.array([piece.begin for piece in self.pieces], np.uint64)
        self._stops = np.array([piece.stop for piece in self.pieces], np.uint64)

    def holding(self, starts: UInt64Array, ends: UInt64Array) -> npt.NDArray[np.int64]:
        """Which piece holds each range, int64 ``(n,)``; -1 where none does."""
        if not self.pieces:
            return np.full(len(starts), -1)
        which = np.searchsorted(self.begins, starts, side="right").astype(np.int64) - 1
        which[ends > self._stops[which]] = -1  # before the first piece, this compares with the last
        return which


class Ahead:
    """What is being fetched ahead of one version of an object. Thread-safe.

    A request lives as long as somebody holds what `ask` returned, so an abandoned pass holds nothing.
    """

    def __init__(self) -> None:
        self._asked: list[weakref.ref[Pieces]] = []
        self._lock = threading.Lock()

    def ask(self, store: Store, key: str, starts: UInt64Array, ends: UInt64Array, etag: str | None) -> Pieces:
        """Start requests for what is not being fetched already. The caller holds the result until these
        ranges have been used."""
        with self._lock:
            found, which = self._find(starts, ends)
            used = [found[number] for number in np.unique(which[which >= 0]).tolist()]
            missing = (which < 0) & (ends > starts)
            walls = np.sort(np.array([piece.begin for piece in used], np.uint64))
            # What lies between is often asked for later (the rest of a block), so the gap is not the store's.
            begins, stops, _ = join_ranges(starts[missing], ends[missing], NEAR, walls)
            futures = store.submit(key, begins, stops, etag)
            made = list(map(Piece, begins.tolist(), stops.tolist(), futures))
            pieces = Pieces(made, used)
            self._asked.append(weakref.ref(pieces))
        return pieces

    def find(self, starts: UInt64Array, ends: UInt64Array) -> tuple[list[Piece], npt.NDArray[np.int64]]:
        """Pieces, and which of them holds each range: int64 ``(n,)``, -1 where none does."""
        with self._lock:
            return self._find(starts, ends)

    def _find(self, starts: UInt64Array, ends: UInt64Array) -> tuple[list[Piece], npt.NDArray[np.int64]]:
        which = np.full(len(starts), -1)
        found: list[Piece] = []
        self._asked = [one for one in self._asked if one() is not None]
        for one in self._asked:
            pieces, left = one(), np.flatnonzero(which < 0)
            if not len(left):
                break
            if pieces is not None:
                held = pieces.holding(starts[left], ends[left])
                which[left] = np.where(held < 0, -1, held + len(found))
                found += pieces.pieces
        return found, which
