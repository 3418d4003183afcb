"""Random access to compressed files: each is decompressed once into an unnamed temporary file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable
from typing import Any

from indexer._engine import kernel
from indexer.errors import CompressionError, TFRecordError
from indexer.files import DataFile, pread, pwrite
from indexer.streams import open_stream
from tfrecord._reading.locks import ForkSafeLock

__all__ = ["Spool", "SpooledFile", "SpoolFullError"]

_PIECE = 1 << 20
_ALIGNMENT = 1 << 16  # segments begin at a page boundary, whatever the page size


class SpoolFullError(TFRecordError):
    """The decompressed files are larger than ``max_spool_bytes``."""


class _TemporaryFile:
    """An unlinked file of one process; it is only read and written at explicit offsets, so children may share
    it."""

    def __init__(self) -> None:
        self.descriptor, name = tempfile.mkstemp(prefix="tfrecord-spool-")
        os.unlink(name)
        self.pid = os.getpid()
        self.end = 0
        weakref.finalize(self, os.close, self.descriptor)


class SpooledFile(DataFile):
    """The decompressed content of a file; ``error`` is what stopped the decompression early, or None.

    It is mapped if the compiled kernel runs (its maps keep no descriptor), else read with pread.
    """

    compression = "compressed"  # the kind of source, for messages

    def __init__(
        self, path: str, storage: _TemporaryFile, base: int, size: int, error: CompressionError | None
    ):
        super().__init__(path, size)
        self.error = error
        self._storage = storage
        self._base = base
        self._whole = memoryview(b"")
        if kernel is not None:
            try:
                mapped = kernel.FileMap(storage.descriptor, base + size)
            except OSError:
                return  # too many maps: use pread
            self.mapped = True
            self._whole = memoryview(mapped).toreadonly()[base : base + size]

    def buffer(self) -> memoryview:
        if not self.mapped:
            return super().buffer()
        return self._whole

    def check_size(self) -> None:
        """The file has no name: nobody else can change it."""

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Always true: it was just written."""

    def _read(self, offset: int, length: int) -> Any:
        if self.mapped:
            return self._whole[offset : offset + length]
        data = pread(self._storage.descriptor, length, self._base + offset)
        if len(data) < length:
            raise OSError(f"the spooled content of {self.path} was truncated")
        return data


class Spool:
    """The decompressed files of one reader, at most ``limit`` bytes together.

    Safe to use from several threads and in forked children. Children share what their parent had spooled;
    what they add is their own. Disk space is freed when the reader and all views of it are gone.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = ForkSafeLock()
        self._files: dict[str, SpooledFile] = {}
        self._storage: _TemporaryFile | None = None
        self._used = 0

    def get(self, path: str, compression: str, source: Any) -> SpooledFile:
        """The content of ``path``, decompressed from ``source`` (for `open_stream`) unless done before.

        Raises:
            SpoolFullError: it would exceed the limit.
        """
        found = self._files.get(path)
        if found is None:
            with self._lock:
                found = self._files.get(path)
                if found is None:
                    found = self._files[path] = self._add(path, compression, source)
        return found

    def peek(self, path: str) -> SpooledFile | None:
        """The content of ``path`` if it is already here and complete."""
        found = self._files.get(path)
        return found if found is not None and found.error is None else None

    def _add(self, path: str, compression: str, source: Any) -> SpooledFile:
        storage = self._storage
        if storage is None or storage.pid != os.getpid():
            storage = self._storage = _TemporaryFile()
        base = -(-storage.end // _ALIGNMENT) * _ALIGNMENT
        size, error = 0, None
        try:
            with open_stream(source, compression) as stream:
                while True:
                    try:
                        piece = stream.read_some(_PIECE)
                    except CompressionError as stopped:
                        error = stopped
                        break
                    if not piece:
                        break
                    if self._used + size + len(piece) > self._limit:
                        raise SpoolFullError(self._too_large(path))
                    try:
                        _write_all(storage.descriptor, piece, base + size)
                    except OSError as failed:
                        raise OSError(failed.errno, self._not_written(path, failed)) from failed
                    size += len(piece)
        except BaseException:
            os.ftruncate(storage.descriptor, base)
            raise
        storage.end = base + size
        self._used += size
        return SpooledFile(path, storage, base, size, error)

    def _too_large(self, path: str) -> str:
        return (
            f"{path}: random access to a compressed file decompresses it into a temporary file, which would "
            f"take more than max_spool_bytes={self._limit}. Write the data uncompressed "
            "(tfrecord convert), read it in stored order, or raise max_spool_bytes"
        )

    def _not_written(self, path: str, error: OSError) -> str:
        return (
            f"{error.strerror}: decompressing {path} into {tempfile.gettempdir()} for random access "
            "(set the environment variable TMPDIR to use another folder)"
        )

    def close(self) -> None:
        """Release the files; views of them stay valid."""
        with self._lock:
            self._files.clear()
            self._storage = None
            self._used = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Spool, (self._limit,)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written
