"""A folder of whole objects, shared by all processes of a host: fetched once, then mapped.

The name of a cached file is derived from URL, size and ETag. A shared lock on it prevents its removal. The
process that fetches it holds an exclusive lock on its temporary name, so others can wait, or see that the
process is dead. When the folder reaches its limit, the least recently used files are removed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

from indexer.errors import RemoteError
from indexer.stores.options import StoreOptions
from indexer.stores.ranges import ObjectInfo, Store

__all__ = ["Cache", "cache_folder"]

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_SUFFIX = ".object"
_FILLING = ".part"
_LOCK = "lock"
_POLL = 0.05


def cache_folder(cache: str) -> str:
    """The folder that ``cache=`` means: ``"auto"`` is ``$TFRECORD_CACHE``, else the user's cache folder."""
    if cache != "auto":
        return cache
    given = os.environ.get("TFRECORD_CACHE")
    if given:
        return given
    from platformdirs import user_cache_dir

    return os.path.join(user_cache_dir(), "tfrecord")


class Cache:
    """Whole objects in a folder, at most ``cache_bytes`` of them."""

    def __init__(self, options: StoreOptions) -> None:
        if options.cache is None:
            raise ValueError("no cache folder is given")
        if fcntl is None:
            raise ValueError("cache= needs file locks, which this system does not have")
        self.folder = cache_folder(options.cache)
        self.limit = int(options.cache_bytes)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def name(
        self, store: Store, key: str, size: int, version: str | int | None, suffix: str = _SUFFIX
    ) -> str:
        """The path of what is cached of one version of an object; with another suffix, of its index."""
        text = f"{store.url(key)}\n{size}\n{version}"
        return os.path.join(self.folder, hashlib.sha256(text.encode()).hexdigest()[:40] + suffix)

    def get(self, store: Store, info: ObjectInfo) -> int | None:
        """An open descriptor of the cached object, which is fetched first if necessary; the caller closes it.

        While it is open the file is not removed from the cache. If another process is fetching the object,
        this waits for it. None if there is no room because everything cached is in use.

        Raises:
            RemoteError: the object is larger than the whole cache.
        """
        if info.size > self.limit:
            text = f"its {info.size:,} bytes do not fit into cache_bytes={self.limit:,}"
            raise RemoteError(store.url(info.key), text)
        path = self.name(store, info.key, info.size, info.etag or info.mtime_ns)
        while True:
            found = self._open(path, info.size)
            if found is not None:
                return found
            with _exclusive(path + _FILLING) as file:
                if file is not None:
                    found = self._open(path, info.size)  # another process fetched it meanwhile
                    if found is not None:
                        return found
                    if not self._make_room(info.size, file):
                        return None
                    self._fill(store, info, file, path)
                    continue
            time.sleep(_POLL)

    def put_bytes(self, name: str, data: bytes) -> None:
        """Keep a small file, such as an index, under a name that the caller chooses."""
        path = os.path.join(self.folder, name)
        with _exclusive(path + _FILLING) as file:
            if file is not None and self._make_room(len(data), file):
                file.write(data)
                self._finish(file, path)

    def _open(self, path: str, size: int) -> int | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            status = os.fstat(descriptor)
            if status.st_nlink and status.st_size == size:
                os.utime(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # removed while it was being opened, or not a file of the cache
        with suppress(FileNotFoundError):
            if status.st_nlink:
                os.unlink(path)
        return None

    def _fill(self, store: Store, info: ObjectInfo, file: BinaryIO, path: str) -> None:
        with store.stream(info.key, 0, info.size, info.etag) as stream:
            while (piece := stream.read_some(1 << 30)).nbytes:
                file.write(piece)
        self._finish(file, path)

    def _finish(self, file: BinaryIO, path: str) -> None:
        """Give a complete file its name while nobody is counting: a listing may miss a file that is being
        renamed."""
        file.flush()
        with self._locked():
            os.replace(path + _FILLING, path)

    def _locked(self) -> AbstractContextManager[None]:
        return _locked(os.path.join(self.folder, _LOCK))

    def _make_room(self, wanted: int, file: BinaryIO) -> bool:
        """Remove the least recently used files until ``wanted`` more bytes fit, which ``file`` then takes, so
        that others count them; False if they cannot."""
        with self._locked():
            total, files = self._contents()
            for _, size, path in sorted(files):
                if total + wanted <= self.limit:
                    break
                if _remove_unused(path):
                    total -= size
            fits = total + wanted <= self.limit
            if fits:
                os.ftruncate(file.fileno(), wanted)
            return fits

    def _contents(self) -> tuple[int, list[tuple[int, int, str]]]:
        """The total bytes, and (last use, size, path) of each file, including leftovers."""
        files = []
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False) and entry.name != _LOCK:
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
        return sum(size for _, size, _ in files), files


def _remove_unused(path: str) -> bool:
    """Remove a file unless somebody holds a lock on it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(descriptor, path):  # it was renamed, and the name may be another file's now
            return False
        os.unlink(path)
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)
    return True


@contextmanager
def _exclusive(path: str) -> Iterator[BinaryIO | None]:
    """An empty file under an exclusive lock, removed at the end unless renamed; None if it is locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "r+b")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not _is_at(descriptor, path):  # it was renamed or removed while we waited
            yield None
            return
        os.ftruncate(descriptor, 0)
        try:
            yield file
        finally:
            if _is_at(descriptor, path):
                os.unlink(path)
    finally:
        file.close()


def _is_at(descriptor: int, path: str) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
