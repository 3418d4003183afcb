"""Shared memory that a worker uses again and again to hand batches to the main process.

Fresh shared memory costs a page fault for every few kilobytes, more than the copy itself. So a worker keeps
a few
blocks: it fills a free one and sends its name; the receiver copies the batch out and marks the block free.
Where a block cannot be had (none is free, or the system has no memfd) the caller sends the bytes themselves.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

__all__ = ["Block", "release", "take", "view"]

_HEAD = 64  # byte 0 says whether the block is in use
_MOST_BLOCKS = 8
_SMALLEST = 1 << 20


@dataclass(frozen=True)
class Block:
    """Where a block is to be found while the process that made it lives."""

    pid: int
    descriptor: int
    size: int

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/fd/{self.descriptor}"


class _Blocks:
    """The blocks of this process, as the one that fills them."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.maps: dict[Block, mmap.mmap] = {}

    def take(self, size: int) -> Block | None:
        free = [block for block, memory in self.maps.items() if not memory[0]]
        fitting = [block for block in free if block.size - _HEAD >= size]
        block = min(fitting, key=lambda one: one.size) if fitting else None
        if block is None:
            if len(self.maps) >= _MOST_BLOCKS:
                if not free:
                    return None
                self._drop(free[0])
            block = self._make(size)
        if block is not None:
            self.maps[block][0] = 1
        return block

    def _make(self, size: int) -> Block | None:
        whole = _SMALLEST
        while whole < size + _HEAD:
            whole *= 2
        try:
            descriptor = os.memfd_create("tfrecord-batch", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, whole)
            block = Block(self.pid, descriptor, whole)
            self.maps[block] = mmap.mmap(descriptor, whole)
        except OSError:
            return None
        return block

    def _drop(self, block: Block) -> None:
        del self.maps[block]
        os.close(block.descriptor)


_own: _Blocks | None = None
_opened: dict[Block, mmap.mmap] = {}


def take(size: int) -> Block | None:
    """A free block of at least `size` bytes, or None; fill `view(block)`, then send the block."""
    global _own
    if not hasattr(os, "memfd_create"):
        return None
    if _own is None or _own.pid != os.getpid():
        _own = _Blocks()
    return _own.take(size)


def view(block: Block) -> memoryview:
    """The memory of a block, of this process or of another one. OSError where that other one is gone."""
    if block.pid == os.getpid() and _own is not None:
        return memoryview(_own.maps[block])[_HEAD:]
    memory = _opened.get(block)
    if memory is None:
        for other in [other for other in _opened if not os.path.exists(other.path)]:
            del _opened[other]  # its process has ended
        descriptor = os.open(block.path, os.O_RDWR)
        try:
            memory = _opened[block] = mmap.mmap(descriptor, block.size)
        finally:
            os.close(descriptor)
    return memoryview(memory)[_HEAD:]


def release(block: Block) -> None:
    """The receiver has copied what it needs."""
    _opened[block][0] = 0
