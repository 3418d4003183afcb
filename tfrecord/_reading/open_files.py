"""Keeps the number of open files bounded, however many files a data set has."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from indexer._engine import kernel
from indexer.errors import StaleIndexError
from indexer.files import DataFile, is_url, most_descriptors, open_data
from tfrecord._reading.locks import ForkSafeLock

__all__ = ["OpenFiles", "folder_of", "place"]

MAX_OPEN_FILES = 64
# Maps of the compiled kernel do not need a descriptor; this only bounds the number of maps.
MAX_MAPPED_FILES = 1024


def folder_of(paths: Iterable[str]) -> str | None:
    """The folder that these names are relative to; None if all are absolute."""
    relative = any(not os.path.isabs(path) and not is_url(path) for path in paths)
    return os.getcwd() if relative else None


def place(path: str, folder: str | None) -> str:
    """The name itself, as long as it leads to the same file as in ``folder``; else a longer name."""
    if folder is None or is_url(path):
        return path
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was deleted
        here = ""
    return path if here == folder else os.path.join(folder, path)


class OpenFiles:
    """Data files, each the same file from its first use on, even after it is renamed, replaced or deleted.

    A limited number stay open: those used last. A file that makes room for another is not closed but only
    released, so it stays open until nobody uses it any more. If another file has its name when it is opened
    again, that is an error. Safe to use from several threads.

    Names are kept as given. If the working directory has changed since then, `place` resolves relative names
    against the earlier one (``folder``).
    """

    def __init__(self, paths: Sequence[str], *, mmap: bool = True) -> None:
        self._paths = paths
        self.folder = folder_of(paths)
        self._mmap = mmap
        self._limit = (
            MAX_MAPPED_FILES if mmap and kernel is not None else min(MAX_OPEN_FILES, most_descriptors())
        )
        self._lock = ForkSafeLock()
        self._open: OrderedDict[int, DataFile] = OrderedDict()
        self._identities: dict[int, tuple[int, int] | None] = {}
        self._streams: set[int] = set()  # files that can only be read forward
        self._remote: dict[int, DataFile] = {}  # these take no descriptors

    def place(self, path: str) -> str:
        """A name that leads to the file ``path`` from the current working directory."""
        return place(path, self.folder)

    def get(self, number: int) -> DataFile:
        """File ``number``, which stays open as long as the caller holds it."""
        if is_url(self._paths[number]):
            return self._remote.get(number) or self._remote.setdefault(number, self._opened(number))
        if len(self._paths) <= self._limit:  # nothing has to make room, so the order does not matter
            file = self._open.get(number)
            if file is not None:
                return file
        with self._lock:
            file = self._open.get(number)
            if file is None:
                file = self._open[number] = self._opened(number)
            else:
                self._open.move_to_end(number)
            return file

    def local(self, number: int) -> DataFile | None:
        """File ``number`` if it allows random access; None for pipes, and for files that report a size of 0
        but have content."""
        path = self._paths[number]
        if number in self._streams:
            return None
        if not is_url(path) and number not in self._open and not os.path.isfile(self.place(path)):
            if os.path.exists(self.place(path)):
                self._streams.add(number)
                return None
        file = self.get(number)
        return file if file.size else None

    def _opened(self, number: int) -> DataFile:
        path = self.place(self._paths[number])
        while True:
            while len(self._open) >= self._limit and not is_url(path):
                self._open.popitem(last=False)
            try:
                file = open_data(path, mmap=self._mmap)
                break
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self._limit = len(self._open) // 2 + 1  # the process may open fewer files than expected
                self._open.popitem(last=False)
        if self._identities.setdefault(number, file.identity) != file.identity:
            raise StaleIndexError(self._paths[number], None, "another file has replaced it")
        return file

    def close(self) -> None:
        """Release all files; views stay valid."""
        with self._lock:
            self._open.clear()
            self._remote.clear()
