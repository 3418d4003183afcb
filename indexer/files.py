"""Random access to plain data: through a map of the file, pread, or range requests to a URL.

In each case a `DataFile` returns read-only views that stay valid for as long as somebody holds them, even
after `close`. It checks the file's size before each read: a file that shrank is an error, not a crash.
"""

from __future__ import annotations

import errno
import mmap as _mmap
import os
import re
import stat
import threading
import weakref
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from ._engine import kernel as _kernel
from .errors import TruncatedRecordError
from .stores import ObjectInfo, Store, Url, open_store
from .stores.ranges import Pieces, UInt64Array, join_ranges, side_by_side

__all__ = [
    "BytesFile",
    "DataFile",
    "is_url",
    "total_size",
    "local_path",
    "most_descriptors",
    "open_data",
    "path_name",
    "pread",
    "pwrite",
]

# A chain such as simplecache::s3://... has a scheme in its last link; a local name may hold "::" too.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(://|::.*://)", re.DOTALL)
# Ranges closer than this become one request: a request takes about as long as reading this many bytes.
_NEAR = 128 << 10
# Another call of pread takes about as long as reading this many bytes.
_GAP = 1 << 14
# Python's mmap objects keep a descriptor each; beyond this many the reference engine uses pread.
_MOST_PYTHON_MAPS = 16


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL (``scheme://...``) and not a local file."""
    return _URL.match(path) is not None


def local_path(path: str) -> str | None:
    """The path of a local file, also if given as ``file://``; None for any other URL."""
    if path.startswith("file://"):
        return path.removeprefix("file://")
    return None if is_url(path) else path


def total_size(paths: Iterable[str]) -> int:
    """Bytes of those that are files or objects. Stores are asked side by side."""
    names = list(paths)
    urls = [name for name in names if local_path(name) is None]
    local = [path for name in names if (path := local_path(name)) is not None]

    def remote(url: str) -> int:
        store, key = open_store(url)
        try:
            return store.stat(key).size
        except FileNotFoundError:  # reading it says so
            return 0

    return sum(side_by_side(remote, urls)) + sum(map(os.path.getsize, filter(os.path.isfile, local)))


def path_name(source: Any) -> str:
    """The name of a path or file object, for use in messages."""
    if isinstance(source, (str, bytes, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else "<stream>"


class DataFile(ABC):
    """One plain (not compressed) source of bytes; made by `open_data`.

    Attributes: ``path`` (text for messages), ``size`` (bytes, when it was opened), ``mapped`` (whether
    `buffer` works and views are views of a map), ``remote`` (whether each read is a request), ``closed``.
    ``identity`` (device and inode) and ``mtime_ns`` are those of a local file when it was opened, else None.
    ``etag`` is that of an object behind a URL, if the store has one.
    """

    mapped = False
    remote = False

    def __init__(self, path: str, size: int, status: os.stat_result | None = None) -> None:
        self.path = path
        self.size = size
        self.identity = None if status is None else (status.st_dev, status.st_ino)
        self.mtime_ns = None if status is None else status.st_mtime_ns
        self.etag: str | None = None
        self.closed = False

    def view(self, offset: int, length: int) -> memoryview:
        """A read-only view of ``length`` bytes at ``offset``, which stays valid after this object is closed.

        `IndexError` outside the file; `TruncatedRecordError` if the file has shrunk since it was opened.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise IndexError(
                f"{self.path}: bytes {offset} to {offset + length} are outside its {self.size} bytes"
            )
        self._check_open()
        return memoryview(self._read(offset, length))

    def buffer(self) -> memoryview:
        """A read-only view of the whole file, which must be mapped."""
        raise ValueError(f"{self.path} is not mapped")

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array
    ) -> Callable[[], tuple[memoryview, UInt64Array]]:
        """Begin `gather`: this sends requests to a store. Calling the returned function waits for them."""
        return partial(self.gather, starts, ends)

    def gather(self, starts: UInt64Array, ends: UInt64Array) -> tuple[memoryview, UInt64Array]:
        """Read ranges into one buffer, each byte once: (buffer, where each range begins in it)."""
        begins, stops, which = join_ranges(starts, ends, _GAP)
        sizes = stops - begins
        parts = [self.view(start, size) for start, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
        buffer = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        bases = np.cumsum(sizes, dtype=np.uint64) - sizes
        return buffer, starts - begins[which] + bases[which]

    def head(self, length: int) -> bytes:
        """The first ``length`` bytes, or all if there are fewer."""
        return bytes(self.view(0, min(length, self.size)))

    def reader(self, position: int = 0) -> Any:
        """A file object that reads this forward, starting at ``position``."""
        return _Forward(self, position)

    @abstractmethod
    def check_size(self) -> None:
        """Raise `TruncatedRecordError` if the file is shorter than when it was opened."""

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Tell the system that these (offset, length) ranges will be read soon; close ones are merged."""
        self._check_open()

    def close(self) -> None:
        """Release the file. Existing views stay valid. Closing twice is fine."""
        self.closed = True

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abstractmethod
    def _read(self, offset: int, length: int) -> Any:
        """Bytes, or a view, of a range inside the file."""

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")

    def _shrunk(self, size: int, offset: int | None = None) -> TruncatedRecordError:
        detail = f"the file shrank from {self.size} to {size} bytes while it was open"
        return TruncatedRecordError(self.path, None, offset, "truncated_record", detail)


class _Forward:
    """What a stream needs from a file object, and what the scanner needs from a stream."""

    def __init__(self, data: DataFile, position: int) -> None:
        self.name = data.path
        self.position = position
        self._data = data

    def read(self, size: int) -> memoryview:
        size = min(size, self._data.size - self.position)
        piece = self._data.view(self.position, size) if size > 0 else memoryview(b"")
        self.position += piece.nbytes
        return piece

    read_some = read

    def close(self) -> None:
        """Close the file itself: for readers that own it."""
        self._data.close()


class _DescriptorFile(DataFile):
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


class _MappedFile(DataFile):
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
    """`mmap.mmap` with the few methods of the kernel's FileMap that `_MappedFile` needs."""

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


class _ObjectFile(DataFile):
    """A seekable binary file object from the caller; it is not closed here."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        super().__init__(path, file.seek(0, os.SEEK_END))
        self._file = file
        self._lock = threading.Lock()

    def check_size(self) -> None:
        self._check_open()
        with self._lock:
            now = self._file.seek(0, os.SEEK_END)
        if now < self.size:
            raise self._shrunk(now)

    def _read(self, offset: int, length: int) -> bytes:
        parts = []
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < length:
                part = self._file.read(length - done)
                if not part:
                    raise self._shrunk(offset + done, offset)
                parts.append(part)
                done += len(part)
        return b"".join(parts)


class _RemoteFile(DataFile):
    """An object behind a URL, read by ranges. All reads get the version that it had when it was opened."""

    remote = True

    def __init__(self, url: Url, store: Store, info: ObjectInfo) -> None:
        super().__init__(url, info.size)
        self.etag = info.etag
        self.identity = None if info.etag is None else (0, zlib.crc32(info.etag.encode()))
        self._url, self._opened_by, self._place = url, os.getpid(), (store, info.key)
        # Read ahead: the piece that is being consumed, and the next one.
        self._ahead: deque[Pieces] = deque(maxlen=2)

    def _store(self) -> tuple[Store, str]:
        if self._opened_by != os.getpid():  # a forked child needs a store of its own
            self._place, self._opened_by = open_store(self._url), os.getpid()
            self._ahead.clear()
        return self._place

    def check_size(self) -> None:
        self._check_open()

    def reader(self, position: int = 0) -> Any:
        self._check_open()
        store, key = self._store()
        return store.stream(key, position, self.size, self.etag)

    def advise(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._check_open()
        table = np.asarray(ranges if isinstance(ranges, np.ndarray) else list(ranges), np.int64).reshape(
            -1, 2
        )
        starts = np.clip(table[:, 0], 0, self.size).astype(np.uint64)
        ends = np.clip(table[:, 0] + table[:, 1], 0, self.size).astype(np.uint64)
        store, key = self._store()
        self._ahead.append(store.start_pieces(key, starts, ends, self.etag))

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array
    ) -> Callable[[], tuple[memoryview, UInt64Array]]:
        self._check_open()
        for pieces in self._ahead:
            found = pieces.inside(starts, ends)
            if found is not None:
                return found
        store, key = self._store()
        return store.start_ranges(key, starts, ends, self.etag).result

    def gather(self, starts: UInt64Array, ends: UInt64Array) -> tuple[memoryview, UInt64Array]:
        return self.start_gather(starts, ends)()

    def _read(self, offset: int, length: int) -> memoryview:
        edges = np.array([offset, offset + length], np.uint64)
        return self.gather(edges[:1], edges[1:])[0]


class BytesFile(DataFile):
    """Data that is already in memory."""

    mapped = True

    def __init__(self, path: str, data: memoryview) -> None:
        super().__init__(path, data.nbytes)
        self._data = data

    def check_size(self) -> None:
        self._check_open()

    def buffer(self) -> memoryview:
        self._check_open()
        return self._data

    def _read(self, offset: int, length: int) -> memoryview:
        return self._data[offset : offset + length]


def _open_remote(url: str, mmap: bool) -> DataFile:
    known = url if isinstance(url, Url) else Url(url)
    store, key = open_store(known)
    info = store.stat(key)
    if known.options.cache is not None and info.size:
        from .stores.cache import Cache

        descriptor = Cache(known.options).get(store, info)
        if descriptor is not None:
            data = _open_descriptor(known, descriptor, mmap)
            data.etag, data.mtime_ns = info.etag, None
            return data
    return _RemoteFile(known, store, info)


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


def open_data(source: Any, *, mmap: bool = True) -> DataFile:
    """Open a path, a URL or a seekable binary file object for random access.

    ``mmap``: map a local file. If that fails (limits, file systems without maps), it is read with pread.
    """
    if not isinstance(source, (str, bytes, os.PathLike)):
        if not hasattr(source, "read") or not hasattr(source, "seek"):
            kind = type(source).__name__
            raise TypeError(f"expected a path or a seekable binary file object, not {kind}")
        return _ObjectFile(path_name(source), source)
    path = os.fsdecode(source)
    local = local_path(path)
    if local is None:
        return _open_remote(path, mmap)
    status = os.stat(local)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder, not a data file", path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ESPIPE, "not a regular file; it can only be read forward, as a stream", path)
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    return _open_descriptor(path, os.open(local, os.O_RDONLY | flags), mmap)


def _open_descriptor(path: str, descriptor: int, mmap: bool) -> _DescriptorFile | _MappedFile:
    """A file by its descriptor, of which it takes ownership."""
    try:
        status = os.fstat(descriptor)
        maps = _try_map(descriptor, status.st_size) if mmap else None
    except BaseException:
        os.close(descriptor)
        raise
    if maps is None:
        return _DescriptorFile(path, status, descriptor)
    return _MappedFile(path, status, *maps, descriptor)


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
