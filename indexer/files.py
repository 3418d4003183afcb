"""Random access to plain data, wherever it is: in memory, in a local file, or behind a URL."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Any

from .datafile import BytesFile, DataFile, ObjectFile
from .localfile import most_descriptors, open_descriptor, pread, pwrite
from .names import is_url, local_path, path_name
from .remotefile import open_remote
from .stores import open_store
from .stores.ranges import side_by_side

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


def open_data(source: Any, *, mmap: bool = True) -> DataFile:
    """Open a path, a URL or a seekable binary file object for random access.

    ``mmap``: map a local file. If that fails (limits, file systems without maps), it is read with pread.
    """
    if not isinstance(source, (str, bytes, os.PathLike)):
        if not hasattr(source, "read") or not hasattr(source, "seek"):
            kind = type(source).__name__
            raise TypeError(f"expected a path or a seekable binary file object, not {kind}")
        return ObjectFile(path_name(source), source)
    path = os.fsdecode(source)
    local = local_path(path)
    if local is None:
        return open_remote(path, mmap)
    status = os.stat(local)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a folder, not a data file", path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ESPIPE, "not a regular file; it can only be read forward, as a stream", path)
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    return open_descriptor(path, os.open(local, os.O_RDONLY | flags), mmap)
