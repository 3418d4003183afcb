"""A little memory for each dataset, shared by the process that reads it and its loader's workers.

One region serves all datasets of a process and costs two file descriptors. Each dataset has a table in it
that says which process owns which slot. The owner is the process that iterates a loader; its workers find
its slot in the table. Another process that gets a copy of the dataset, such as a forked or spawned rank, is
its own owner.
"""

from __future__ import annotations

import atexit
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

try:
    import fcntl
except ImportError:  # Windows: no lock between processes for these few instructions
    fcntl = None  # type: ignore[assignment]

__all__ = ["SLOT_WORDS", "SharedWords"]

SLOT_WORDS = 256
_SLOTS = 1 << 14  # in a sparse file: only used slots take memory
_SLOT_BYTES = 8 * SLOT_WORDS
_OWNERS = SLOT_WORDS // 2

Words = npt.NDArray[np.int64]


class _Region:
    """The memory. Slot 0 counts the slots in use."""

    def __init__(self, path: str | None = None) -> None:
        self.pid = os.getpid()
        self.free: list[int] = []
        if path is not None:
            self.path, self.descriptor = path, os.open(path, os.O_RDWR)
        elif hasattr(os, "memfd_create"):
            # The file has no name, so nothing is left behind; a spawned child opens it through /proc.
            self.descriptor = os.memfd_create("tfrecord-epochs", os.MFD_CLOEXEC)
            self.path = f"/proc/{self.pid}/fd/{self.descriptor}"
        else:
            self.descriptor, self.path = tempfile.mkstemp(prefix="tfrecord-epochs-")
            atexit.register(self._remove)
        if path is None:
            os.ftruncate(self.descriptor, _SLOTS * _SLOT_BYTES)
        self._words = np.frombuffer(mmap.mmap(self.descriptor, _SLOTS * _SLOT_BYTES), np.int64)

    def _remove(self) -> None:
        if os.getpid() == self.pid:
            os.unlink(self.path)

    def slot(self, number: int) -> Words:
        return self._words[number * SLOT_WORDS : (number + 1) * SLOT_WORDS]

    def take(self) -> int | None:
        """A cleared slot; None if the region is full."""
        with self.locked(0):
            if self.pid == os.getpid() and self.free:
                number = self.free.pop()
            elif self.slot(0)[0] + 1 < _SLOTS:
                self.slot(0)[0] += 1
                number = int(self.slot(0)[0])
            else:
                return None
            self.slot(number)[:] = 0
            return number

    @contextmanager
    def locked(self, number: int) -> Iterator[None]:
        """Lock a slot against other processes and threads."""
        with _lock:
            if fcntl is not None:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX, _SLOT_BYTES, number * _SLOT_BYTES)
            try:
                yield
            finally:
                if fcntl is not None:
                    fcntl.lockf(self.descriptor, fcntl.LOCK_UN, _SLOT_BYTES, number * _SLOT_BYTES)


_lock = threading.RLock()
_own: list[_Region] = []
_opened: dict[str, _Region] = {}


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _new_table() -> tuple[_Region, int]:
    with _lock:
        _own[:] = [region for region in _own if region.pid == os.getpid()]
        if _own and (number := _own[-1].take()) is not None:
            return _own[-1], number
        _own.append(_Region())
        number = _own[-1].take()
        assert number is not None
        return _own[-1], number


def _give_back(region: _Region, table: int) -> None:
    if region.pid == os.getpid():
        region.free += [table, *(int(slot) for slot in region.slot(table)[1::2] if slot)]


def _owner() -> int:
    """The process that iterates: in a loader's worker, the process that started it."""
    parent = parent_process()
    return parent.pid if get_worker_info() is not None and parent is not None and parent.pid else os.getpid()


class SharedWords:
    """Words (int64) that a process and its loader's workers share, whatever their start method.

    A pickled copy has its own words, except the copy that a process receives when it is started.
    """

    def __init__(self) -> None:
        self.is_new = True  # no other process has these words yet
        self._region, self._table = _new_table()
        weakref.finalize(self, _give_back, self._region, self._table).atexit = False

    @contextmanager
    def locked(self, inherited: int) -> Iterator[Words]:
        """The words, locked. A new owner's words are 0, except the first `inherited` ones, which are copied
        from the first owner."""
        with self._region.locked(self._table):
            yield self._region.slot(self._slot_of(_owner(), inherited))

    def _slot_of(self, owner: int, inherited: int) -> int:
        table = self._region.slot(self._table)
        places = np.flatnonzero(table[0::2] == owner)
        if len(places):
            return int(table[2 * int(places[0]) + 1])
        slot = self._region.take()
        if slot is None:
            raise RuntimeError("processes share too many datasets")
        if table[1]:
            self._region.slot(slot)[:inherited] = self._region.slot(int(table[1]))[:inherited]
        free = np.flatnonzero(table[0::2] == 0)
        place = int(free[0]) if len(free) else self._ended(table)
        table[2 * place], table[2 * place + 1] = owner, slot
        return slot

    def _ended(self, table: Words) -> int:
        """The table entry of an owner that has exited; never the first."""
        for place in range(1, _OWNERS):
            if not is_alive(int(table[2 * place])):
                return place
        raise RuntimeError(f"more than {_OWNERS} processes share a dataset")

    def __getstate__(self) -> Any:
        return (self._region.path, self._table) if get_spawning_popen() is not None else ()

    def __setstate__(self, state: Any) -> None:
        if state:
            path, table = state
            with _lock:
                try:
                    if path not in _opened:
                        _opened[path] = _Region(path)
                    self._region, self._table, self.is_new = _opened[path], table, False
                    return
                except OSError:
                    pass  # the process that made the memory is gone, and the memory with it
        self.__init__()  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    """Whether this process exists."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
