"""Files that are replaced whole or not at all.

A sibling is written, flushed to the disk and renamed over the destination, then the folder is flushed.
Whoever is killed in between leaves the old file, and a sibling that the next write of the same file removes:
a lock on it tells those that are being written from those that nobody will finish. Several files that belong
together are written in a locked folder beside them.
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
except ImportError:  # no such locks on this system: siblings of the dead stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["folder_beside", "is_at", "lock", "replace_file", "sync_folder", "unlock"]

# Siblings are numbered; as many numbers beyond the one in use are looked at for litter.
_LOOK_FURTHER = 16
_LONGEST_NAME = 255
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER_NAME = re.compile(r"\.tfrecord-[0-9a-f]{16}\.tmp")


def _sibling(path: str, number: int) -> str:
    folder, name = os.path.split(path)
    sibling = f".{name}.{number}.tmp"
    if len(os.fsencode(sibling)) > _LONGEST_NAME:
        sibling = f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.{number}.tmp"
    return os.path.join(folder, sibling)


def lock(descriptor: int, *, wait: bool = False) -> bool | None:
    """True: locked now; False: somebody else holds it; None: this file system has no locks."""
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
    """Give up a lock, in all processes that share the descriptor."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(descriptor: int, path: str) -> bool:
    """Whether this open file is the one that has this name now."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _remove_if_dead(path: str, flags: int = os.O_RDWR, remove: Callable[[str], object] = os.unlink) -> None:
    """Remove what no living process holds."""
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return
    try:
        if lock(descriptor) and is_at(descriptor, path):
            remove(path)
    except OSError:
        pass  # somebody else was faster, or may not: it is only litter
    finally:
        os.close(descriptor)


def _unwritable(error: OSError, path: str) -> OSError:
    """The error about what the user named: the name of a sibling would only puzzle."""
    return type(error)(error.errno, f"{os.strerror(error.errno or 0)}, so it cannot be written", path)


class _Sibling:
    """The file that is written beside ``path``: its ``name``, its ``descriptor``, its ``number``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = ""
        self.descriptor = -1
        self.number = 0

    def create(self) -> None:
        """Make it new, and lock it."""
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
            # Between these two somebody may have taken the new file for a dead one's and removed it.
            if lock(self.descriptor) is not False and is_at(self.descriptor, self.name):
                return
            self.close()

    def close(self) -> None:
        """Give up the lock."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Remove it, unless it has taken the place of the file already: the name may be another's then.

        An interrupt may have come when it was made, and before its descriptor was known.
        """
        if self.descriptor < 0 and self.name:
            _remove_if_dead(self.name)
        elif self.name and is_at(self.descriptor, self.name):
            with suppress(OSError):  # it would only hide why it came to this
                os.unlink(self.name)


@contextmanager
def replace_file(path: str) -> Iterator[BinaryIO]:
    """A binary file to write, which takes the place of ``path`` when the block ends without an exception.

    Its mode follows the umask. A link at ``path`` stays and what it points at is replaced. After any
    exception, an interrupt too, ``path`` is as it was and nothing is left beside it.
    """
    path = os.path.realpath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder, not the name of a file to write")
    sibling = _Sibling(path)
    try:
        try:
            sibling.create()
        except OSError as error:
            raise _unwritable(error, path) from error
        with open(sibling.descriptor, "wb", closefd=False) as file:  # the lock outlasts it
            yield file
            file.flush()
            os.fsync(sibling.descriptor)
            os.replace(sibling.name, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = path  # a full disk is said with the file that did not fit
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

    It goes when the block ends, with all that is still in it. Those of killed processes go when the next is
    made.
    """
    with suppress(OSError):  # it may be written to but not listed
        for name in filter(_FOLDER_NAME.fullmatch, os.listdir(place)):
            _remove_if_dead(os.path.join(place, name), _OPEN_FOLDER, shutil.rmtree)
    path, descriptor = "", -1
    try:
        while True:
            path = os.path.join(place, f".tfrecord-{secrets.token_hex(8)}.tmp")
            try:
                os.mkdir(path)
            except OSError as error:
                raise _unwritable(error, place) from error
            try:
                descriptor = os.open(path, _OPEN_FOLDER)
            except FileNotFoundError:
                continue  # taken for a dead one's and removed, before it could be locked
            except PermissionError:
                break  # no folder can be opened on this system, so there are no locks either
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
    """Flush the names in a folder to the disk, where that can be done."""
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
