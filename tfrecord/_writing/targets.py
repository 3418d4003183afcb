"""What a writer writes to: local paths, URLs and file objects, told apart and opened."""

from __future__ import annotations

import errno
import io
import os
from typing import Any

from indexer import names
from indexer.atomic import lock
from indexer.stores.upload import Upload

__all__ = ["is_file", "local_path", "open_locked", "open_url", "take_lock", "target_path"]


def local_path(target: Any) -> str | None:
    """The path of a local file; None for a file object or a URL elsewhere."""
    if is_file(target):
        return None
    return names.local_path(os.fsdecode(os.fspath(target)))


def target_path(target: Any) -> str | None:
    """The local path or URL to write to; None for a file object."""
    if is_file(target):
        return None
    path = os.fsdecode(os.fspath(target))
    return names.local_path(path) or path


def is_file(target: Any) -> bool:
    """A file object, or the result of fsspec.open() (which is also a PathLike)."""
    return hasattr(target, "write") or (hasattr(target, "open") and hasattr(target, "full_name"))


def open_url(url: str, mode: str) -> Upload:
    if mode == "a":
        raise ValueError(f"{url}: appending needs a local file")
    return Upload(url, new=mode == "x")


def open_locked(path: str, mode: str) -> io.FileIO:
    """Open a local path for writing, unbuffered, so that each record reaches the system in one write.

    A regular file is locked first; only then does "w" truncate it. `BlockingIOError` if another writer has it
    open.
    """
    if mode == "w" and (os.path.isfile(path) or not os.path.lexists(path)):
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        file = io.FileIO(os.open(path, flags, 0o666), "wb")
    else:
        file = io.FileIO(path, {"w": "wb", "x": "xb", "a": "ab"}[mode])
    try:
        if os.path.isfile(path):
            take_lock(file, path)
            if mode == "w":
                file.truncate(0)
    except BaseException:
        file.close()
        raise
    return file


def take_lock(file: io.FileIO, path: str) -> None:
    if lock(file.fileno()) is False:
        raise BlockingIOError(errno.EAGAIN, "another writer has this file open; close it first", path)
