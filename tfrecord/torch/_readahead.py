"""Hints to the system about which records come next, if they are not in memory yet."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

from indexer.errors import TFRecordError
from indexer.files import is_url
from indexer.framing import FRAME_OVERHEAD
from tfrecord.sampling.permutation import Int64Array

__all__ = ["Readahead"]

# Size of one hint in bytes, growing so that the first record need not wait for many, and in records. Two
# hints may be in flight.
_FIRST_BYTES, _PIECE_BYTES = 4 << 20, 32 << 20
_PIECE = 8192
_SAMPLE = 32

_mincore = getattr(ctypes.CDLL(None), "mincore", None) if os.name == "posix" else None


def _resident(buffer: memoryview, offsets: Int64Array) -> bool:
    """Whether the pages at all these places are in memory."""
    if _mincore is None or not len(buffer):
        return False
    base = np.frombuffer(buffer, np.uint8).ctypes.data
    flag = ctypes.create_string_buffer(1)
    for offset in offsets.tolist():
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
        # From a store whole groups of blocks are asked for (`BlockOrder`): the parts of one would overlap.
        self._bytes = _PIECE_BYTES if any(map(is_url, store.paths)) else _FIRST_BYTES

    def reach(self, position: int) -> None:
        """Reading continues up to this number of positions."""
        while self._told < len(self._positions) and position > self._next:
            # The piece before this one is being read; the rest of it and this piece are in flight.
            self._next = self._told
            self._told = self._tell(self._told)

    def _tell(self, begin: int) -> int:
        """Give a hint for a piece that starts at `begin`; returns where it ends."""
        store = self._store
        piece = self._positions[begin : begin + _PIECE]
        if self._in_memory(piece[:: max(1, len(piece) // _SAMPLE)]):
            return begin + len(piece)
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
            file = self._open(number) if len(here) else None
            if file is not None:
                file.advise(np.stack((offsets[here], lengths[here] + FRAME_OVERHEAD), axis=1))
        return begin + count

    def _in_memory(self, sample: Int64Array) -> bool:
        """Whether all these records are in memory, or in files for which no hints are given."""
        numbers, records = self._store.places(sample)
        for number in np.unique(numbers).tolist():
            file = self._open(number)
            if file is None:
                continue
            offsets = self._store.index(number).offsets[records[numbers == number]]
            if not file.mapped or not _resident(file.buffer(), offsets):
                return False
        return True

    def _open(self, number: int) -> Any:
        """An uncompressed file; None if it cannot be opened, which reading will then report."""
        try:
            return None if self._store.compression(number) else self._store.open(number)
        except (OSError, TFRecordError):
            return None
