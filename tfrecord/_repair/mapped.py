"""Files mapped to be read once, from front to back."""

from __future__ import annotations

import mmap
import os
from typing import IO

__all__ = ["forget", "map_file"]


def map_file(file: IO[bytes]) -> memoryview:
    """The file's bytes, mapped; the map goes when the last view of it does."""
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def forget(data: memoryview, start: int, end: int) -> None:
    """Let go of the pages of a map that were read: they stay in the page cache, but not in this process."""
    mapping = data.obj
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        start -= start % mmap.PAGESIZE
        end -= end % mmap.PAGESIZE
        if end > start:
            mapping.madvise(mmap.MADV_DONTNEED, start, end - start)
