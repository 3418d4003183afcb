"""Compressors of whole streams: gzip, zlib and zstd."""

from __future__ import annotations

import zlib
from typing import Any

from . import zstd
from .inflaters import WINDOW_BITS, fast_zlib

__all__ = ["Compressor", "check_level"]

# isal has levels 0 to 3. Its level 3 compresses about as well as zlib's 2, several times as fast.
_FAST_LEVELS = range(1, 4)
_ZLIB_LEVELS = range(0, 10)


def check_level(compression: str, level: int | None) -> int | None:
    """A level of compression, None for the usual one; `ValueError` if there is no such level."""
    if level is None:
        return None
    if not compression:
        raise ValueError("compression_level is for compressed files: give compression_type too")
    known = zstd.LEVELS if compression == "zstd" else _ZLIB_LEVELS
    if isinstance(level, bool) or not hasattr(level, "__index__") or level not in known:
        raise ValueError(
            f"compression_level is {level!r}; for {compression} it is an integer "
            f"from {known[0]} to {known[-1]}"
        )
    return int(level)


class Compressor:
    """One gzip member, zlib stream or zstd frame.

    The levels 1 to 3 of gzip and zlib are isal's, if it is installed.
    """

    def __init__(self, compression: str, level: int | None = None) -> None:
        self._zstd: Any = None
        self._engine: Any
        if compression == "zstd":
            self._zstd = zstd.package()
            options = {"level": 3 if level is None else level, "write_checksum": True}
            self._engine = self._zstd.ZstdCompressor(**options).compressobj()
        else:
            fast = fast_zlib() if level in _FAST_LEVELS else None
            options = {"level": -1 if level is None else level, "wbits": WINDOW_BITS[compression]}
            self._engine = (fast or zlib).compressobj(**options)

    def compress(self, data: Any) -> bytes:
        """Compress the next bytes; what comes out may be nothing."""
        made: bytes = self._engine.compress(data)
        return made

    def flush(self) -> bytes:
        """Everything so far, so that it can be decompressed."""
        how = self._zstd.COMPRESSOBJ_FLUSH_BLOCK if self._zstd is not None else zlib.Z_SYNC_FLUSH
        made: bytes = self._engine.flush(how)
        return made

    def restart(self) -> bytes:
        """Like `flush`; what follows will not refer to what came before. For gzip and zlib."""
        made: bytes = self._engine.flush(zlib.Z_FULL_FLUSH)
        return made

    def finish(self) -> bytes:
        """The end of the stream."""
        made: bytes = self._engine.flush()
        return made
