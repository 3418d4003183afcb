"""Compressed and plain streams, read forward in constant memory.

The whole stream is compressed, with the records inside: GZIP (any number of members; zeros may follow the
last one), ZLIB (exactly one stream) or ZSTD (any number of frames). TensorFlow silently accepts most
truncated streams; here a stream that does not reach its proper end is an error.
"""

from __future__ import annotations

import os
import zlib
from typing import Any, NamedTuple

from .compression import HEAD_SIZE, detect, is_frame, normalize_compression
from .errors import CompressionError
from .files import local_path, open_data, path_name
from .framing import HEADER_SIZE
from .inflaters import (
    RAW,
    WINDOW_BITS,
    BadStreamError,
    BlockInflater,
    FastInflater,
    FastInflaterError,
    Inflater,
    ZlibInflater,
    fast_zlib,
    shifted,
)
from .points import Point, PointBuilder, PointsOfStream
from .sniffing import sniff
from .zstd import ZstdInflater, begins_frame

__all__ = ["InputStream", "open_stream"]

# From a pipe as little as possible, so that what is there comes at once.
_READ_SIZE, _FILE_READ_SIZE = 64 << 10, 256 << 10
# An inflater gets little at first, because it copies what follows the end of its stream.
_FIRST_STEP = 512


class _Begun(NamedTuple):
    """Where a stream began: stored bytes before it, and position in the output. What it needs: its kind
    (``wbits``), the window, and how many bits of its first byte do not belong to it."""

    at: int
    position: int
    bits: int
    window: bytes
    shift: int


