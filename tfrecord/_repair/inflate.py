"""Decompress as much as possible of a damaged gzip or zlib file."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from indexer.inflaters import BadStreamError
from indexer.zstd import FRAME_MAGIC, ZstdInflater, begins_frame

_INPUT = 1 << 16
# The first piece is small: most bytes that only look like the start of a stream fail at once.
_FIRST_INPUT = 32
_OUTPUT = 1 << 20
GZIP_MAGIC = b"\x1f\x8b\x08"
# A gzip header: ten bytes, then, depending on its flags, an extra field, a file name, a comment, a checksum.
_HEADER = 10
_EXTRA, _TEXTS, _HEADER_CHECKSUM = 4, (8, 16), 2
_LONGEST_TEXT = 1 << 16
_LONGEST_HEADER = _HEADER + 2 + 0xFFFF + 2 * _LONGEST_TEXT + 2
_SEARCH = 1 << 18
# Decoding a truncated member may run into the next one: by at most this much, inside a stored block.
_OVERRUN = 1 << 16
# How many members in a row may start before the place where an earlier one stopped.
_TRIES_BEHIND = 4
_KEPT = 10_000


@dataclass(frozen=True)
class StreamDamage:
    """Damage to the compressed stream: its offset in the compressed file, and the reason (see
    `CompressionError`)."""

    offset: int
    reason: str
    detail: str = ""


class _Deflate:
    """Decompresses one raw deflate stream of a buffer as far as possible."""

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
            if made:
                self._out.write(made)
                self.checksum = self._check(made, self.checksum)
                self.size += len(made)
            # After the end of the stream, zlib keeps returning the input that it did not consume.
            piece = self._inflater.unconsumed_tail
            if self._inflater.eof or (not piece and len(made) < _OUTPUT):
                return

    def _fed(self, piece: Any) -> bool:
        """Feed a piece. If it is damaged, restore the state from before and return False."""
        before = self._inflater.copy()
        checksum, size = self.checksum, self.size
        try:
            self._feed(piece)
        except zlib.error:
            if self.size != size:
                self._out.seek(size - self.size, 1)
                self._out.truncate()
            self._inflater, self.checksum, self.size = before, checksum, size
            return False
        self.at += len(piece)
        return True

    def run(self) -> str | None:
        """None if the stream is complete, else the reason. `at` is then just after the input used."""
        length = _FIRST_INPUT
        while not self._inflater.eof:
            piece = self._data[self.at : self.at + length]
            if not piece:
                self._feed(b"")
                return "truncated_stream"
            if not self._fed(piece):
                self._up_to_damage(piece)
                return "bad_stream"
            length = min(2 * length, _INPUT)
        self.at -= len(self._inflater.unused_data)
        return None

    def _up_to_damage(self, piece: memoryview) -> None:
        """Feed everything before the damaged byte of a piece."""
        while len(piece) > 1:
            half = len(piece) // 2
            piece = piece[half:] if self._fed(piece[:half]) else piece[:half]


class GzipMembers:
    """Where gzip members may start in `data`. Callers must ask for ascending offsets."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._searched = 0
        self._found: deque[tuple[int, int, bool]] = deque()

    def body(self, at: int) -> int | None:
        """The start of the deflate stream of the member at `at`; None if no member starts there."""
        self._search(at)
        return self._found[0][1] if self._found and self._found[0][0] == at else None

    def next(self, start: int) -> int:
        """The first offset, from `start` on, at which a member may start; -1 if there is none."""
        while start < len(self._data):
            self._search(start)
            while self._found:
                at, body, may_be = self._found[0]
                if may_be and _begins(self._data[body : body + _FIRST_INPUT]):
                    return at
                self._found.popleft()
            start = self._searched
        return -1

    def _search(self, start: int) -> None:
        """Forget what is before `start`, and search the next part if `start` is beyond this one."""
        while self._found and self._found[0][0] < start:
            self._found.popleft()
        if start >= self._searched:
            self._searched = start + _SEARCH
            self._found.extend(_member_starts(self._data, start, self._searched))


