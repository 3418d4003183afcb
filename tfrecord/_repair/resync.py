"""Find the next whole frame after damage.

A frame is believed only where both of its checksums fit, 64 bits in all, so bytes that merely look like a
length are not mistaken for one. Headers are searched for at every byte with NumPy; what passes is checked by
the framing kernel. Work stays linear in the size of the file, also where a hostile file is full of headers
that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.framing import (
    FOOTER_SIZE,
    FRAME_OVERHEAD,
    HEADER_SIZE,
    check_frame,
    crc32c,
    frame_header,
    mask_crc32c,
    scan,
    unmask_crc32c,
)

# The search starts small, because the next frame is mostly near, and goes on in larger and larger steps.
_FIRST_BLOCK = 1 << 12
_BLOCK = 1 << 20
_WORD = 0xFFFFFFFF
# Payloads from this size on are checked from running checksums, so that many long candidates stay affordable.
_LONG_PAYLOAD = 1 << 18
_CHECKPOINT = 1 << 16
_LONGEST = 1 << 40


@lru_cache(maxsize=1)
def _tables() -> npt.NDArray[np.uint32]:
    """Eight tables of 256: the CRC of a byte that 0 to 7 zero bytes follow."""
    # What is left of a CRC without its start and end values, which do not depend on the byte.
    rows = [
        [crc32c(bytes([byte]) + bytes(k)) ^ crc32c(bytes(k + 1)) for byte in range(256)] for k in range(8)
    ]
    return np.array(rows, np.uint32)


def length_checksums(lengths: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """The masked CRC-32C that a header holds for each of these lengths."""
    tables = _tables()
    words = lengths ^ np.uint64(_WORD)
    crc = np.zeros(len(words), np.uint32)
    for k in range(8):
        crc ^= tables[7 - k][(words >> np.uint64(8 * k)) & np.uint64(255)]
    crc ^= np.uint32(_WORD)
    masked: npt.NDArray[np.uint32] = mask_crc32c(crc)
    return masked


def header_at(data: memoryview, offset: int) -> int | None:
    """The payload length that the header at `offset` holds, None where no header fits there."""
    if offset < 0 or offset > len(data) - HEADER_SIZE:
        return None
    header = data[offset : offset + HEADER_SIZE]
    length = int.from_bytes(header[:8], "little")
    return length if frame_header(length) == header else None


@lru_cache(maxsize=1)
def _inverse_rows() -> tuple[int, tuple[int, ...]]:
    """The unmasked CRC of length 0, and the matrix over GF(2) from CRC differences back to 32-bit
    lengths."""
    base = crc32c(bytes(8))
    rows = [(crc32c((1 << bit).to_bytes(8, "little")) ^ base, 1 << bit) for bit in range(32)]
    for bit in range(32):
        pivot = next(i for i in range(bit, 32) if rows[i][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        for i in range(32):
            if i != bit and rows[i][0] >> bit & 1:
                rows[i] = (rows[i][0] ^ rows[bit][0], rows[i][1] ^ rows[bit][1])
    return base, tuple(length for _, length in rows)


def length_from_checksum(stored: int) -> int:
    """The one length under 2**32 whose masked checksum is `stored`: repairs a length whose checksum
    survived."""
    base, rows = _inverse_rows()
    difference = unmask_crc32c(stored) ^ base
    length = 0
    for bit in range(32):
        if difference >> bit & 1:
            length ^= rows[bit]
    return length


class _RangeChecksums:
    """CRC-32C of any range of a buffer, for the price of at most two checkpoint blocks a range."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._start = 0
        self._points: list[int] = []
        self._operators = [self._one_zero_byte()]

    @staticmethod
    def _one_zero_byte() -> list[int]:
        table = _tables()[0]
        return [int(table[bit & 255]) ^ (bit >> 8) for bit in (1 << i for i in range(32))]

    @staticmethod
    def _apply(operator: list[int], value: int) -> int:
        result = 0
        while value:
            low = value & -value
            result ^= operator[low.bit_length() - 1]
            value ^= low
        return result

    def _shift(self, crc: int, count: int) -> int:
        """The CRC after `count` more zero bytes, as far as it depends on `crc` (zlib's crc32_combine)."""
        k = 0
        while count >> k:
            if k == len(self._operators):
                last = self._operators[-1]
                self._operators.append([self._apply(last, column) for column in last])
            if count >> k & 1:
                crc = self._apply(self._operators[k], crc)
            k += 1
        return crc

    def _prefix(self, offset: int) -> int:
        """The CRC from where the checkpoints start up to `offset`."""
        if not self._points or offset < self._start:
            self._start, self._points = offset, [0]
        block = (offset - self._start) // _CHECKPOINT
        while len(self._points) <= block:
            at = self._start + (len(self._points) - 1) * _CHECKPOINT
            self._points.append(crc32c(self._data[at : at + _CHECKPOINT], self._points[-1]))
        return crc32c(self._data[self._start + block * _CHECKPOINT : offset], self._points[block])

    def masked(self, offset: int, length: int) -> int:
        before = self._prefix(offset)
        crc = self._prefix(offset + length) ^ self._shift(before, length)
        return int(mask_crc32c(crc))


