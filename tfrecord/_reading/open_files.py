"""A bounded number of open files, whatever the number of files in a data set."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from indexer._engine import kernel
from indexer.files import DataFile, is_url, open_data
from tfrecord._reading.locks import ForkSafeLock

__all__ = ["OpenFiles", "folder_of", "place"]

MAX_OPEN_FILES = 64
# Maps of the compiled kernel keep no descriptor; this only bounds the number of maps.
MAX_MAPPED_FILES = 1024


def folder_of(paths: Iterable[str]) -> str | None:
    """The folder from which these names lead to files; None where they do from everywhere."""
    relative = any(not os.path.isabs(path) and not is_url(path) for path in paths)
    return os.getcwd() if relative else None


def place(path: str, folder: str | None) -> str:
    """The name itself, as long as it leads to the file that it named in ``folder``; else a longer one."""
    if folder is None or is_url(path):
        return path
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was deleted
        here = ""
    return path if here == folder else os.path.join(folder, path)


class OpenFiles:
    """Data files, opened when used; those used last stay open. Safe to use from several threads.

    A file that makes room for another is forgotten, not closed: it goes when nobody uses it any more.
    Names are kept as they were given. Where the working directory has changed since, `place` puts the one of
    then (``folder``) before those that are relative.
    """

    def __init__(self, paths: Sequence[str], *, mmap: bool = True) -> None:
        self._paths = paths
        self.folder = folder_of(paths)
        self._mmap = mmap
        self._limit = MAX_MAPPED_FILES if mmap and kernel is not None else MAX_OPEN_FILES
        self._lock = ForkSafeLock()
        self._open: OrderedDict[int, DataFile] = OrderedDict()

    def place(self, path: str) -> str:
        """A name that leads to the file ``path`` from the present working directory."""
        return place(path, self.folder)

    def get(self, number: int) -> DataFile:
        """File ``number``, open as long as the caller holds it."""
        if len(self._paths) <= self._limit:  # then nothing has to go, and the order does not count
            file = self._open.get(number)
            if file is not None:
                return file
        with self._lock:
            file = self._open.get(number)
            if file is None:
                file = self._open[number] = self._opened(self.place(self._paths[number]))
            else:
                self._open.move_to_end(number)
            return file

    def _opened(self, path: str) -> DataFile:
        while True:
            while len(self._open) >= self._limit:
                self._open.popitem(last=False)
            try:
                return open_data(path, mmap=self._mmap)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self._limit = len(self._open) // 2 + 1  # the process may have fewer open than we thought
                self._open.popitem(last=False)

    def close(self) -> None:
        """Forget all files; views stay valid, and a later `get` opens again."""
        with self._lock:
            self._open.clear()
