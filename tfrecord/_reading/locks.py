"""A lock for objects that forked children share."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["ForkSafeLock"]


class ForkSafeLock:
    """A re-entrant lock that is free in a forked child, whatever the parent's threads were doing."""

    def __init__(self) -> None:
        self._of_process: dict[int, Any] = {}  # an RLock for each process that used it, this one last

    def __enter__(self) -> None:
        pid = os.getpid()
        lock = self._of_process.get(pid)
        if lock is None:  # if several threads get here at once, all use the first one's lock
            lock = self._of_process.setdefault(pid, threading.RLock())
        lock.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._of_process[os.getpid()].release()

    def __reduce__(self) -> tuple[Any, ...]:
        return ForkSafeLock, ()