class FrameFinder:
    """Searches one buffer (a whole file) for frames of which both checksums fit."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)
        self._bytes = np.frombuffer(data, np.uint8) if self.size else np.zeros(0, np.uint8)
        self._zero_length = length_checksums(np.zeros(1, np.uint64))[0]
        self._ranges = _RangeChecksums(data)

    def headers(self, start: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """(offset, payload length) of every header that fits at an offset in [start, stop), in order."""
        last = self.size - FRAME_OVERHEAD
        stop = last + 1 if stop is None else min(stop, last + 1)
        at, block = start, _FIRST_BLOCK
        while at < stop:
            end = min(at + block, stop)
            found: list[tuple[int, int]] = []
            for phase in range(min(8, end - at)):
                found += self._phase(at + phase, end)
            yield from sorted(found)
            at, block = end, min(2 * block, _BLOCK)

    def _phase(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Headers at start, start + 8, start + 16 ... below stop."""
        count = (stop - start + 7) // 8
        room = self.size - FRAME_OVERHEAD - start
        lengths: Any = np.ndarray((count,), "<u8", self._bytes, start)
        stored: Any = np.ndarray((count,), "<u4", self._bytes, start + 8, (8,))
        # Zero pages would make every byte a candidate: a length of zero has one checksum only.
        likely = np.flatnonzero(
            (lengths <= np.uint64(room)) & ((lengths != 0) | (stored == self._zero_length))
        )
        if not len(likely):
            return []
        lengths, stored = lengths[likely].astype(np.uint64), stored[likely]
        good = np.flatnonzero(length_checksums(lengths) == stored)
        pairs = ((start + 8 * int(likely[i]), int(lengths[i])) for i in good)
        return [(offset, length) for offset, length in pairs if length <= self.size - FRAME_OVERHEAD - offset]

    def is_frame(self, offset: int, length: int) -> bool:
        """Whether the payload behind a header that fits has its checksum too."""
        if length < _LONG_PAYLOAD:
            return check_frame(self.data, offset, length) is None
        start = offset + HEADER_SIZE
        stored = int.from_bytes(self.data[start + length : start + length + FOOTER_SIZE], "little")
        return self._ranges.masked(start, length) == stored

    def frames(self, start: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """(offset, payload length) of every frame at an offset in [start, stop): frames inside frames too."""
        return (pair for pair in self.headers(start, stop) if self.is_frame(*pair))

    def is_splice(self, offset: int) -> bool:
        """Whether the frame at `offset`, which something damaged follows, is a header whose record is gone
        and that now stands before the next whole frame: to it the next header is a payload of 8 bytes with
        its checksum."""
        if header_at(self.data, offset) != 8:
            return False
        following = header_at(self.data, offset + HEADER_SIZE)
        if following is None or following > self.size - FRAME_OVERHEAD - offset - HEADER_SIZE:
            return False
        return self.is_frame(offset + HEADER_SIZE, following)

    def chain_end(self, offset: int, limit: int) -> int:
        """Where a run of whole frames from `offset` ends that lies within `limit`."""
        return offset + scan(self.data[offset:limit]).end

    def _aligned_end(self, offset: int, more: int = 2) -> int | None:
        """Where the damaged frame at `offset` ends if nothing was inserted or removed, where that can be
        told.

        Tried: the length as stored (its checksum may be what is damaged), and the length that the stored
        checksum belongs to. Believed where the file ends there, or a header that fits and whose record the
        file has room for is there; where both are, the nearer end. Next to those, where another damaged frame
        is there of which the same can be told, up to `more` of them.
        """
        if offset > self.size - HEADER_SIZE:
            return None
        header = self.data[offset : offset + HEADER_SIZE]
        ends, doubtful = [], []
        for length in (
            int.from_bytes(header[:8], "little"),
            length_from_checksum(int.from_bytes(header[8:], "little")),
        ):
            end = offset + FRAME_OVERHEAD + length
            if end == self.size:
                ends.append(end)
            elif end < self.size:
                following = header_at(self.data, end)
                if following is None:
                    doubtful.append(end)
                elif following <= self.size - FRAME_OVERHEAD - end:
                    ends.append(end)
        if not ends and more:
            ends = [end for end in doubtful if self._aligned_end(end, more - 1) is not None]
        return min(ends, default=None)

    def _varints_before(self, end: int, floor: int) -> Iterator[tuple[int, int]]:
        """(value, start) of what may be a varint that ends before `end`; it and a tag before it are above
        `floor`."""
        for start in range(end - 1, max(floor, end - 6), -1):
            piece = bytes(self.data[start:end])
            if piece[-1] < 0x80 and all(byte >= 0x80 for byte in piece[:-1]):
                yield sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(piece)), start

    def _value_at(self, offset: int, floor: int) -> int | None:
        """The size of the bytes value that starts at `offset`, if a Feature's head is before it.

        That is a map entry's or a list's tag, the Feature's size, a BytesList's tag and size, the first
        value's tag and size. That the sizes fit into each other is what tells it from chance.
        """
        for size, at in self._varints_before(offset, floor):
            if self.data[at - 1] != 0x0A:
                continue
            value_tag = at - 1
            for list_size, at in self._varints_before(value_tag, floor):
                if self.data[at - 1] != 0x0A or list_size < size + offset - value_tag:
                    continue
                list_tag = at - 1
                for feature_size, at in self._varints_before(list_tag, floor):
                    if feature_size == list_size + value_tag - list_tag and self.data[at - 1] in (0x12, 0x0A):
                        return size
        return None

    def _wrapped_until(self, damaged: int, offset: int) -> int | None:
        """Where the value ends that holds the frames at `offset`; None where there is no sign that one does.

        A payload may itself hold frames (a TFRecord file kept as a value): as the whole payload, or as the
        first value of a feature of an Example.
        """
        length = header_at(self.data, damaged)
        # A payload of 8 bytes and its checksum look like a header, too, but mostly of an absurd length.
        if length is not None and length < _LONGEST and offset == damaged + HEADER_SIZE:
            return min(self.size, offset + length)
        held = self._value_at(offset, damaged)
        if held is None or (length is not None and offset + held > damaged + HEADER_SIZE + length):
            return None
        return min(self.size, offset + held)

    def resume(self, damaged: int) -> int:
        """Where reading goes on after the damaged frame at `damaged`: a header or a whole frame; else the
        file's end.

        The search starts inside the damaged frame, because bytes may have been inserted or removed there.
        Frames that are part of the damaged record's payload are told from the file's own where there is a
        sign: what follows the damaged record is where its length says, or the frames fill a bytes field and
        do not go beyond it.
        """
        aligned = self._aligned_end(damaged)
        at = damaged + (HEADER_SIZE if header_at(self.data, damaged) is not None else 1)
        stop = self.size if aligned is None else aligned
        while at < stop:
            found = next(self.frames(at, stop), None)
            if found is None:
                break
            offset, length = found
            if aligned is not None:
                end = (
                    self.chain_end(offset, aligned)
                    if offset + FRAME_OVERHEAD + length <= aligned
                    else aligned + 1
                )
                if end >= aligned:
                    return offset
                at = end
                continue
            wrapped = self._wrapped_until(damaged, offset)
            if wrapped is None or offset + FRAME_OVERHEAD + length > wrapped:
                return offset
            end = self.chain_end(offset, wrapped)
            if scan(self.data, start=end, max_records=1).end > end:
                return offset
            at = end
        return stop


__all__ = ["FrameFinder", "header_at", "length_checksums", "length_from_checksum"]
