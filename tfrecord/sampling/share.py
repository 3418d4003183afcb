"""Which items of an epoch one worker of one rank reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tfrecord.sampling.permutation import Int64Array

__all__ = ["SPLITS", "Share"]

SPLITS = ("exact", "drop", "pad")


@dataclass(frozen=True)
class Share:
    """The places of one worker of one rank, starting at place `start` of an epoch of `total` places.

    Place p goes to rank p mod `world_size`; the m-th place of a rank goes to worker m mod `num_workers`, so a
    loader that asks its workers in turn delivers them in order. A "place" may be a batch.

    `split` says what to do if the ranks' shares differ by one: "exact" keeps the difference, "drop" leaves
    out the last places, "pad" repeats places from the beginning (`wrap` maps them).

    Raises:
        ValueError: the rank or worker does not exist, or `split` is unknown.
    """

    total: int
    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1
    split: str = "exact"
    start: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank must be 0 .. world_size - 1, got rank {self.rank} of {self.world_size}")
        if not 0 <= self.worker < self.num_workers:
            raise ValueError(
                f"worker must be 0 .. num_workers - 1, got worker {self.worker} of {self.num_workers}"
            )
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(map(repr, SPLITS))}, got {self.split!r}")
        if self.total < 0 or self.start < 0:
            raise ValueError(f"total and start must be at least 0, got {self.total} and {self.start}")

    @property
    def rank_length(self) -> int:
        """Number of places of the whole rank, all its workers together."""
        left = max(self.total - self.start, 0)
        if self.split == "drop":
            return left // self.world_size
        if self.split == "pad":
            return -(-left // self.world_size)
        return max(0, -(-(self.total - self._first) // self.world_size))

    @property
    def _first(self) -> int:
        return self.start + (self.rank - self.start) % self.world_size

    def __len__(self) -> int:
        return max(0, -(-(self.rank_length - self.worker) // self.num_workers))

    def places(self, begin: int, end: int) -> Int64Array:
        """Places number `begin` to `end` (cut at its length); past `total` they are padding."""
        numbers = np.arange(begin, min(end, len(self)), dtype=np.int64) * self.num_workers + self.worker
        return self._first + numbers * self.world_size

    def wrap(self, places: Int64Array) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
        """Places below `total` to read instead of `places`, and which of them are padding."""
        padding = places >= self.total
        return np.where(padding, (places - self.total) % max(self.total, 1), places), padding

    @property
    def end(self) -> int:
        """The place at which the epoch is over for all ranks."""
        if self.split == "drop":
            return self.start + self.rank_length * self.world_size
        return self.total

    def resume_at(self, taken: int) -> int:
        """The global place from which all ranks go on when each has taken `taken` of its places."""
        return min(self.start + taken * self.world_size, max(self.end, self.start))
