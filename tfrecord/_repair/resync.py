"""Find the next whole frame after damage.

A frame counts only if both of its checksums match, 64 bits in all, so bytes that merely look like a length
are not mistaken for one. NumPy looks for a header at every byte, and the framing kernel checks what it finds.
The time is linear in the size of the file, even if a hostile file is full of matching headers.
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

# The search starts with a small block, because the next frame is usually near, and doubles it at each step.
_FIRST_BLOCK = 1 << 12
_BLOCK = 1 << 20
_WORD = 0xFFFFFFFF
# Payloads of at least this size are checked by running checksums, which keeps many long candidates cheap.
_LONG_PAYLOAD = 1 << 18
_CHECKPOINT = 1 << 16
_LONGEST = 1 << 40


@lru_cache(maxsize=1)
def _tables() -> npt.NDArray[np.uint32]:
    """Eight tables of 256: the CRC of a byte followed by 0 to 7 zero bytes."""
    # The part of a CRC that depends on the byte, without the start and end values.
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
    """The payload length in the header at `offset`; None if there is no valid header."""
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
    """CRC-32C of any range of a buffer; each costs at most two checkpoint blocks."""

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
        """What `crc` contributes to the CRC after `count` more zero bytes (as in zlib's crc32_combine)."""
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
        """The CRC of the bytes from the first checkpoint to `offset`."""
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
    """Searches one buffer (a whole file) for frames whose checksums both match."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.size = len(data)
        self._bytes = np.frombuffer(data, np.uint8) if self.size else np.zeros(0, np.uint8)
        self._zero_length = length_checksums(np.zeros(1, np.uint64))[0]
        self._ranges = _RangeChecksums(data)

    def headers(self, start: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """(offset, payload length) of every valid header at an offset in [start, stop), in order."""
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
        """Headers at start, start + 8, start + 16, ... below stop."""
        count = (stop - start + 7) // 8
        room = self.size - FRAME_OVERHEAD - start
        lengths: Any = np.ndarray((count,), "<u8", self._bytes, start)
        stored: Any = np.ndarray((count,), "<u4", self._bytes, start + 8, (8,))
        # Otherwise every byte of a zero page would be a candidate; a length of zero has only one checksum.
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
        """Whether the payload after a valid header matches its checksum too."""
        if length < _LONG_PAYLOAD:
            return check_frame(self.data, offset, length) is None
        start = offset + HEADER_SIZE
        stored = int.from_bytes(self.data[start + length : start + length + FOOTER_SIZE], "little")
        return self._ranges.masked(start, length) == stored

    def frames(self, start: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """(offset, payload length) of every frame at an offset in [start, stop), even inside other frames."""
        return (pair for pair in self.headers(start, stop) if self.is_frame(*pair))

    def is_splice(self, offset: int) -> bool:
        """Whether the frame at `offset`, with damage after it, is only a header that lost its record.

        Such a header says 8 bytes and is now followed directly by a whole frame, whose header looks like a
        payload of 8 bytes with its checksum.
        """
        if header_at(self.data, offset) != 8:
            return False
        following = header_at(self.data, offset + HEADER_SIZE)
        if following is None or following > self.size - FRAME_OVERHEAD - offset - HEADER_SIZE:
            return False
        return self.is_frame(offset + HEADER_SIZE, following)

    def chain_end(self, offset: int, limit: int) -> int:
        """The end of the run of whole frames that starts at `offset` and lies within `limit`."""
        return offset + scan(self.data[offset:limit]).end

    def _aligned_end(self, offset: int, more: int = 2) -> int | None:
        """The end of the damaged frame at `offset`, assuming that nothing was inserted or removed; None if it
        cannot be known.

        Two lengths are tried: the stored one (only its checksum may be damaged), and the one that the stored
        checksum belongs to. An end is accepted if the file ends there, or if a valid header is there whose
        record fits into the file. If both lengths pass, the nearer end wins. If neither does, an end is also
        accepted if another damaged frame is there whose end can be found the same way, through up to `more`
        such frames.
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
        """(value, start) of each possible varint that ends just before `end`. It and the tag before it lie
        after `floor`."""
        for start in range(end - 1, max(floor, end - 6), -1):
            piece = bytes(self.data[start:end])
            if piece[-1] < 0x80 and all(byte >= 0x80 for byte in piece[:-1]):
                yield sum((byte & 0x7F) << (7 * i) for i, byte in enumerate(piece)), start

    def _value_at(self, offset: int, floor: int) -> int | None:
        """The size of the bytes value that starts at `offset`, if the head of a Feature precedes it.

        The head is the tag of a map entry or list, the Feature's size, a BytesList's tag and size, and the
        first value's tag and size. The sizes must agree with each other, so this is hardly ever chance.
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
        """The end of the value that contains the frames at `offset`; None if nothing shows that one does.

        A payload may itself contain frames (a TFRecord file stored as a value): it may be the whole payload,
        or the first value of a feature in an Example.
        """
        length = header_at(self.data, damaged)
        # A payload of 8 bytes and its checksum also look like a header, but usually with an absurd length.
        if length is not None and length < _LONGEST and offset == damaged + HEADER_SIZE:
            return min(self.size, offset + length)
        held = self._value_at(offset, damaged)
        if held is None or (length is not None and offset + held > damaged + HEADER_SIZE + length):
            return None
        return min(self.size, offset + held)

    def resume(self, damaged: int) -> int:
        """The offset at which to continue after the damaged frame at `damaged`: that of a header or a whole
        frame, or the end of the file.

        The search starts inside the damaged frame, because bytes may have been inserted or removed there. It
        may meet frames that belong to the payload of the damaged record. Two signs tell them from the frames
        of the file: the next record is where the damaged record's length says, or the frames exactly fill a
        bytes field.
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