class InputStream:
    """A source of bytes, read forward and decompressed on the way; made by `open_stream`.

    Attributes: ``path`` (text for messages), ``compression`` (``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``,
    known once the first bytes were read), ``head`` (the first stored bytes), ``position`` (offset of the next
    byte in the decompressed stream). Errors of the stream are `CompressionError`; memory is bounded, whatever
    the compression ratio.

    ``point``: ``file`` is at this point of a compressed stream, and its content from there on is given.
    ``points``: collects the points of the stream.
    """

    def __init__(
        self,
        file: Any,
        path: str,
        compression_type: str | None,
        *,
        owned: bool,
        point: Point | None = None,
        points: PointBuilder | None = None,
    ) -> None:
        self.path = path
        self.position = 0 if point is None else point.out
        self.head = b""
        self._file = file
        self._owned = owned
        self._wanted = normalize_compression(compression_type)
        self._compression: str | None = None
        self._point, self._points = point, points
        self._stored = b""  # the last piece that was read
        self._at = 0  # so much of it is used
        self._step = _FIRST_STEP
        self._inflater: Inflater | None = None
        self._begun: _Begun | None = None
        self._read = 0  # stored bytes
        self._base = _position(file)
        self._fast = self._base is not None and fast_zlib() is not None and points is None
        self._streams = 0  # gzip members or zlib streams begun
        self._ended = False

    @property
    def compression(self) -> str:
        self._start()
        assert self._compression is not None
        return self._compression

    def _start(self) -> None:
        if self._compression is not None:
            return
        if self._point is not None:
            self._compression = self._wanted
            self._enter(self._point)
            return
        self._have(HEADER_SIZE)
        self.head = self._stored[:HEAD_SIZE]
        self._compression = (detect(self.head) or "") if self._wanted == "auto" else self._wanted

    def _enter(self, point: Point) -> None:
        """Go on inside a deflate stream."""
        if not point.inside:
            return
        self._streams = 1
        if not self._have(1):
            raise self._truncated()
        self._begin(RAW, point.window, point.bit % 8)

    def _read_stored(self, size: int) -> bytes:
        piece = self._file.read(size)
        if piece is None:
            raise BlockingIOError(f"{self.path}: the stream is not ready; only blocking streams can be read")
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"{self.path}: reading gave {type(piece).__name__}, not bytes; open it in binary mode"
            )
        self._read += len(piece)
        return bytes(piece)

    def _have(self, count: int) -> bool:
        """Read ahead until ``count`` stored bytes are there; False if there are fewer."""
        while len(self._stored) - self._at < count:
            piece = self._read_stored(_READ_SIZE if self._base is None else _FILE_READ_SIZE)
            if not piece:
                return False
            self._stored, self._at = self._stored[self._at :] + piece, 0
        return True

    def _next_piece(self) -> bytes:
        """Stored bytes for the inflater; nothing at the end."""
        self._have(1)
        piece = self._stored[self._at : self._at + self._step]
        self._at += len(piece)
        self._step = min(2 * self._step, _FILE_READ_SIZE)
        return piece

    def read_some(self, size: int) -> bytes:
        """At least one byte and at most ``size``, as soon as available; ``b""`` only at the end."""
        self._start()
        if self._compression:
            piece = self._inflate(size)
        elif self._at < len(self._stored):
            piece = self._stored[self._at : self._at + size]
            self._at += len(piece)
        else:
            piece = self._read_stored(size)
        self.position += len(piece)
        return piece

    def again(self, start: int, end: int) -> bytes | None:
        """Bytes of plain data once more, if they come from a store; else None."""
        again = getattr(self._file, "again", None)
        return None if again is None or self.compression else again(start, end)

    def read(self, size: int = -1) -> bytes:
        """Exactly ``size`` bytes, fewer only at the end; all the rest with -1."""
        parts = []
        left = size if size >= 0 else 1 << 62
        while left:
            piece = self.read_some(min(left, 1 << 20))
            if not piece:
                break
            parts.append(piece)
            left -= len(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def skip(self, count: int) -> int:
        """Read ``count`` bytes and discard them; returns how many there were, fewer only at the end."""
        left = count
        while left and (piece := self.read_some(min(left, 1 << 20))):
            left -= len(piece)
        return count - left

    def _inflate(self, limit: int) -> bytes:
        while not self._ended:
            if self._inflater is None:
                if self._have(1):
                    self._next_stream()
                else:
                    self._ended = True
                continue
            try:
                data = self._inflater.read(limit)
            except FastInflaterError:
                self._begin_again()
                continue
            except BadStreamError as error:
                raise self._error("bad_stream", str(error)) from None
            if data:
                return data
            if self._inflater.eof:
                self._at -= len(self._inflater.unused)
                self._inflater = None
                if self._point is not None and self._point.inside and self._streams == 1:
                    self._pass_trailer()
                continue
            piece = self._next_piece()
            if piece:
                self._inflater.feed(piece)
            elif isinstance(self._inflater, FastInflater):
                self._begin_again()  # it may hold back the last bytes before a cut
            else:
                raise self._truncated()
        return b""

    def _next_stream(self) -> None:
        """Begin the stream that starts here, or check that only zeros follow."""
        if self._compression == "zstd":
            self._have(4)
            if self._streams and not begins_frame(self._stored[self._at : self._at + 4]):
                raise self._error("trailing_garbage", "")
            self._streams += 1
            self._begin(0)
            return
        gzip = self._compression == "gzip"
        if self._streams:
            self._have(2)
            if not gzip or self._stored[self._at : self._at + 2] != b"\x1f\x8b":
                while gzip and self._have(1) and not self._stored[self._at :].strip(b"\0"):
                    self._at = len(self._stored)
                if self._have(1):
                    raise self._error("trailing_garbage", "")
                self._ended = True
                return
        self._streams += 1
        self._begin(WINDOW_BITS["gzip" if gzip else "zlib"])

    def _begin(self, bits: int, window: bytes = b"", shift: int = 0) -> None:
        """Begin to decompress the stream that starts here."""
        at = self._read - len(self._stored) + self._at
        self._begun = _Begun(at, self.position, bits, window, shift)
        if self._compression == "zstd":
            self._inflater = ZstdInflater()
        elif self._points is not None:
            self._inflater = self._finding_points(at, bits, self._points)
        else:
            fast = self._fast
            if fast and bits > zlib.MAX_WBITS:
                self._have(_FIRST_STEP)
                fast = _has_plain_header(self._stored[self._at : self._at + _FIRST_STEP])
            self._inflater = FastInflater(bits, window) if fast else ZlibInflater(bits, window)
        self._step = _FIRST_STEP
        self._inflater.feed(shifted(self._next_piece(), shift))

    def _finding_points(self, at: int, bits: int, points: PointBuilder) -> Inflater:
        points.begin(8 * at, self.position)
        return BlockInflater(bits, PointsOfStream(points, 8 * at, self.position))

    def _begin_again(self) -> None:
        """Decompress the current stream from its start again, up to here, with zlib: it gives all output
        before damage, and its own errors."""
        assert self._base is not None and self._begun is not None
        at, position, bits, window, shift = self._begun
        self._fast = False
        self._file.seek(self._base + at)
        self._read, self._stored, self._at = at, b"", 0
        self._inflater = ZlibInflater(bits, window)
        self._inflater.feed(shifted(self._next_piece(), shift))
        left = self.position - position
        while left:
            try:
                piece = self._inflater.read(min(left, 1 << 20))
            except BadStreamError as error:
                raise self._error("bad_stream", str(error)) from None
            left -= len(piece)
            if not piece:
                stored = self._next_piece()
                if not stored:
                    raise self._truncated()
                self._inflater.feed(stored)

    def _pass_trailer(self) -> None:
        """Behind a stream that was entered in the middle, the checksum means nothing."""
        size = 8 if self._compression == "gzip" else 4
        if not self._have(size):
            raise self._truncated()
        self._at += size

    def _truncated(self) -> CompressionError:
        return self._error("truncated_stream", f"after {self.position} bytes of content")

    def _error(self, reason: str, detail: str) -> CompressionError:
        hint = ""
        if reason == "bad_stream" and self.position == 0:
            found = detect(self.head)
            if is_frame(self.head):
                hint = "The file is not compressed: leave compression_type out."
            elif found is not None and found != self._compression:
                hint = f"It looks like {found} data: leave compression_type out, or name it."
            elif (looks := sniff(self.head)) is not None and found is None:
                hint = f"It looks like {looks}."
        return CompressionError(self.path, None, self.position, reason, detail, hint)

    def close(self) -> None:
        """Close what was opened here; the caller's file object stays open."""
        if self._owned:
            self._file.close()

    def __enter__(self) -> InputStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _has_plain_header(head: bytes) -> bool:
    """Whether the header of a gzip member (RFC 1952) has no reserved flags and ends within ``head``: isal
    ignores such flags, and misreads some headers that come in pieces."""
    flags, at = head[3] if len(head) > 3 else 0, 10
    if flags & 4:
        at += 2 + int.from_bytes(head[10:12], "little")
    for flag in (8, 16):
        if flags & flag:
            at = head.find(0, at) + 1
            if not at:
                return False
    return flags < 0x20 and at + (flags & 2) <= len(head)


def _position(file: Any) -> int | None:
    """Where a file is, None if it cannot be told to go back there."""
    try:
        return int(file.tell()) if file.seekable() else None
    except (OSError, ValueError, AttributeError):
        return None


def open_stream(
    source: Any, compression_type: str | None = None, *, points: PointBuilder | None = None
) -> InputStream:
    """Open a path, URL or binary file object (pipes and unbuffered ones too) for reading forward.

    ``points`` collects the points of a compressed stream.
    """
    if isinstance(source, InputStream):
        return source
    path = path_name(source)
    wanted = normalize_compression(compression_type)
    if not isinstance(source, (str, bytes, os.PathLike)):
        if not hasattr(source, "read"):
            raise TypeError(f"expected a path or a binary file object, not {type(source).__name__}")
        return InputStream(source, path, wanted, owned=False, points=points)
    local = local_path(path)
    if local is None:
        return InputStream(open_data(path, mmap=False).reader(), path, wanted, owned=True, points=points)
    return InputStream(open(local, "rb", buffering=0), path, wanted, owned=True, points=points)
