"""Which records come next: hints to the system, and requests to stores."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.errors import TFRecordError
from indexer.files import DataFile, is_url
from indexer.framing import FRAME_OVERHEAD
from indexer.stores import Url
from indexer.stores.pieces import NEAR
from tfrecord.sampling.permutation import Int64Array

__all__ = ["Later", "Readahead"]

# Size of one hint in bytes, growing so that the first record need not wait for many, and in records. Two
# hints may be in flight.
_FIRST_BYTES, _PIECE_BYTES = 4 << 20, 32 << 20
_PIECE = 8192
_SAMPLE = 32
# This many requests to stores are kept in flight, unless they are for more bytes or records than this.
_MOST_REQUESTS = 32
_MOST_AHEAD = 64 << 20
_MOST_RECORDS = 1 << 17

Later = Callable[[int], Int64Array]

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
    """What one pass reads next: hints for local files, and requests for objects behind URLs.

    `store` is a `RecordStore`; `count`: how many records behind URLs to request ahead. None keeps 32 requests
    in flight.
    """

    def __init__(self, store: Any, count: int | None = None) -> None:
        urls = [is_url(path) for path in store.paths if store.has_files]
        hints = store.has_files and not (urls and all(urls) and not _cached(store))
        self._hints = _Hints(store) if hints else None
        self._requests = _Requests(store, count) if any(urls) else None

    def window(self, positions: Int64Array, later: Later | None = None) -> None:
        """The next records are those at `positions`, in this order. `later` gives those of the n-th window
        after this one, none if there is none."""
        if self._hints is not None:
            self._hints.window(positions)
        if self._requests is not None:
            self._requests.window(positions, later)

    def reach(self, position: int) -> None:
        """Reading continues up to this number of positions of the window."""
        if self._hints is not None:
            self._hints.reach(position)
        if self._requests is not None:
            self._requests.reach(position)


def _cached(store: Any) -> bool:
    return any(isinstance(path, Url) and path.options.cache is not None for path in store.paths)


def _open(store: Any, number: int, *, remote: bool) -> DataFile | None:
    """An uncompressed file, if it is remote (or local) as asked; None also if it cannot be opened: reading
    reports that."""
    try:
        file: DataFile | None = None if store.compression(number) else store.open(number)
    except (OSError, TFRecordError):
        return None
    return None if file is None or file.remote != remote else file


def _files(store: Any, positions: Int64Array) -> list[int]:
    """The numbers of the files that hold these records."""
    found: list[int] = np.unique(store.places(positions)[0]).tolist()
    return found


def _frames(store: Any, positions: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """File number, offset and size of the frame of each record."""
    numbers, records = store.places(positions)
    offsets, lengths = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
    for number in np.unique(numbers).tolist():
        here = numbers == number
        index = store.index(number)
        offsets[here], lengths[here] = index.offsets[records[here]], index.lengths[records[here]]
    return numbers, offsets, lengths + FRAME_OVERHEAD


def _advise(
    store: Any, numbers: Int64Array, offsets: Int64Array, sizes: Int64Array, *, remote: bool
) -> list[Any]:
    """Tell each remote (or local) file which parts will be read; returns what they answer."""
    found = []
    for number in np.unique(numbers).tolist():
        file = _open(store, number, remote=remote)
        if file is not None:
            here = np.flatnonzero(numbers == number)
            found.append(file.advise(np.stack((offsets[here], sizes[here]), axis=1)))
    return found


class _Hints:
    """Hints for the records of a window in local files, a bounded number of bytes ahead."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.window(np.zeros(0, np.int64))

    def window(self, positions: Int64Array) -> None:
        self._positions = positions
        self._told = self._next = 0
        self._bytes = _FIRST_BYTES

    def reach(self, position: int) -> None:
        while self._told < len(self._positions) and position > self._next:
            # The piece before this one is being read; the rest of it and this piece are in flight.
            self._next = self._told
            self._told = self._tell(self._told)

    def _tell(self, begin: int) -> int:
        """Give a hint for a piece that starts at `begin`; returns where it ends."""
        piece = self._positions[begin : begin + _PIECE]
        if self._in_memory(piece[:: max(1, len(piece) // _SAMPLE)]):
            return begin + len(piece)
        numbers, offsets, sizes = _frames(self._store, piece)
        count = max(1, int(np.searchsorted(np.cumsum(sizes), self._bytes)))
        self._bytes = min(2 * self._bytes, _PIECE_BYTES)
        _advise(self._store, numbers[:count], offsets[:count], sizes[:count], remote=False)
        return begin + count

    def _in_memory(self, sample: Int64Array) -> bool:
        """Whether all these records are in memory, or in files for which no hints are given."""
        numbers, records = self._store.places(sample)
        for number in np.unique(numbers).tolist():
            file = _open(self._store, number, remote=False)
            if file is None:
                continue
            offsets = self._store.index(number).offsets[records[numbers == number]]
            if not file.mapped or not _resident(file.buffer(), offsets):
                return False
        return True


class _Asked(NamedTuple):
    """Records that were requested: where they begin and end, and what holds their bytes."""

    begin: int
    end: int
    held: list[Any]

    @property
    def num_requests(self) -> int:
        return sum(one.num_requests for one in self.held)

    @property
    def num_bytes(self) -> int:
        return sum(one.num_bytes for one in self.held)


class _Requests:
    """Requests for the records of this window and the next ones behind URLs.

    Places count from the beginning of the window that is being read.
    """

    def __init__(self, store: Any, count: int | None) -> None:
        self._store, self._count = store, count
        self._windows: deque[Int64Array] = deque()  # those whose positions are known; this one is the first
        self._asked: deque[_Asked] = deque()
        self._told = self._done = 0
        self._later: Later | None = None

    def window(self, positions: Int64Array, later: Later | None) -> None:
        before = len(self._windows.popleft()) if self._windows else 0
        if self._windows and np.array_equal(self._windows[0], positions):
            self._told -= before
            self._asked = deque(
                _Asked(one.begin - before, one.end - before, one.held)
                for one in self._asked
                if one.end > before
            )
        else:
            self._windows, self._asked, self._told = deque([positions]), deque(), 0
        self._later, self._done = later, 0

    def reach(self, position: int) -> None:
        while self._asked and self._asked[0].end <= self._done:
            self._asked.popleft()  # the bytes of what was read are not kept
        self._done = position
        while self._told < position or self._room(position):
            if not self._tell():
                return

    def _room(self, position: int) -> bool:
        """Whether to request more than has been requested beyond `position`."""
        if self._count is not None:
            return self._told < position + self._count
        ahead = [one for one in self._asked if one.begin >= position]
        return (
            sum(one.num_requests for one in ahead) < _MOST_REQUESTS
            and sum(one.num_bytes for one in ahead) < _MOST_AHEAD
            and self._told < position + _MOST_RECORDS
        )

    def _tell(self) -> bool:
        """Ask for the next records; False if there are no more."""
        at, number = self._told, 0
        while (window := self._window(number)) is not None and at >= len(window):
            at, number = at - len(window), number + 1
        if window is None:
            return False
        most = _PIECE if self._count is None else max(1, self._done + self._count - self._told)
        positions = window[at : at + most]
        if not any(_open(self._store, file, remote=True) for file in _files(self._store, positions)):
            self._told += len(positions)  # the cache has them
            return True
        frames = _frames(self._store, positions)
        count = max(1, int(np.searchsorted(np.cumsum(frames[2]), _PIECE_BYTES)))
        numbers, offsets, sizes = (part[:count] for part in frames)
        if self._count is None:
            following = window[at + count : at + count + _PIECE]
            if len(following) < _PIECE and (after := self._window(number + 1)) is not None:
                following = np.concatenate((following, after[: _PIECE - len(following)]))
            others = _frames(self._store, following)
            near = _near(numbers, offsets, sizes, *others)
            numbers, offsets, sizes = (
                np.concatenate((own, other[near]))
                for own, other in zip((numbers, offsets, sizes), others, strict=True)
            )
        held = _advise(self._store, numbers, offsets, sizes, remote=True)
        self._asked.append(_Asked(self._told, self._told + count, held))
        self._told += count
        return True

    def _window(self, number: int) -> Int64Array | None:
        """The positions of a window, counted from the one that is being read; None after the last."""
        if number == len(self._windows):
            found = np.zeros(0, np.int64) if self._later is None else self._later(number)
            if len(found):
                self._windows.append(found)
        return self._windows[number] if number < len(self._windows) else None


def _near(
    numbers: Int64Array,
    offsets: Int64Array,
    sizes: Int64Array,
    other_numbers: Int64Array,
    other_offsets: Int64Array,
    other_sizes: Int64Array,
) -> npt.NDArray[np.bool_]:
    """Which of the other frames are near enough to one of these to share its request: the rest of a block
    that has begun."""
    near = np.zeros(len(other_numbers), np.bool_)
    for number in np.unique(numbers).tolist():
        here, there = numbers == number, other_numbers == number
        order = np.argsort(offsets[here])
        starts = offsets[here][order]
        ends = starts + sizes[here][order]
        begin, end = other_offsets[there], other_offsets[there] + other_sizes[there]
        after = np.searchsorted(starts, begin)
        follows = (after > 0) & (begin - ends[np.maximum(after - 1, 0)] <= NEAR)
        leads = (after < len(starts)) & (starts[np.minimum(after, len(starts) - 1)] - end <= NEAR)
        near[there] = follows | leads
    return near
