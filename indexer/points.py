"""Points: places where a compressed file can be entered without decompressing what comes before.

A point is where a gzip member starts, or where a block of a deflate stream ends. From there zlib goes on if
it has the window, the 32 KiB of output before it. An extended index holds them in its section ``points``::

    u32       version, 1
    u32       CRC-32C of the table
    u64       number of points
    table     24 bytes for each point: `_TABLE`
    windows   one after another, each a zlib stream
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import IndexFileError
from .framing import crc32c
from .inflaters import WINDOW_SIZE

__all__ = ["SPACING", "Point", "PointBuilder", "Points", "PointsOfStream"]

SPACING = 1 << 20
"""About how many bytes of decompressed data lie between two points."""
_VERSION = 1
_PREFIX = struct.Struct("<IIQ")
# bit: where in the stored file. out: offset in the decompressed stream. window: bytes of the stored window.
# inside: 0 if a gzip member (or the zlib stream) starts here, 1 if it is inside a deflate stream.
_TABLE = np.dtype([("bit", "<u8"), ("out", "<u8"), ("window", "<u4"), ("inside", "<u4")])
_MOST_WINDOW = WINDOW_SIZE + 1024


class Point(NamedTuple):
    """One point: ``bit`` in the stored file, ``out`` in the decompressed stream, the window before it, and
    whether it is inside a deflate stream."""

    bit: int
    out: int
    window: bytes
    inside: bool


class Points:
    """The points of one file, ascending; the first is the start of the file. They are checked at first use.

    Errors are `IndexFileError`.
    """

    def __init__(
        self,
        stored: memoryview | bytes,
        stored_size: int,
        stream_size: int,
        *,
        before_read: Callable[[], object] = lambda: None,
        damaged: Callable[[str], IndexFileError] | None = None,
    ) -> None:
        self.stored = stored
        self._sizes = stored_size, stream_size
        self._before_read = before_read
        self._damaged = damaged or (lambda reason: IndexFileError(None, None, reason))
        self._table: Any = None
        self._ends: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        self._before_read()
        return Points, (bytes(self.stored), *self._sizes)

    def _load(self) -> None:
        self._before_read()
        try:
            self._table, self._ends = _checked(memoryview(self.stored), *self._sizes)
        except (ValueError, struct.error, OverflowError) as error:
            raise self._damaged(f"its points are damaged ({error})") from None

    @property
    def outs(self) -> npt.NDArray[np.uint64]:
        """Where the points are in the decompressed stream: uint64 (n,)."""
        if self._table is None:
            self._load()
        found: npt.NDArray[np.uint64] = self._table["out"]
        return found

    def __len__(self) -> int:
        return len(self.outs)

    def before(self, offset: int) -> int:
        """The number of the last point at or before an offset in the decompressed stream."""
        return int(np.searchsorted(self.outs, np.uint64(offset), side="right")) - 1

    def stored_end(self, number: int) -> int:
        """How many bytes of the stored file hold everything up to point ``number``."""
        if number >= len(self):
            return self._sizes[0]
        return -(-int(self._table["bit"][number]) // 8)

    def __getitem__(self, number: int) -> Point:
        if not 0 <= number < len(self):
            raise IndexError(number)
        bit, out, size, inside = self._table[number].tolist()
        window = b""
        if size:
            self._before_read()
            end = int(self._ends[number])
            inflater = zlib.decompressobj()
            try:
                window = inflater.decompress(memoryview(self.stored)[end - size : end], WINDOW_SIZE)
            except zlib.error as error:
                raise self._damaged(f"the window of its point {number} is damaged ({error})") from None
            if not inflater.eof or inflater.unused_data:
                raise self._damaged(f"the window of its point {number} is damaged (its size is wrong)")
        return Point(bit, out, window, bool(inside))

    def check_all(self) -> None:
        """Check every point and window."""
        for number in range(len(self)):
            self[number]


def _checked(stored: memoryview, stored_size: int, stream_size: int) -> tuple[Any, Any]:
    version, checksum, count = _PREFIX.unpack_from(stored)
    if version != _VERSION:
        raise ValueError(f"they have version {version}")
    if not 0 < count <= (len(stored) - _PREFIX.size) // _TABLE.itemsize:
        raise ValueError("their number does not fit")
    raw = bytes(stored[_PREFIX.size : _PREFIX.size + count * _TABLE.itemsize])
    if crc32c(raw) != checksum:
        raise ValueError("the checksum of their table does not match")
    table = np.frombuffer(raw, _TABLE)
    bits, outs, windows = table["bit"], table["out"], table["window"].astype(np.int64)
    if bits[0] or outs[0] or not _ascends(outs) or not _ascends(bits):
        raise ValueError("they do not ascend from the start")
    if not int(outs[-1]) <= stream_size < 1 << 63 or int(bits[-1]) > 8 * stored_size:
        raise ValueError("they are outside the data")
    starts = table["inside"] == 0
    if (table["inside"] > 1).any() or (starts & ((bits % 8 != 0) | (windows != 0))).any() or not starts[0]:
        raise ValueError("a start of a stream is not one")
    ends = len(stored) - int(windows.sum()) + np.cumsum(windows)
    if (windows > _MOST_WINDOW).any() or len(stored) - int(windows.sum()) != _PREFIX.size + len(raw):
        raise ValueError("their windows do not fit")
    return table, ends


def _ascends(array: Any) -> bool:
    return bool((array[1:] > array[:-1]).all())


class PointBuilder:
    """Collects the points of a file while it is decompressed, or written.

    They are about `SPACING` apart. Where they would take more than a tenth of the stored file and 1 MiB,
    they are thinned out.
    """

    def __init__(self, stored_size: int | None = None) -> None:
        self._most = None if stored_size is None else stored_size // 10 + (1 << 20)
        self._spacing = SPACING
        self._points: list[tuple[int, int, bytes, bool]] = []
        self._size = 0

    def distance(self, out: int, free: bool) -> int:
        """How many bytes after ``out`` the next point is wanted; 0 if it is far enough from the last one.

        One that is ``free``, because it needs no window, is wanted a little earlier than others.
        """
        apart = self._spacing // 2 if free else self._spacing
        return max(0, self._points[-1][1] + apart - out) if self._points else 0

    def add(self, bit: int, out: int, window: bytes = b"", *, inside: bool) -> None:
        """A point; see `Point`."""
        packed = zlib.compress(window) if window else b""
        self._points.append((bit, out, packed, inside))
        self._size += len(packed) + _TABLE.itemsize
        while self._most is not None and self._size > self._most and len(self._points) > 1:
            self._thin()

    def begin(self, bit: int, out: int) -> None:
        """A member begins here, which may be the first."""
        if not self._points:
            self.add(0, 0, inside=False)
        if not self.distance(out, True):
            self.add(bit, out, inside=False)

    def _thin(self) -> None:
        self._spacing *= 2
        kept = self._points[:1]
        for point in self._points[1:]:
            if point[1] - kept[-1][1] >= self._spacing:
                kept.append(point)
        self._points = kept
        self._size = sum(len(point[2]) + _TABLE.itemsize for point in kept)

    def finish(self, stored_size: int, stream_size: int) -> Points:
        """The points of the finished file."""
        points = self._points or [(0, 0, b"", False)]
        table = np.array([(bit, out, len(window), inside) for bit, out, window, inside in points], _TABLE)
        raw = table.tobytes()
        head = _PREFIX.pack(_VERSION, crc32c(raw), len(points))
        windows = [point[2] for point in points]
        return Points(b"".join((head, raw, *windows)), stored_size, stream_size)


class PointsOfStream(NamedTuple):
    """Takes the points of one member, which begins at these places."""

    points: PointBuilder
    bit: int
    out: int

    def distance(self, out: int, free: bool) -> int:
        """See `PointBuilder.distance`."""
        return self.points.distance(self.out + out, free)

    def add(self, bit: int, out: int, window: bytes) -> None:
        """A point inside the member; see `inflaters.Places`."""
        self.points.add(self.bit + bit, self.out + out, window, inside=True)
