"""Files that are replaced completely or not at all.

A temporary sibling is written, flushed to disk and renamed over the destination, then the folder is flushed.
A process killed in between leaves the old file as it was, and a sibling that the next write of the same file
removes. A lock on the sibling shows whether somebody is still writing it. Several files that belong together
are written in a locked folder beside them.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # no such locks on this system: siblings of killed processes stay
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "check_name",
    "folder_beside",
    "is_at",
    "lock",
    "replace_file",
    "sync_folder",
    "unlock",
    "unwritable",
]

# Siblings are numbered; this many numbers beyond the one in use are checked for leftovers.
_LOOK_FURTHER = 16
# Some file systems (eCryptfs) allow no longer names; most allow 255 bytes.
_LONGEST_NAME = 143
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER_NAME = re.compile(r"\.tfrecord-[0-9a-f]{16}\.tmp")


def _sibling(path: str, number: int) -> str:
    folder, name = os.path.split(path)
    sibling = f".{name}.{number}.tmp"
    if len(os.fsencode(sibling)) > _LONGEST_NAME:
        sibling = f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.{number}.tmp"
    return os.path.join(folder, sibling)


def lock(descriptor: int, *, wait: bool = False) -> bool | None:
    """True: now locked; False: somebody else holds the lock; None: this file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def unlock(descriptor: int) -> None:
    """Release a lock, in all processes that share the descriptor."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(descriptor: int, path: str) -> bool:
    """Whether this open file is the one that this name leads to now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _remove_if_dead(path: str, flags: int = os.O_RDWR, remove: Callable[[str], object] = os.unlink) -> None:
    """Remove a leftover that no running process holds."""
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return
    try:
        if lock(descriptor) and is_at(descriptor, path):
            remove(path)
    except OSError:
        pass  # already removed, or not permitted: a leftover does no harm
    finally:
        os.close(descriptor)


def check_name(path: str) -> None:
    """OSError if the name is too long for its folder, so that no file could be written there."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        os.lstat(path)


def unwritable(error: OSError, path: str) -> OSError:
    """The error, about the file that the user named: the name of a temporary file would be confusing."""
    return type(error)(error.errno, f"{os.strerror(error.errno or 0)}, so it cannot be written", path)


class _Sibling:
    """The temporary file written beside ``path``: its ``name``, ``descriptor`` and ``number``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = ""
        self.descriptor = -1
        self.number = 0

    def create(self) -> None:
        """Create it and lock it."""
        while True:
            self.name = _sibling(self.path, self.number)
            try:
                self.descriptor = os.open(
                    self.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666
                )
            except FileExistsError:
                _remove_if_dead(self.name)
                if os.path.lexists(self.name):
                    self.number += 1
                continue
            # Before it was locked, another process may have taken it for a leftover and removed it.
            if lock(self.descriptor) is not False and is_at(self.descriptor, self.name):
                return
            self.close()

    def close(self) -> None:
        """Release the lock."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Remove it, unless it was already renamed: its name may belong to another sibling then.

        An interrupt may have come after it was created but before its descriptor was stored.
        """
        if self.descriptor < 0 and self.name:
            _remove_if_dead(self.name)
        elif self.name and is_at(self.descriptor, self.name):
            with suppress(OSError):  # it would only hide the original error
                os.unlink(self.name)


@contextmanager
def replace_file(path: str) -> Iterator[BinaryIO]:
    """A binary file to write, which replaces ``path`` when the block ends without an exception.

    Its mode follows the umask. A link at ``path`` stays; its target is replaced. After any exception, even an
    interrupt, ``path`` is as it was and nothing is left beside it.
    """
    path = os.path.realpath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder, not the name of a file to write")
    check_name(path)
    sibling = _Sibling(path)
    try:
        try:
            sibling.create()
        except OSError as error:
            raise unwritable(error, path) from error
        with open(sibling.descriptor, "wb", closefd=False) as file:  # the lock outlives it
            yield file
            file.flush()
            os.fsync(sibling.descriptor)
            try:
                os.replace(sibling.name, path)
            except OSError as error:
                raise unwritable(error, path) from error
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = path  # an error such as a full disk names the file that did not fit
        sibling.discard()
        raise
    finally:
        sibling.close()
    sync_folder(os.path.dirname(path))
    for other in range(sibling.number + 1, sibling.number + 1 + _LOOK_FURTHER):
        name = _sibling(path, other)
        if os.path.lexists(name):
            _remove_if_dead(name)


@contextmanager
def folder_beside(place: str) -> Iterator[str]:
    """A new folder in ``place``, to write files that are then renamed into ``place``.

    It is removed when the block ends, with everything still in it. The folders of killed processes are
    removed when the next one is made.
    """
    with suppress(OSError):  # a folder may allow writing but not listing
        for name in filter(_FOLDER_NAME.fullmatch, os.listdir(place)):
            _remove_if_dead(os.path.join(place, name), _OPEN_FOLDER, shutil.rmtree)
    path, descriptor = "", -1
    try:
        while True:
            path = os.path.join(place, f".tfrecord-{secrets.token_hex(8)}.tmp")
            try:
                os.mkdir(path)
            except OSError as error:
                raise unwritable(error, place) from error
            try:
                descriptor = os.open(path, _OPEN_FOLDER)
            except FileNotFoundError:
                continue  # another process took it for a leftover and removed it before it was locked
            except PermissionError:
                break  # this system cannot open folders, so there are no locks either
            if lock(descriptor) is not False and is_at(descriptor, path):
                break
            os.close(descriptor)
            descriptor = -1
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if descriptor >= 0:
            os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Flush the names in a folder to disk, if the system can do that."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return  # a folder without read permission cannot be opened
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot flush a folder
    finally:
        os.close(descriptor)
