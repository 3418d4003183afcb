"""The order of the records in an epoch.

An epoch is one global sequence of records: place p holds the record at position `order.positions(p)`. The
order depends only on the number of records, the seed and the epoch, so it is the same for any number of ranks
and workers. It is computed on demand: no list of all positions exists, and any place can be reached at once,
which is how a run resumes.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tfrecord.sampling.permutation import Int64Array, Permutation, as_count, derive_key, hash_places

__all__ = ["BlockOrder", "ListOrder", "Order", "QueueOrder", "StoredOrder", "shuffled_order"]


class Order(Protocol):
    """A global sequence: maps places to positions."""

    def __len__(self) -> int: ...

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        """The positions of the records at these places, each 0 .. len - 1."""
        ...


class StoredOrder:
    """The records in stored order: place p is position p."""

    def __init__(self, count: int) -> None:
        self.count = as_count(count)

    def __len__(self) -> int:
        return self.count

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        return places.astype(np.int64)


class ListOrder:
    """The positions in an array: int64 (n,), which is kept."""

    def __init__(self, listed: Int64Array) -> None:
        self.listed = listed

    def __len__(self) -> int:
        return len(self.listed)

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        found: Int64Array = self.listed[places]
        return found


class BlockOrder:
    """A local shuffle: blocks of neighbours come in random order, and groups of blocks are mixed.

    Each record in a group of `group` blocks (of `block` records each) may come anywhere among the group's
    places. So a disk is read in runs of `block` records, and the page cache needs to hold only a few blocks.
    """

    def __init__(
        self, count: int, *, seed: int = 0, epoch: int = 0, block: int = 1024, group: int = 8
    ) -> None:
        self.count = as_count(count)
        if block < 1 or group < 1:
            raise ValueError(f"block and group must be at least 1, got {block} and {group}")
        self.block, self.group = block, group
        self._seed, self._epoch = derive_key("block", seed), epoch
        num_blocks = -(-self.count // block)
        self._blocks = Permutation(num_blocks, seed=self._seed, epoch=epoch)
        self._missing = num_blocks * block - self.count  # how many records the last block is short of
        short = self._blocks.index(num_blocks - 1) if num_blocks else 0
        self._short_end = (short + 1) * block - self._missing  # the place after the short block's last
        self._mixed: tuple[int, Permutation] | None = None

    def __len__(self) -> int:
        return self.count

    def _group_bounds(self, number: int) -> tuple[int, int]:
        ends = [n * self.group * self.block for n in (number, number + 1)]
        start, end = (at - self._missing if at > self._short_end else at for at in ends)
        return start, min(end, self.count)

    def _group_of(self, place: int) -> int:
        whole = place + self._missing if place >= self._short_end else place
        return whole // (self.group * self.block)

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        flat = places.astype(np.int64).ravel()
        out = np.empty(len(flat), np.int64)
        waiting = np.arange(len(flat))
        while len(waiting):
            number = self._group_of(int(flat[waiting[0]]))
            start, end = self._group_bounds(number)
            inside = (flat[waiting] >= start) & (flat[waiting] < end)
            here = waiting[inside]
            mixed = start + self._permutation(number, end - start).positions(flat[here] - start)
            whole = np.where(mixed >= self._short_end, mixed + self._missing, mixed)
            out[here] = self._blocks.positions(whole // self.block) * self.block + whole % self.block
            waiting = waiting[~inside]
        return out.reshape(places.shape)

    def _permutation(self, number: int, size: int) -> Permutation:
        if self._mixed is None or self._mixed[0] != number:
            seed = derive_key(self._seed, "group", number)
            self._mixed = number, Permutation(size, seed=seed, epoch=self._epoch)
        return self._mixed[1]


class QueueOrder:
    """The order that a shuffle queue of `size` records gives: each record waits a random time in the queue.

    The queue starts with the first `size` records; then one enters for each that leaves. A record stays for a
    random time of up to 2 x `size`, `size` on average. A queue as large as the data is a full shuffle. Unlike
    a real queue, it can be entered at any place; it takes memory for about 4 x `size` integers.
    """

    def __init__(self, count: int, size: int, *, seed: int = 0, epoch: int = 0) -> None:
        self.count = as_count(count)
        if size < 1:
            raise ValueError(f"the queue size is {size!r}; it must be an integer of at least 1")
        self.size = min(int(size), max(self.count, 1))
        self._key = derive_key("queue", seed, epoch)
        self._block: tuple[int, int, Int64Array] | None = None

    def __len__(self) -> int:
        return self.count

    def _first(self, block: int) -> int:
        """The first record that arrives in time block `block` (blocks are 2 x size long)."""
        return min(self.count, self.size + 2 * self.size * block) if block > 0 else 0

    def _leaving(self, block: int) -> tuple[Int64Array, Int64Array]:
        """Records that arrive in a time block, and when they leave, in 2**-32 since that block began."""
        records = np.arange(self._first(block), self._first(block + 1), dtype=np.int64)
        arrival = np.maximum(records - self.size, 0) - 2 * self.size * block
        stay = (hash_places(records, self._key) >> np.uint64(32)) * np.uint64(2 * self.size)
        return records, (arrival << 32) + stay.astype(np.int64)

    def _load(self, block: int) -> tuple[int, int, Int64Array]:
        """(block, first place, records in order) of those that leave in a time block."""
        if self._block is None or self._block[0] != block:
            span = (2 * self.size) << 32
            records, leave = self._leaving(block)
            early = leave < span
            parts, times = [records[early]], [leave[early]]
            first = self._first(block)
            if block > 0:
                records, leave = self._leaving(block - 1)
                late = leave >= span
                first -= int(late.sum())
                parts, times = [records[late], *parts], [leave[late] - span, *times]
            order = np.argsort(np.concatenate(times), kind="stable")
            self._block = block, first, np.concatenate(parts)[order]
        return self._block

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        flat = places.astype(np.int64).ravel()
        out = np.empty(len(flat), np.int64)
        waiting = np.arange(len(flat))
        while len(waiting):
            place = int(flat[waiting[0]])
            guess = 0 if place < self.size else (place - self.size) // (2 * self.size) + 1
            held = self._block
            if held is None or not held[1] <= place < held[1] + len(held[2]):
                held = self._load(guess)
                if not held[1] <= place < held[1] + len(held[2]):
                    held = self._load(guess - 1 if place < held[1] else guess + 1)
            _, first, records = held
            inside = (flat[waiting] >= first) & (flat[waiting] < first + len(records))
            here = waiting[inside]
            out[here] = records[flat[here] - first]
            waiting = waiting[~inside]
        return out.reshape(places.shape)


def shuffled_order(
    count: int, shuffle: bool | str, queue_size: int | None, *, seed: int, epoch: int
) -> StoredOrder | Permutation | BlockOrder | QueueOrder:
    """The order of one epoch: `shuffle` is False, True or "block"; a queue size alone means a queue."""
    if shuffle == "block":
        return BlockOrder(count, seed=seed, epoch=epoch)
    if shuffle:
        return Permutation(count, seed=seed, epoch=epoch)
    if queue_size is not None:
        return QueueOrder(count, queue_size, seed=seed, epoch=epoch)
    return StoredOrder(count)
