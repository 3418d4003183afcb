"""Decompress what can be decompressed of a damaged gzip or zlib file."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

_INPUT = 1 << 16
_OUTPUT = 1 << 20
GZIP_MAGIC = b"\x1f\x8b\x08"
# Where a member is cut the decoder may go on into the next: so far, if that is inside a stored block.
_OVERRUN = 1 << 16
# So many members in a row are tried that start before where it stopped in an earlier one.
_TRIES_BEHIND = 4


@dataclass(frozen=True)
class StreamDamage:
    """Damage of the compressed stream: where in the compressed file, and the reason (see
    `CompressionError`)."""

    offset: int
    reason: str
    detail: str = ""


class _Deflate:
    """One raw deflate stream out of a buffer, as far as it goes."""

    def __init__(
        self, data: memoryview, at: int, check: Any, start: int, out: IO[bytes], look: Callable[[], object]
    ) -> None:
        self.at = at
        self.checksum = start
        self.size = 0
        self._data, self._check, self._out, self._look = data, check, out, look
        self._inflater: Any = zlib.decompressobj(-15)

    def _feed(self, piece: Any) -> None:
        while True:
            self._look()
            made = self._inflater.decompress(piece, _OUTPUT)
            self._out.write(made)
            self.checksum = self._check(made, self.checksum)
            self.size += len(made)
            # Behind the end zlib keeps showing input that it did not consume.
            piece = self._inflater.unconsumed_tail
            if self._inflater.eof or (not piece and len(made) < _OUTPUT):
                return

    def run(self) -> str | None:
        """None where the stream came to its end; else the reason. `at` is then behind what was used."""
        while not self._inflater.eof:
            piece = self._data[self.at : self.at + _INPUT]
            if not piece:
                self._feed(b"")
                return "truncated_stream"
            before = self._inflater.copy()
            place = self._out.tell(), self.checksum, self.size
            try:
                self._feed(piece)
            except zlib.error:
                # Again from before this piece, a byte at a time: all that comes before the damage is kept.
                self._out.seek(place[0])
                self._out.truncate()
                self.checksum, self.size = place[1:]
                self._inflater = before
                return self._crawl(piece)
            self.at += len(piece)
        self.at -= len(self._inflater.unused_data)
        return None

    def _crawl(self, piece: memoryview) -> str:
        for i in range(len(piece)):
            try:
                self._feed(piece[i : i + 1])
            except zlib.error:
                break
            self.at += 1
        return "bad_stream"


def _gzip_body(data: memoryview, at: int) -> int | None:
    """Where the deflate stream of the gzip member at `at` starts; None where no member starts there."""
    head = bytes(data[at : at + 10])
    if head[:3] != GZIP_MAGIC or len(head) < 10 or head[3] & 0xE0:
        return None
    flags, body = head[3], at + 10
    if flags & 4:
        body += 2 + int.from_bytes(data[body : body + 2], "little")
    for flag in (8, 16):
        if flags & flag:
            end = bytes(data[body : body + (1 << 16)]).find(b"\0")
            if end < 0:
                return None
            body += end + 1
    return body + 2 if flags & 2 else body


def _zlib_body(data: memoryview, at: int) -> int | None:
    head = bytes(data[at : at + 2])
    fits = len(head) == 2 and head[0] & 15 == 8 and not head[1] & 32 and int.from_bytes(head, "big") % 31 == 0
    return at + 2 if fits else None


def find(data: memoryview, needle: bytes, start: int) -> int:
    for at in range(start, len(data), _OUTPUT):
        place = bytes(data[at : at + _OUTPUT + len(needle) - 1]).find(needle)
        if place >= 0:
            return at + place
    return -1


def inflate(
    data: memoryview, kind: str, out: IO[bytes], look: Callable[[], object] = lambda: None
) -> list[StreamDamage]:
    """Write to `out` (seekable) what every member of `data` holds, and tell what was damaged.

    `kind` is `"gzip"` or `"zlib"`. After damage inside a gzip member the search for the next member goes on
    from there, or from a little before: of a member that was cut the decoder may notice only inside the
    next. A wrong trailer costs nothing: what was decompressed is kept, since records have checksums of
    their own. `look` is called now and then, and may raise to end this.
    """
    body_of = _gzip_body if kind == "gzip" else _zlib_body
    damages: list[StreamDamage] = []
    at = reached = behind = 0
    while at < len(data):
        behind = behind + 1 if at < reached else 0
        body, following = body_of(data, at), at + 1
        if body is None:
            if kind == "gzip" and at and not any(data[at : at + _OUTPUT]) and not _any_set(data, at):
                break  # zero padding after the last member is allowed
            missing = "trailing_garbage" if at else "truncated_stream" if len(data) < 10 else "bad_stream"
            damages.append(StreamDamage(at, missing, "no member starts here"))
        else:
            check = zlib.crc32 if kind == "gzip" else zlib.adler32
            stream = _Deflate(data, body, check, int(kind != "gzip"), out, look)
            reason = stream.run()
            if reason is not None:
                damages.append(StreamDamage(stream.at, reason))
            else:
                end, reason = _trailer(data, stream, kind)
                if reason is None:
                    at = end
                    continue
                damages.append(StreamDamage(end, reason, "the stream's own checksum does not fit or is cut"))
            reached = max(reached, stream.at)
            following = max(following, stream.at - _OVERRUN if behind < _TRIES_BEHIND else reached)
        if kind != "gzip":
            break
        at = find(data, GZIP_MAGIC, following)
        if at < 0:
            break
    return damages


def _any_set(data: memoryview, at: int) -> bool:
    return any(bytes(data[i : i + _OUTPUT]).strip(b"\0") for i in range(at, len(data), _OUTPUT))


def _trailer(data: memoryview, stream: _Deflate, kind: str) -> tuple[int, str | None]:
    """Where the member ends, and what is wrong with its trailer."""
    width = 8 if kind == "gzip" else 4
    trailer = bytes(data[stream.at : stream.at + width])
    if len(trailer) < width:
        return len(data), "truncated_stream"
    if kind == "gzip":
        right = stream.checksum.to_bytes(4, "little") + (stream.size & 0xFFFFFFFF).to_bytes(4, "little")
    else:
        right = stream.checksum.to_bytes(4, "big")
    return stream.at + width, None if trailer == right else "bad_stream"
