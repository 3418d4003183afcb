"""Kills processes while they fill a cache, at places spread over all that they do: run by `test_cache.py`.

The objects are in memory, so that a forked child can fetch them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import fsspec

from indexer.stores import StoreOptions
from indexer.stores import cache as cache_module
from indexer.stores.cache import Cache
from indexer.stores.urls import FsspecStore

SIZE = 5000
FILES = {name: bytes([ord(name)]) * SIZE for name in "abc"}
STORE = FsspecStore("memory://killing", StoreOptions())


def read_all(folder: str, limit: int) -> bool:
    """Whether every object that the cache gives is whole; it need not have room."""
    cache = Cache(StoreOptions(cache=folder, cache_bytes=limit))
    for name, data in FILES.items():
        descriptor = cache.get(STORE, STORE.stat(name))
        if descriptor is not None:
            with os.fdopen(descriptor, "rb") as file:
                if file.read() != data:
                    return False
    return True


def forked(folder: str, limit: int, kill_at: int = 0) -> int:
    """A child that reads all; it dies at its ``kill_at``-th call. Returns its pid."""
    child = os.fork()
    if child:
        return child
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill_at:
        sys.setprofile(count)
    try:
        os._exit(0 if read_all(folder, limit) else 1)
    finally:
        os._exit(2)


def whole(folder: str) -> bool:
    """Whether each object that is there under its final name is whole."""
    for path in Path(folder).glob("*.object"):
        # The other process may evict it meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if path.read_bytes() not in FILES.values():
                return False
    return True


def main(folder: str, kills: int) -> str:
    """What went wrong, or how many were killed."""
    cache_module._POLL = 0.002
    fsspec.filesystem("memory").pipe({f"/killing/{name}": data for name, data in FILES.items()})
    died = number = 0
    while died < kills and number < 2 * kills:
        number += 1
        place = os.path.join(folder, str(number // 20))
        for path in Path(place).glob("*.object"):
            path.unlink()
        limit = (2 if number % 2 else 9) * SIZE
        first = forked(place, limit, 20 + 7 * (number % 100))
        second = forked(place, limit)  # at the same time
        died += os.WIFSIGNALED(os.waitpid(first, 0)[1])
        if not whole(place):
            return f"kill {number} left half an object"
        if os.waitpid(second, 0)[1]:
            return f"kill {number}: another process failed"
        if sum(path.stat().st_size for path in Path(place).iterdir()) > limit:
            return f"kill {number}: more than cache_bytes"
    return f"{died} killed"


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2])))
