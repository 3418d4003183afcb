"""A bounded number of open files, whatever the number of files in a data set."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from indexer._engine import kernel
from indexer.files import DataFile, open_data
from tfrecord._damage import ForkSafeLock

__all__ = ["OpenFiles"]

MAX_OPEN_FILES = 64
# Maps of the compiled kernel keep no descriptor; this only bounds the number of maps.
MAX_MAPPED_FILES = 1024


class OpenFiles:
    """Data files, opened when used; a bounded number stays open. Safe to use from several threads.

    Views of a file outlive its closing (see `DataFile`), so that a file may go at any time that nobody is in
    the middle of reading it.
    """

    def __init__(self, paths: Sequence[str], *, mmap: bool = True) -> None:
        self._paths = paths
        self._mmap = mmap
        self._limit = MAX_MAPPED_FILES if mmap and kernel is not None else MAX_OPEN_FILES
        self._lock = ForkSafeLock()
        self._open: OrderedDict[int, DataFile] = OrderedDict()
        self._users: dict[int, int] = {}

    @contextmanager
    def use(self, number: int) -> Iterator[DataFile]:
        """File ``number``, open until the end of the block at least."""
        file = self.acquire(number)
        try:
            yield file
        finally:
            self.release(number)

    def acquire(self, number: int) -> DataFile:
        """File ``number``, open until `release` at least."""
        with self._lock:
            file = self._open.get(number)
            if file is None:
                self._close_unused(self._limit - 1)
                file = self._open[number] = open_data(self._paths[number], mmap=self._mmap)
            else:
                self._open.move_to_end(number)
            self._users[number] = self._users.get(number, 0) + 1
            return file

    def release(self, number: int) -> None:
        with self._lock:
            left = self._users[number] - 1
            if left:
                self._users[number] = left
            else:
                del self._users[number]

    def _close_unused(self, keep: int) -> None:
        """Close those used longest ago, until ``keep`` are open or the rest is in use."""
        while len(self._open) > keep:
            unused = next((number for number in self._open if number not in self._users), None)
            if unused is None:
                return
            self._open.pop(unused).close()

    def close(self) -> None:
        """Close what is not in use; views stay valid, and a later `use` opens again."""
        with self._lock:
            self._close_unused(0)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._paths, self._mmap)


def _rebuild(paths: Sequence[str], mmap: bool) -> OpenFiles:
    return OpenFiles(paths, mmap=mmap)