def _member_starts(data: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """The gzip headers from `start` to `stop`: the offset of each, that of its deflate stream, and whether
    the first bytes of that stream can be valid."""
    part = bytes(data[start : stop + _LONGEST_HEADER])
    size = len(part)
    byte = np.frombuffer(part + bytes(16), np.uint8)
    wanted = slice(0, max(0, min(stop - start, size - _HEADER + 1)))
    is_header = np.ones(wanted.stop, np.bool_)
    for i, value in enumerate(GZIP_MAGIC):
        is_header &= byte[i:][wanted] == value
    is_header &= byte[3:][wanted] < 0x20
    at = np.flatnonzero(is_header)
    if not len(at):
        return iter(())
    flags, body = byte[at + 3], at + _HEADER
    extra = np.where(flags & _EXTRA, 2 + _pair(byte, body), 0)
    body = np.minimum(body + extra, size)
    ends = np.append(np.flatnonzero(byte[:size] == 0), 1 << 40) if (flags & sum(_TEXTS)).any() else byte
    whole = np.ones(len(at), np.bool_)
    for flag in _TEXTS:
        if not (named := flags & flag != 0).any():
            continue
        end = ends[np.searchsorted(ends, body)]
        whole &= ~named | (end - body < _LONGEST_TEXT)
        body = np.where(named & whole, end + 1, body)
    body = np.minimum(body + (flags & _HEADER_CHECKSUM), size)
    found = (at[whole] + start).tolist(), (body[whole] + start).tolist()
    return zip(*found, _may_be_deflate(byte, body[whole], size).tolist(), strict=True)


def _may_be_deflate(byte: Any, at: Any, size: int) -> Any:
    """Whether a deflate stream can start at each of these offsets, judging by the header of its first block
    (RFC 1951, 3.2.3)."""
    first, second = byte[at], byte[at + 1]
    kind = first & 6
    stored = (kind == 0) & (_pair(byte, at + 1) ^ _pair(byte, at + 3) == 0xFFFF)
    dynamic = (kind == 4) & (first >> 3 <= 29) & (second & 31 <= 29)
    return stored | dynamic | (kind == 2) | (at + 5 > size)


def _begins(piece: memoryview) -> bool:
    """Whether a deflate stream that starts with `piece` can be decompressed at all."""
    try:
        zlib.decompressobj(-15).decompress(piece, 1)
    except zlib.error:
        return False
    return True


def _pair(byte: Any, at: Any) -> Any:
    """The 16-bit numbers at some offsets."""
    return byte[at].astype(np.int64) | byte[at + 1].astype(np.int64) << 8


def _zlib_body(data: memoryview, at: int) -> int | None:
    head = bytes(data[at : at + 2])
    fits = len(head) == 2 and head[0] & 15 == 8 and not head[1] & 32 and int.from_bytes(head, "big") % 31 == 0
    return at + 2 if fits else None


def inflate(
    data: memoryview, kind: str, out: IO[bytes], look: Callable[[], object] = lambda: None
) -> list[StreamDamage]:
    """Write the content of every member of `data` to `out` (seekable), and return the damage: at most 10,000
    entries.

    `kind` is `"gzip"` or `"zlib"`. After damage inside a gzip member, the search for the next member starts
    there, or a little earlier, because decoding a truncated member may run into the next one. A wrong trailer
    costs nothing: the decompressed bytes are kept, since records have checksums of their own. `look` is
    called regularly and may raise to stop this.
    """
    members = GzipMembers(data)
    damages: list[StreamDamage] = []

    def note(offset: int, reason: str, detail: str = "") -> None:
        if len(damages) < _KEPT:
            damages.append(StreamDamage(offset, reason, detail))

    at = reached = behind = 0
    while at < len(data):
        behind = behind + 1 if at < reached else 0
        body, following = members.body(at) if kind == "gzip" else _zlib_body(data, at), at + 1
        if body is None:
            if kind == "gzip" and at and not any_set(data, at, len(data)):
                break  # zero padding after the last member is allowed
            missing = (
                "trailing_garbage" if at else "truncated_stream" if len(data) < _HEADER else "bad_stream"
            )
            note(at, missing, "no member starts here")
        else:
            check = zlib.crc32 if kind == "gzip" else zlib.adler32
            stream = _Deflate(data, body, check, int(kind != "gzip"), out, look)
            reason = stream.run()
            if reason is not None:
                note(stream.at, reason)
            else:
                end, reason = _trailer(data, stream, kind)
                if reason is None:
                    at = end
                    continue
                note(end, reason, "the stream's own checksum does not match or is truncated")
            reached = max(reached, stream.at)
            following = max(following, stream.at - _OVERRUN if behind < _TRIES_BEHIND else reached)
        if kind != "gzip":
            break
        at = members.next(following)
        if at < 0:
            break
    return damages


def inflate_zstd(data: memoryview, out: IO[bytes]) -> list[StreamDamage]:
    """`inflate` for zstd. After damage it goes on where the next frame begins."""
    damages: list[StreamDamage] = []
    at = reached = behind = 0
    while at < len(data):
        behind = behind + 1 if at < reached else 0
        begin = at
        reason, detail, at = _inflate_frame(data, begin, out)
        if reason is None:
            continue
        if len(damages) < _KEPT:
            damages.append(StreamDamage(begin, reason, detail))
        reached = max(reached, at)
        following = begin + 1 if behind < _TRIES_BEHIND else reached
        at = _next_frame(data, following)
    return damages


def _inflate_frame(data: memoryview, at: int, out: IO[bytes]) -> tuple[str | None, str, int]:
    """What is wrong with the frame that begins at `at`, a detail, and where it ends or is damaged."""
    if not begins_frame(bytes(data[at : at + 4])):
        return ("trailing_garbage" if at else "bad_stream"), "no frame starts here", at
    inflater = ZstdInflater()
    try:
        while not inflater.eof:
            piece = inflater.read(_OUTPUT)
            out.write(piece)
            if not piece and not inflater.eof:
                stored = bytes(data[at : at + _INPUT])
                if not stored:
                    return "truncated_stream", "", at
                inflater.feed(stored)
                at += len(stored)
    except BadStreamError as error:
        return "bad_stream", str(error), at
    return None, "", at - len(inflater.unused)


def _next_frame(data: memoryview, start: int) -> int:
    """Where the next zstd frame begins, or the end."""
    for at in range(start, len(data), _SEARCH):
        found = bytes(data[at : at + _SEARCH + len(FRAME_MAGIC) - 1]).find(FRAME_MAGIC)
        if found >= 0:
            return at + found
    return len(data)


def any_set(data: memoryview, start: int, end: int) -> bool:
    """Whether any byte from `start` to `end` is not zero."""
    steps = range(start, end, _OUTPUT)
    return any(bytes(data[at : min(at + _OUTPUT, end)]).strip(b"\0") for at in steps)


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
