"""Shared memory that a worker uses again and again to hand batches to the main process.

New shared memory costs a page fault every few kilobytes, which is more than the copy itself. So a worker
keeps a few blocks. It fills a free one and sends its name; the receiver copies the batch out and marks the
block free. If no block is available (none is free, or the system has no memfd), the caller sends the bytes.
"""

from __future__ import annotations

import mmap
import os
import secrets
from dataclasses import dataclass

__all__ = ["Block", "release", "take", "view"]

_HEAD = 64  # byte 0 says whether the block is in use; the serial number is in bytes 8 to 16
_SERIAL = slice(8, 16)
_MOST_BLOCKS = 8
_SMALLEST = 1 << 20


@dataclass(frozen=True)
class Block:
    """Where to find a block while the process that made it lives.

    The system reuses process ids and descriptors, so only `serial` tells a block from a later one.
    """

    pid: int
    descriptor: int
    size: int
    serial: bytes

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/fd/{self.descriptor}"


class _Blocks:
    """The blocks that this process fills."""

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
            block = Block(self.pid, descriptor, whole, secrets.token_bytes(8))
            memory = self.maps[block] = mmap.mmap(descriptor, whole)
            memory[_SERIAL] = block.serial
        except OSError:
            return None
        return block

    def _drop(self, block: Block) -> None:
        del self.maps[block]
        os.close(block.descriptor)


_own: _Blocks | None = None
_opened: dict[str, tuple[Block, mmap.mmap]] = {}  # by path: a new block replaces the one before it


def take(size: int) -> Block | None:
    """A free block of at least `size` bytes, or None; fill `view(block)`, then send the block."""
    global _own
    if not hasattr(os, "memfd_create"):
        return None
    if _own is None or _own.pid != os.getpid():
        _own = _Blocks()
    return _own.take(size)


def view(block: Block) -> memoryview:
    """The memory of a block of this process or of another. OSError if that process or block is gone."""
    if _own is not None and block in _own.maps:
        return memoryview(_own.maps[block])[_HEAD:]
    return memoryview(_open(block))[_HEAD:]


def _open(block: Block) -> mmap.mmap:
    """The map of another process's block."""
    held = _opened.get(block.path)
    if held is not None and held[0] == block:
        return held[1]
    for path in [path for path in _opened if not os.path.exists(path)]:
        del _opened[path]  # its process has ended
    descriptor = os.open(block.path, os.O_RDWR)
    try:
        memory = mmap.mmap(descriptor, block.size)
    except ValueError:  # shorter than the block
        raise OSError(f"{block.path} holds another block") from None
    finally:
        os.close(descriptor)
    if memory[_SERIAL] != block.serial:
        raise OSError(f"{block.path} holds another block")
    _opened[block.path] = block, memory
    return memory


def release(block: Block) -> None:
    """Mark a block free, once the receiver has copied what it needs."""
    _open(block)[0] = 0
