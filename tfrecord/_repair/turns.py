"""Puts the output of parallel jobs into the order of the jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

# How many items are kept for jobs whose turn has not come. When there are more, these jobs wait.
_KEPT = 10_000


class Stopped(Exception):
    """Tells the jobs to end."""


class Turns(Generic[Item]):
    """Calls `give` with the items of job 0 as they arrive, then with those of job 1, and so on.

    Every job calls `done` at its end. After `stop` every call raises `Stopped`.
    """

    def __init__(self, give: Callable[[Item], None]) -> None:
        self._give = give
        self._turn = 0
        self._done: set[int] = set()
        self._held: dict[int, list[Item]] = {}
        self._num_held = 0
        self._stopped = False
        self._changed = threading.Condition()

    def put(self, job: int, item: Item) -> None:
        """Give an item of this job, or keep it until it is the job's turn."""
        with self._changed:
            while job != self._turn and self._num_held >= _KEPT and not self._stopped:
                self._changed.wait()
            self.check()
            if job == self._turn:
                self._give(item)
            else:
                self._held.setdefault(job, []).append(item)
                self._num_held += 1

    def done(self, job: int) -> None:
        """Note that this job has put its last item."""
        with self._changed:
            self.check()
            self._done.add(job)
            while self._turn in self._done:
                self._turn += 1
                held = self._held.pop(self._turn, [])
                self._num_held -= len(held)
                for item in held:
                    self._give(item)
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop giving items, and wake the waiting jobs."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise `Stopped` after `stop`."""
        if self._stopped:
            raise Stopped
