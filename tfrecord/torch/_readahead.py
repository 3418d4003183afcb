"""Telling the system which records come next, where they are not in memory yet."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

from indexer.errors import TFRecordError
from tfrecord._permutation import Int64Array

__all__ = ["Readahead"]

# Told of at once: bytes, growing so that the first record need not wait for many, and records. Two such
# pieces may be on their way.
_FIRST_BYTES, _PIECE_BYTES = 4 << 20, 32 << 20
_PIECE = 8192
_SAMPLE = 32

_mincore = getattr(ctypes.CDLL(None), "mincore", None) if os.name == "posix" else None


def _resident(buffer: memoryview, offsets: Int64Array) -> bool:
    """Whether the pages at all these places (a sample of them) are in memory, so that no hint is needed."""
    if _mincore is None or not len(buffer):
        return False
    base = np.frombuffer(buffer, np.uint8).ctypes.data
    flag = ctypes.create_string_buffer(1)
    for offset in offsets[:: max(1, len(offsets) // _SAMPLE)].tolist():
        address = base + offset
        code = _mincore(ctypes.c_void_p(address - address % mmap.PAGESIZE), ctypes.c_size_t(1), flag)
        if code or not flag.raw[0] & 1:
            return False
    return True


class Readahead:
    """Hints for the records at `positions`, read in this order, a bounded number of bytes ahead."""

    def __init__(self, store: Any, positions: Int64Array) -> None:
        self._store, self._positions = store, positions
        self._told = self._next = 0
        self._bytes = _FIRST_BYTES

    def reach(self, position: int) -> None:
        """The reading goes on up to this number of positions."""
        while self._told < len(self._positions) and position > self._next:
            # The piece before this one is being read; what it left unread and this piece are on their way.
            self._next = self._told
            self._told = self._tell(self._told)

    def _tell(self, begin: int) -> int:
        """Tell of a piece from `begin` on; where it ends."""
        store = self._store
        piece = self._positions[begin : begin + _PIECE]
        numbers, places = store.places(piece)
        offsets, lengths = np.empty(len(piece), np.int64), np.empty(len(piece), np.int64)
        files = np.unique(numbers).tolist()
        for number in files:
            here = numbers == number
            index, records = store.index(number), places[here]
            offsets[here], lengths[here] = index.offsets[records], index.lengths[records]
        count = max(1, int(np.searchsorted(np.cumsum(lengths), self._bytes)))
        self._bytes = min(2 * self._bytes, _PIECE_BYTES)
        for number in files:
            here = np.flatnonzero(numbers[:count] == number)
            if len(here) and not store.compression(number):
                self._advise(number, offsets[here], lengths[here])
        return begin + count

    def _advise(self, number: int, offsets: Int64Array, lengths: Int64Array) -> None:
        try:
            file = self._store.open(number)
            if not (file.mapped and _resident(file.buffer(), offsets)):
                file.advise(np.stack((offsets, lengths), axis=1))
        except (OSError, TFRecordError):
            return  # the reading will say what is wrong
