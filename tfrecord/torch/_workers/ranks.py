"""Which rank this process is, found when a dataset is read or handed to a worker, not when it is made."""

from __future__ import annotations

import operator
import os
from multiprocessing import parent_process
from typing import Any

import torch.distributed
import torch.utils.data

__all__ = ["Consumer", "RankResolver", "worker_place"]

# Variables that launchers set in each process: torchrun and similar ones, then Open MPI.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


def _checked(rank: Any, world_size: Any, source: str) -> tuple[int, int]:
    try:
        rank, world_size = operator.index(rank), operator.index(world_size)
    except TypeError:
        raise TypeError(
            f"rank and world_size ({source}) must be integers, got {rank!r} and {world_size!r}"
        ) from None
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be 0 .. world_size - 1, got rank {rank} of {world_size} ({source})")
    return rank, world_size


def _from_environment() -> tuple[int, int] | None:
    for rank_name, size_name in _LAUNCHERS:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is None and size not in (None, "1"):
            # Otherwise each process would silently read everything.
            raise ValueError(
                f"{size_name}={size!r} is in the environment, but {rank_name} is not: set it, or give rank="
            )
        if rank is None or size is None:
            continue
        try:
            return _checked(int(rank), int(size), f"{rank_name} and {size_name} in the environment")
        except ValueError as error:
            if "invalid literal" not in str(error):
                raise
            raise ValueError(f"{rank_name}={rank!r} and {size_name}={size!r} are not both integers") from None
    return None


class RankResolver:
    """The rank and world size of a dataset: as given, or from torch.distributed, or from the environment.

    Raises ValueError or TypeError if only one of the two is given, or if they are not valid.
    """

    def __init__(self, rank: int | None = None, world_size: int | None = None) -> None:
        if (rank is None) != (world_size is None):
            raise ValueError("give both rank and world_size, or neither")
        self._given = None if rank is None else _checked(rank, world_size, "as given")
        self._handed: tuple[int, int, int] | None = (
            None  # what the process with this pid found for its workers
        )

    def __call__(self) -> tuple[int, int]:
        """(rank, world size) now."""
        if self._given is not None:
            return self._given
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        parent = parent_process()
        if self._handed is not None and parent is not None and parent.pid == self._handed[0]:
            if torch.utils.data.get_worker_info() is not None:
                return self._handed[1:]
        return _from_environment() or (0, 1)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group, so it uses the parent's rank. A spawned rank, which is not a
        # worker, finds its own.
        return {"_given": self._given, "_handed": (os.getpid(), *self())}


def worker_place() -> tuple[int, int]:
    """(number, count) of this DataLoader worker; (0, 1) outside a worker."""
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Consumer:
    """One reader of an epoch: a worker of a rank."""

    def __init__(self, rank: int, world_size: int, worker: int, num_workers: int) -> None:
        self.rank, self.world_size = rank, world_size
        self.worker, self.num_workers = worker, num_workers

    @property
    def number(self) -> int:
        return self.worker * self.world_size + self.rank

    @property
    def count(self) -> int:
        return self.num_workers * self.world_size
