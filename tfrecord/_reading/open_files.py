"""A bounded number of open files, whatever the number of files in a data set."""

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
# Maps of the compiled kernel can do without a descriptor; this only bounds the number of maps.
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
    """Data files, each the same file from its first use on: also after it is renamed, replaced or deleted.

    So many stay open; where there are more files, those used last. A file that makes room for another is
    forgotten, not closed: it goes when nobody uses it any more. Where another file has its name by the time
    it is opened again, that is an error. Safe to use from several threads.

    Names are kept as they were given. Where the working directory has changed since, `place` puts the one of
    then (``folder``) before those that are relative.
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
        self._streams: set[int] = set()  # what can only be read forward
        self._remote: dict[int, DataFile] = {}  # these take no descriptors

    def place(self, path: str) -> str:
        """A name that leads to the file ``path`` from the present working directory."""
        return place(path, self.folder)

    def get(self, number: int) -> DataFile:
        """File ``number``, open as long as the caller holds it."""
        if is_url(self._paths[number]):
            return self._remote.get(number) or self._remote.setdefault(number, self._opened(number))
        if len(self._paths) <= self._limit:  # then nothing has to go, and the order does not count
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
        """File ``number`` if it can be read at any place; None for pipes, and what only says that it has no
        bytes."""
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
                self._limit = len(self._open) // 2 + 1  # the process may have fewer open than we thought
                self._open.popitem(last=False)
        if self._identities.setdefault(number, file.identity) != file.identity:
            raise StaleIndexError(self._paths[number], None, "another file has taken its place")
        return file

    def close(self) -> None:
        """Forget all files; views stay valid."""
        with self._lock:
            self._open.clear()
            self._remote.clear()
