"""Random access to local files: through a map of the file, or pread."""

from __future__ import annotations

import errno
import mmap as _mmap
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from ._engine import kernel as _kernel
from .datafile import DataFile
from .names import local_path

__all__ = ["DescriptorFile", "MappedFile", "most_descriptors", "open_descriptor", "pread", "pwrite"]

# Ranges closer than this become one piece of advice.
_NEAR = 128 << 10
# Python's mmap objects keep a descriptor each; beyond this many the reference engine uses pread.
_MOST_PYTHON_MAPS = 16


class DescriptorFile(DataFile):
    """pread on a descriptor: views are fresh bytes."""

    def __init__(self, path: str, status: os.stat_result, descriptor: int) -> None:
        super().__init__(path, status.st_size, status)
        self._descriptor = descriptor
        self._finalizer = weakref.finalize(self, os.close, descriptor)

    def check_size(self) -> None:
        self._check_open()
        now = os.fstat(self._descriptor).st_size
        if now < self.size:
            raise self._shrunk(now)

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        if hasattr(os, "posix_fadvise") and not self.closed:
            for offset, length in _merged(ranges, self.size):
                os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        super().close()
        self._finalizer()

    def _read(self, offset: int, length: int) -> bytes:
        data = pread(self._descriptor, length, offset)
        if len(data) < length:
            raise self._shrunk(os.fstat(self._descriptor).st_size, offset)
        return data


class MappedFile(DataFile):
    """A map of a local file; views are views of the map.

    It keeps a descriptor, to check the size before each read. If the process has no descriptors to spare, it
    checks the size by the path, as long as that leads to the same file.
    """

    mapped = True

    def __init__(
        self, path: str, status: os.stat_result, file_map: Any, buffer: Any, descriptor: int
    ) -> None:
        super().__init__(path, status.st_size, status)
        self._map = file_map
        self._whole = memoryview(buffer).toreadonly()
        self._absolute = os.path.abspath(local_path(path) or path)
        self._descriptor = descriptor if _spare.take() else -1
        if self._descriptor >= 0:
            self._finalizer = weakref.finalize(self, _spare.give_back, descriptor)
        else:
            os.close(descriptor)

    def _read(self, offset: int, length: int) -> memoryview:
        self.check_size()
        return self._whole[offset : offset + length]

    def buffer(self) -> memoryview:
        self.check_size()
        return self._whole

    def check_size(self) -> None:
        self._check_open()
        now = _file_size(self._descriptor) if self._descriptor >= 0 else self._size_by_path()
        if -1 < now < self.size:
            raise self._shrunk(now)

    def _size_by_path(self) -> int:
        try:
            status = os.stat(self._absolute)
        except OSError:
            return -1
        return status.st_size if (status.st_dev, status.st_ino) == self.identity else -1

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        if not self.closed:
            for offset, length in _merged(ranges, self.size):
                self._map.advise(offset, length, "willneed")

    def forget(self, offset: int, length: int) -> None:
        """Remove the pages of a range from this process (not from the page cache)."""
        length = min(length, self.size - offset)
        if length > 0:
            self._map.advise(offset, length, "dontneed")

    def close(self) -> None:
        super().close()
        self._whole = memoryview(b"")
        self._map = None
        if self._descriptor >= 0:
            self._descriptor = -1
            self._finalizer()


class _SpareDescriptors:
    """How many descriptors maps may keep: a quarter of the process's limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._most: int | None = None

    def take(self) -> bool:
        with self._lock:
            if self._most is None:
                self._most = most_descriptors()
            if self._taken >= self._most:
                return False
            self._taken += 1
            return True

    def give_back(self, descriptor: int) -> None:
        os.close(descriptor)
        self._taken -= 1  # without the lock: the garbage collector may run while it is held


_spare = _SpareDescriptors()


def most_descriptors() -> int:
    """How many data files may keep a descriptor each: a quarter of the process's limit, 8 to 256."""
    try:
        import resource
    except ImportError:
        return 64
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 256 if soft == resource.RLIM_INFINITY else max(8, min(256, soft // 4))


def _file_size(descriptor: int) -> int:
    if _kernel is not None:
        return int(_kernel.file_size(descriptor))
    return os.fstat(descriptor).st_size


class _PythonMap:
    """`mmap.mmap` with the few methods of the kernel's FileMap that `MappedFile` needs."""

    _lock = threading.Lock()
    _count = 0

    def __init__(self, descriptor: int, size: int) -> None:
        with _PythonMap._lock:
            if _PythonMap._count >= _MOST_PYTHON_MAPS:
                raise OSError(errno.EMFILE, "too many maps that keep a descriptor")
            self.map = _mmap.mmap(descriptor, size, access=_mmap.ACCESS_READ)
            _PythonMap._count += 1
        weakref.finalize(self.map, _PythonMap._ended)

    @classmethod
    def _ended(cls) -> None:
        cls._count -= 1

    def advise(self, offset: int, length: int, advice: str) -> bool:
        if advice == "willneed" and hasattr(self.map, "madvise"):
            start = offset - offset % _mmap.PAGESIZE
            self.map.madvise(_mmap.MADV_WILLNEED, start, length + offset - start)
        return True


_seeking = threading.Lock()


def _seek_and_read(descriptor: int, length: int, offset: int) -> bytes:
    """`os.pread` for systems without it, among threads that all come this way."""
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


_pread = getattr(os, "pread", _seek_and_read)


def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
    """`os.pwrite`, also on systems without it: how many bytes were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)


def pread(descriptor: int, length: int, offset: int) -> bytes:
    """``length`` bytes at ``offset``, fewer only at the end of the file (a single `os.pread` may not)."""
    parts = []
    done = 0
    while done < length and (part := _pread(descriptor, length - done, offset + done)):
        parts.append(part)
        done += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _merged(ranges: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Sorted, clipped to the file, and merged if close to each other."""
    table = np.asarray(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(-1, 2)
    table = table[np.argsort(table[:, 0], kind="stable")]
    starts = np.clip(table[:, 0], 0, size)
    ends = np.clip(table[:, 0] + table[:, 1], 0, size)
    if not len(table):
        return []
    reach = np.maximum.accumulate(ends)
    first = np.concatenate(([True], starts[1:] > reach[:-1] + _NEAR))
    begins = starts[first]
    lasts = reach[np.concatenate((np.flatnonzero(first)[1:] - 1, [len(table) - 1]))]
    return [(int(a), int(b - a)) for a, b in zip(begins, lasts, strict=True) if b > a]


def open_descriptor(path: str, descriptor: int, mmap: bool) -> DescriptorFile | MappedFile:
    """A file by its descriptor, of which it takes ownership."""
    try:
        status = os.fstat(descriptor)
        maps = _try_map(descriptor, status.st_size) if mmap else None
    except BaseException:
        os.close(descriptor)
        raise
    if maps is None:
        return DescriptorFile(path, status, descriptor)
    return MappedFile(path, status, *maps, descriptor)


def _try_map(descriptor: int, size: int) -> tuple[Any, Any] | None:
    """A map and the buffer of its bytes; None if the file cannot be mapped."""
    try:
        if _kernel is not None:
            file_map = _kernel.FileMap(descriptor, size)
            return file_map, file_map
        if size == 0:
            return None
        python_map = _PythonMap(descriptor, size)
        return python_map, python_map.map
    except OSError:
        return None
