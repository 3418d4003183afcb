"""The names of compressions, and which one a stream has: that is told by content."""

from __future__ import annotations

import zlib
from typing import Literal

from .errors import UnsupportedCompressionError
from .framing import is_frame
from .inflaters import WINDOW_BITS
from .options import near_matches
from .sniffing import HEAD_SIZE
from .zstd import FRAME_MAGIC

__all__ = ["HEAD_SIZE", "Compression", "detect", "is_frame", "normalize_compression"]

# The usual spellings, for type checkers; upper or lower case does not matter.
Compression = Literal["", "NONE", "none", "GZIP", "gzip", "gz", "ZLIB", "zlib", "ZSTD", "zstd", "auto"]

_NAMES = {"": "", "none": "", "auto": "auto", "gz": "gzip", "zst": "zstd"} | {
    name: name for name in ("gzip", "zlib", "zstd")
}


def normalize_compression(name: str | None) -> str:
    """A compression name as users write it, as one of ``"auto"``, ``""``, ``"gzip"``, ``"zlib"`` and
    ``"zstd"``.

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
            "Valid: None or 'auto' (look at the content), '' or 'NONE', 'GZIP', 'ZLIB', 'ZSTD'"
            f"{near_matches(name.strip(), ('auto', 'none', 'gzip', 'zlib', 'zstd')) or '.'}",
        )
    return known


def detect(head: bytes) -> str | None:
    """The compression of a stream that begins with ``head``: ``"gzip"``, ``"zlib"``, ``"zstd"``, or None for
    plain.

    A valid frame header is looked for first, so that plain data is never taken for anything else.
    """
    if is_frame(head):
        return None
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if head[:4] == FRAME_MAGIC:
        return "zstd"
    if len(head) >= 2 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and (head[0] << 8 | head[1]) % 31 == 0:
        # Some text gets this far. Inflating a little shows whether it is deflate data.
        try:
            zlib.decompressobj(WINDOW_BITS["zlib"]).decompress(head, HEAD_SIZE)
        except zlib.error:
            return None
        return "zlib"
    return None
