"""The bytes of a source as one buffer: mapped and decompressed, and first copied to a file if necessary."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from indexer.compression import HEAD_SIZE, detect, is_frame
from indexer.files import is_url
from indexer.outputs import STREAM
from indexer.streams import open_stream
from tfrecord._repair.inflate import GzipMembers, StreamDamage, inflate, inflate_zstd
from tfrecord._repair.resync import FrameFinder

_COPY = 1 << 22


def map_file(file: IO[bytes]) -> memoryview:
    """The file's bytes, mapped; the map goes when the last view of it does."""
    file.flush()
    if not os.fstat(file.fileno()).st_size:
        return memoryview(b"")
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def forget(data: memoryview, start: int, end: int) -> None:
    """Release the pages of a map that were read: they stay in the page cache, but not in this process."""
    mapping = data.obj
    if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        start -= start % mmap.PAGESIZE
        end -= end % mmap.PAGESIZE
        if end > start:
            mapping.madvise(mmap.MADV_DONTNEED, start, end - start)


@contextmanager
def spooled(folder: str | None = None) -> Iterator[IO[bytes]]:
    """An unlinked temporary file in `folder`, or in the system's folder for them. If the disk is full, the
    error names the folder."""
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            yield file
        except OSError as error:
            if error.errno == errno.ENOSPC and error.filename is None:
                error.filename = folder or tempfile.gettempdir()
            raise


@contextmanager
def opened(source: str, folder: str | None) -> Iterator[memoryview]:
    """The bytes of a path, a URL or standard input. Anything but a local file is first copied to an unlinked
    temporary file in `folder`."""
    with ExitStack() as stack:
        file: Any
        if is_url(source):
            file = stack.enter_context(open_stream(source, "NONE"))
        else:
            file = sys.stdin.buffer if source == STREAM else stack.enter_context(open(source, "rb"))
        if source == STREAM or is_url(source) or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            spool = stack.enter_context(spooled(folder))
            shutil.copyfileobj(file, spool, _COPY)
            file = spool
        yield map_file(file)


@contextmanager
def decompressed(
    data: memoryview, compression: str, folder: str | None
) -> Iterator[tuple[memoryview, str, list[StreamDamage]]]:
    """The decompressed bytes, the name of the compression, and the damage to the stream.

    `compression` is `"auto"`, `""`, `"gzip"`, `"zlib"` or `"zstd"`. The decompressed bytes are in an
    unlinked temporary file in `folder`.
    """
    kind = compression_of(data) if compression == "auto" else compression
    if not kind or not len(data):
        yield data, "", []
        return
    with spooled(folder) as spool:
        damages = inflate_zstd(data, spool) if kind == "zstd" else inflate(data, kind, spool)
        if compression == "auto" and damages and not spool.tell() and any(FrameFinder(data).frames(0)):
            yield data, "", []  # a plain file that only starts like a compressed one
        else:
            yield map_file(spool), kind, damages


def compression_of(data: memoryview) -> str:
    """`"gzip"`, `"zlib"`, `"zstd"` or `""`, by the content, even if the start of the stream is damaged."""
    head = bytes(data[:HEAD_SIZE])
    found = detect(head)
    if found is not None or is_frame(head):
        return found or ""
    if head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0:
        return "zlib"
    return "gzip" if GzipMembers(data).next(0) >= 0 and not any(FrameFinder(data).frames(0)) else ""
