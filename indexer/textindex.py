"""Reads and writes the lines of a text index, ``offset size`` each."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ._engine import kernel as _kernel
from .framing import FRAME_OVERHEAD, UInt64Array

__all__ = ["format_text", "parse_text"]

_BLOCK = 1 << 15  # lines
_LINE = re.compile(rb"[ \t]*(?:([0-9]+)[ \t]+([0-9]+)[ \t]*)?\r?\Z")


def format_text(offsets: UInt64Array, lengths: UInt64Array) -> Iterator[bytes]:
    """The lines for frames at ``offsets`` with payloads of ``lengths`` bytes, uint64 ``(n,)``; in blocks."""
    for first in range(0, len(offsets), _BLOCK):
        starts = np.ascontiguousarray(offsets[first : first + _BLOCK])
        sizes = lengths[first : first + _BLOCK] + np.uint64(FRAME_OVERHEAD)
        if _kernel is not None:
            yield _kernel.format_text(starts, sizes)
        else:
            pairs = zip(starts.tolist(), sizes.tolist(), strict=True)
            yield "".join(f"{offset} {size}\n" for offset, size in pairs).encode()


def parse_text(text: memoryview) -> tuple[UInt64Array, UInt64Array, int]:
    """Offsets, frame sizes, and the number (from 1) of the first line that is not an entry, 0 if all are."""
    data = bytes(text)
    capacity = min(data.count(b"\n"), len(data) // 4) + 1
    offsets, sizes = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    if _kernel is not None:
        count, line = _kernel.parse_text(data, offsets, sizes)
        return offsets[:count], sizes[:count], line
    count = 0
    for number, text_line in enumerate(data.split(b"\n"), 1):
        match = _LINE.match(text_line)
        if match is None:
            return offsets[:0], sizes[:0], number
        if match[1] is None:
            continue
        if len(match[1].lstrip(b"0")) > 20 or len(match[2].lstrip(b"0")) > 20:
            return offsets[:0], sizes[:0], number
        offset, size = int(match[1]), int(match[2])
        if max(offset, size) >= 1 << 64:
            return offsets[:0], sizes[:0], number
        offsets[count], sizes[count] = offset, size
        count += 1
    return offsets[:count], sizes[:count], 0
