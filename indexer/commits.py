"""Replaces several files in a folder all together, even if the process is killed halfway.

The files are written in a temporary folder beside their destinations (see `atomic.folder_beside`). A journal
beside them then says which belongs where. Once the journal is complete, the files count as written: the next
process that uses the folder (`settle`) moves the rest into place. The previous files stay linked until
everything is done, so that a failure can be undone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress

from .atomic import is_at, lock, sync_folder, unwritable
from .names import index_names

__all__ = ["commit", "settle"]

JOURNAL = ".tfrecord-commit"
_BACK = "back"  # in the folder of new files: the moves are being undone
_FOLDER = re.compile(r"\.tfrecord-[0-9a-f]{16}\.tmp")
_MOST_BYTES = 64 << 20
_OPEN = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


def commit(moves: Iterable[tuple[str, str]]) -> None:
    """Rename each first name to the second: all of them, or none after an exception.

    For each folder, the first names are numbers in one temporary folder beside the second names. Indexes
    beside files that are replaced are removed, unless they are among the new files.
    """
    folders: dict[str, list[tuple[str, str]]] = {}
    for temporary, final in moves:
        folders.setdefault(os.path.dirname(final), []).append((temporary, final))
    journals: list[_Journal] = []
    try:
        for folder, inside in folders.items():
            settle(folder)
            journals.append(_Journal.write(folder, inside))
        try:
            for journal in journals:
                journal.forward()
        except BaseException:
            for journal in journals:
                journal.back()
            raise
        for journal in journals:
            journal.remove()
    finally:
        for journal in journals:
            journal.close()


def settle(folder: str) -> None:
    """Finish what a killed process left half done in a folder; wait for a process that is still at work.

    Raises:
        OSError: it cannot be finished; the message says what is left to do.
    """
    path = os.path.join(folder, JOURNAL)
    if not os.path.lexists(path):
        return
    try:
        journal = _Journal.read(folder)
        if journal is None:
            return
        try:
            if os.path.exists(os.path.join(journal.source, _BACK)):
                journal.back()
            else:
                journal.forward()
                journal.remove()
        finally:
            journal.close()
    except OSError as error:
        reason = (
            f"{os.strerror(error.errno or 0)}: the process that wrote a set of files here was killed, and "
            "the files cannot be moved into place. Run any tfrecord command on this folder as a user with "
            "write access"
        )
        raise type(error)(error.errno, reason, path) from error


class _Journal:
    """The moves of one folder: from numbers in its subfolder ``source`` to names."""

    def __init__(self, folder: str, source: str, moves: list[tuple[str, str, bool]], descriptor: int) -> None:
        self.folder = folder
        self.source = source
        self.moves = moves  # number, name, whether a file of that name existed
        self.path = os.path.join(folder, JOURNAL)
        self._descriptor = descriptor

    @classmethod
    def write(cls, folder: str, moves: list[tuple[str, str]]) -> _Journal:
        """Begin: write the journal for files that were all flushed to disk."""
        path = os.path.join(folder, JOURNAL)
        source = os.path.dirname(moves[0][0])
        entries = [
            (os.path.basename(temporary), os.path.basename(final), os.path.lexists(final))
            for temporary, final in moves
        ]
        while True:
            descriptor = os.open(path, _OPEN | os.O_CREAT, 0o666)
            lock(descriptor, wait=True)
            if is_at(descriptor, path) and not os.fstat(descriptor).st_size:
                break
            os.close(descriptor)
            settle(folder)
        journal = cls(folder, source, entries, descriptor)
        try:
            text = json.dumps({"source": os.path.basename(source), "moves": entries}) + "\n.\n"
            with open(descriptor, "wb", closefd=False) as file:
                file.write(text.encode("ascii"))
                file.flush()
                os.fsync(descriptor)
            sync_folder(folder)
        except BaseException:
            journal.remove()
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, folder: str) -> _Journal | None:
        """The moves that a killed process left; None if there is nothing to do. Nothing outside the folder is
        touched, whatever the journal says."""
        path = os.path.join(folder, JOURNAL)
        try:
            descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            return None
        try:
            lock(descriptor, wait=True)
            if not is_at(descriptor, path):
                os.close(descriptor)
                return None
            with open(descriptor, "rb", closefd=False) as file:
                found = _parsed(file.read(_MOST_BYTES))
            if found is None:  # the journal is incomplete, so nothing was moved
                os.unlink(path)
                os.close(descriptor)
                return None
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
            raise
        return cls(folder, os.path.join(folder, found[0]), found[1], descriptor)

    def _new(self, number: str) -> str:
        return os.path.join(self.source, number)

    def _old(self, number: str) -> str:
        return os.path.join(self.source, f"{number}.old")

    def _has_source(self) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(self.source).st_mode)
        except FileNotFoundError:
            return False

    def forward(self) -> None:
        """Move into place what is not there yet, and remove the indexes of the previous files."""
        if not self._has_source():
            return
        names = {name for _, name, _ in self.moves}
        for number, name, was_there in self.moves:
            new, final = self._new(number), os.path.join(self.folder, name)
            if not _is_file(new):
                continue
            if was_there and not os.path.lexists(self._old(number)):
                try:
                    os.link(final, self._old(number), follow_symlinks=False)
                except OSError:  # this file system has no hard links
                    with suppress(FileNotFoundError):
                        os.rename(final, self._old(number))
            try:
                os.replace(new, final)
            except OSError as error:
                raise unwritable(error, final) from error
        for _, name, was_there in self.moves:
            for index in index_names(name) if was_there else ():
                if index not in names:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.folder, index))
        sync_folder(self.folder)

    def back(self) -> None:
        """Undo the moves.

        Raises:
            OSError: undoing failed halfway; the message says where the old and the new files are.
        """
        if not self._has_source():
            self.remove()
            return
        with open(os.path.join(self.source, _BACK), "wb") as mark:
            os.fsync(mark.fileno())
        sync_folder(self.source)
        try:
            for number, name, was_there in self.moves:
                final = os.path.join(self.folder, name)
                if os.path.lexists(self._old(number)):
                    os.replace(self._old(number), final)
                elif not was_there and not os.path.lexists(self._new(number)):
                    with suppress(FileNotFoundError):
                        os.unlink(final)
            sync_folder(self.folder)
        except OSError as error:
            raise self._stuck(error) from error
        self.remove()

    def _stuck(self, error: OSError) -> OSError:
        """Give the folder of new files a name under which nobody removes it."""
        kept = self.source.removesuffix(".tmp") + ".kept"
        with suppress(OSError):
            os.rename(self.source, kept)
            self.source = kept
        self.remove()
        old = [
            f"{number}.old is {name}" for number, name, _ in self.moves if os.path.lexists(self._old(number))
        ]
        new = [f"{number} is {name}" for number, name, _ in self.moves if os.path.lexists(self._new(number))]
        reason = (
            f"{os.strerror(error.errno or 0)}: the files could neither be moved into place nor moved back. "
            f"Previous files in {self.source}: {', '.join(old) or 'none'}; new files not in place: "
            f"{', '.join(new) or 'none'}"
        )
        return type(error)(error.errno, reason, self.folder)

    def remove(self) -> None:
        """End: nothing is left to do."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        if _FOLDER.fullmatch(os.path.basename(self.source)) and self._has_source():
            shutil.rmtree(self.source, ignore_errors=True)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _parsed(content: bytes) -> tuple[str, list[tuple[str, str, bool]]] | None:
    """The folder and the moves of a journal; None if it is incomplete or names anything outside."""
    text, end, rest = content.partition(b"\n.\n")
    if not end or rest:
        return None
    try:
        found = json.loads(text)
        source, moves = found["source"], [(number, name, was) for number, name, was in found["moves"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(source, str) or not _FOLDER.fullmatch(source):
        return None
    for number, name, was_there in moves:
        if not (isinstance(number, str) and number.isascii() and number.isdigit()):
            return None
        if not isinstance(name, str) or os.path.basename(name) != name or "\0" in name:
            return None
        if name in ("", ".", "..", JOURNAL) or not isinstance(was_there, bool):
            return None
    return source, moves
