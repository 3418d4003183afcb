"""Compressed and plain streams: told apart by content, and read forward in constant memory.

The whole stream is compressed, with the records inside: GZIP (any number of members; zeros may follow the
last one) or ZLIB (exactly one stream). TensorFlow silently accepts most truncated streams; here a stream that
does not reach its proper end is an error.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any, Literal

from .errors import CompressionError, UnsupportedCompressionError
from .files import local_path, open_data, path_name
from .framing import HEADER_SIZE, is_frame
from .sniffing import HEAD_SIZE, sniff

__all__ = [
    "Compression",
    "HEAD_SIZE",
    "InputStream",
    "WINDOW_BITS",
    "detect",
    "is_frame",
    "normalize_compression",
    "open_stream",
]

# The usual spellings, for type checkers; upper or lower case does not matter.
Compression = Literal["", "NONE", "none", "GZIP", "gzip", "gz", "ZLIB", "zlib", "ZSTD", "zstd", "auto"]

_READ_SIZE = 64 << 10
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
"""The ``wbits`` argument of zlib for each compression."""

_NAMES = {"": "", "none": "", "auto": "auto", "gzip": "gzip", "gz": "gzip", "zlib": "zlib"}


def normalize_compression(name: str | None) -> str:
    """A compression name as users write it, as one of ``"auto"``, ``""``, ``"gzip"`` and ``"zlib"``.

    None and ``"auto"`` mean: detect from the content. ``""`` and ``"NONE"`` mean plain. Upper or lower case
    does not matter. Any other name is an `UnsupportedCompressionError`, which is a `ValueError`.
    """
    if name is None:
        return "auto"
    if not isinstance(name, str):
        raise TypeError(f"compression_type must be a str or None, not {type(name).__name__}")
    known = _NAMES.get(name.strip().lower())
    if known is None:
        raise UnsupportedCompressionError(
            None,
            None,
            None,
            "unsupported_compression",
            repr(name),
            "Valid: None or 'auto' (look at the content), '' or 'NONE', 'GZIP', 'ZLIB'.",
        )
    return known


def detect(head: bytes) -> str | None:
    """The compression of a stream that begins with ``head``: ``"gzip"``, ``"zlib"``, or None for plain.

    A valid frame header is looked for first, so that plain data is never taken for anything else.
    """
    if is_frame(head):
        return None
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if len(head) >= 2 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and (head[0] << 8 | head[1]) % 31 == 0:
        # Some text gets this far. Inflating a little shows whether it is deflate data.
        try:
            zlib.decompressobj(WINDOW_BITS["zlib"]).decompress(head, HEAD_SIZE)
        except zlib.error:
            return None
        return "zlib"
    return None


class InputStream:
    """A source of bytes, read forward and decompressed on the way; made by `open_stream`.

    Attributes: ``path`` (text for messages), ``compression`` (``""``, ``"gzip"`` or ``"zlib"``, known once
    the first bytes were read), ``head`` (the first stored bytes), ``position`` (bytes returned so far).
    Errors of the stream are `CompressionError`; memory is bounded, whatever the compression ratio.
    """

    def __init__(self, file: Any, path: str, compression_type: str | None, *, owned: bool) -> None:
        self.path = path
        self.position = 0
        self.head = b""
        self._file = file
        self._owned = owned
        self._wanted = normalize_compression(compression_type)
        self._compression: str | None = None
        self._pending = b""
        self._inflater: Any = None
        # A copy of the inflater from before the current input, that input, and how much output it gave.
        self._before: tuple[Any, bytes] | None = None
        self._given = 0
        self._rescued: Iterator[bytes] | None = None
        self._rest = b""
        self._damage = ""
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
        while len(self.head) < HEADER_SIZE:
            piece = self._read_stored(_READ_SIZE)
            if not piece:
                break
            self.head += piece
        self._pending = self.head
        self.head = self.head[:HEAD_SIZE]
        self._compression = (detect(self.head) or "") if self._wanted == "auto" else self._wanted

    def _read_stored(self, size: int) -> bytes:
        piece = self._file.read(size)
        if piece is None:
            raise BlockingIOError(f"{self.path}: the stream is not ready; only blocking streams can be read")
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"{self.path}: reading gave {type(piece).__name__}, not bytes; open it in binary mode"
            )
        return bytes(piece)

    def read_some(self, size: int) -> bytes:
        """At least one byte and at most ``size``, as soon as available; ``b""`` only at the end."""
        self._start()
        if self._compression:
            piece = self._inflate(size)
        elif self._pending:
            piece, self._pending = self._pending[:size], self._pending[size:]
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

    def _inflate(self, limit: int) -> bytes:
        data: bytes
        while not self._ended:
            if self._rescued is not None:
                self._rest = self._rest or next(self._rescued, b"")
                if not self._rest:
                    raise self._error("bad_stream", self._damage)
                data, self._rest = self._rest[:limit], self._rest[limit:]
                return data
            if not self._pending:
                self._pending = self._read_stored(_READ_SIZE)
                self._before = None
            at_end = not self._pending
            if self._inflater is None:
                if at_end:
                    self._ended = True
                    break
                self._next_stream()
                continue
            if self._before is None:
                self._before = self._inflater.copy(), self._pending
                self._given = 0
            try:
                data = self._inflater.decompress(self._pending, limit)
            except zlib.error as error:
                self._damage = str(error)
                self._rescued = self._rescue()
                continue
            self._given += len(data)
            self._pending = self._inflater.unconsumed_tail
            if self._inflater.eof:
                self._pending = self._inflater.unused_data
                self._inflater = self._before = None
            elif at_end and not data:
                raise self._error("truncated_stream", f"after {self.position} bytes of content")
            if data:
                return data
        return b""

    def _rescue(self) -> Iterator[bytes]:
        """The output before the damage.

        zlib discards the output of the call that fails. So the last input is fed to it again, byte by byte.
        """
        assert self._before is not None
        inflater, stored = self._before
        known = self._given
        for place in range(len(stored)):
            try:
                data = inflater.decompress(stored[place : place + 1])
            except zlib.error:
                return
            fresh = data[known:]
            known -= min(known, len(data))
            if fresh:
                yield fresh

    def _next_stream(self) -> None:
        """Begin the stream at ``_pending``, which is not empty, or check that only zeros follow."""
        gzip = self._compression == "gzip"
        if self._streams:
            while gzip and len(self._pending) < 2:
                piece = self._read_stored(_READ_SIZE)
                if not piece:
                    break
                self._pending += piece
            if not gzip or self._pending[:2] != b"\x1f\x8b":
                while gzip and self._pending and not any(self._pending):
                    self._pending = self._read_stored(_READ_SIZE)
                if self._pending:
                    raise self._error("trailing_garbage", "")
                self._ended = True
                return
        self._streams += 1
        self._inflater = zlib.decompressobj(WINDOW_BITS["gzip" if gzip else "zlib"])

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


def open_stream(source: Any, compression_type: str | None = None) -> InputStream:
    """Open a path, URL or binary file object (pipes and unbuffered ones too) for reading forward."""
    if isinstance(source, InputStream):
        return source
    path = path_name(source)
    wanted = normalize_compression(compression_type)
    if not isinstance(source, (str, bytes, os.PathLike)):
        if not hasattr(source, "read"):
            raise TypeError(f"expected a path or a binary file object, not {type(source).__name__}")
        return InputStream(source, path, wanted, owned=False)
    local = local_path(path)
    if local is None:
        return InputStream(open_data(path, mmap=False).reader(), path, wanted, owned=True)
    return InputStream(open(local, "rb", buffering=0), path, wanted, owned=True)
