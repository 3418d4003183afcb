"""Files that are replaced whole or not at all.

A sibling is written, flushed to the disk and renamed over the destination, then the folder is flushed.
Whoever is killed in between leaves the old file, and a sibling that the next write of the same file removes:
a lock on it tells those that are being written from those that nobody will finish.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # no such locks on this system: siblings of the dead stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["replace_file"]

# Siblings are numbered; as many numbers beyond the one in use are looked at for litter.
_LOOK_FURTHER = 16


def _sibling(path: str, number: int) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{number}.tmp")


def _lock(descriptor: int) -> bool | None:
    """True: locked now; False: somebody else holds it; None: this file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _remove_if_dead(path: str) -> None:
    """Remove a sibling that no living process holds."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return
    try:
        if _lock(descriptor) and _is_at(descriptor, path):
            os.unlink(path)
    except OSError:
        pass  # somebody else was faster, or may not: it is only litter
    finally:
        os.close(descriptor)


def _create(path: str) -> tuple[str, int, int]:
    """A new, locked sibling: its name, its descriptor, its number."""
    number = 0
    while True:
        name = _sibling(path, number)
        try:
            descriptor = os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666
            )
        except FileExistsError:
            _remove_if_dead(name)
            if os.path.lexists(name):
                number += 1
            continue
        # Between these two somebody may have taken the new file for a dead one's and removed it.
        if _lock(descriptor) is not False and _is_at(descriptor, name):
            return name, descriptor, number
        os.close(descriptor)


@contextmanager
def replace_file(path: str) -> Iterator[BinaryIO]:
    """A binary file to write, which takes the place of ``path`` when the block ends without an exception.

    Its mode follows the umask. A link at ``path`` stays and what it points at is replaced. After any
    exception, an interrupt too, ``path`` is as it was and nothing is left beside it.
    """
    path = os.path.realpath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder, not the name of a file to write")
    try:
        name, descriptor, number = _create(path)
    except OSError as error:
        # The name of the sibling would only puzzle.
        raise type(error)(
            error.errno, f"{os.strerror(error.errno or 0)}, so it cannot be written", path
        ) from error
    file = os.fdopen(descriptor, "wb")  # the lock lasts until this is closed
    try:
        with file:
            yield file
            file.flush()
            os.fsync(descriptor)
            os.replace(name, path)
    except BaseException:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass
        raise
    _sync_folder(os.path.dirname(path))
    for other in range(number + 1, number + 1 + _LOOK_FURTHER):
        sibling = _sibling(path, other)
        if os.path.lexists(sibling):
            _remove_if_dead(sibling)


def _sync_folder(folder: str) -> None:
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return  # a folder that may be written but not read cannot be opened
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot flush a folder
    finally:
        os.close(descriptor)
