"""Shared code of all workers: the fields of a request, the records of a file, positions."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import tempfile
import threading
from collections.abc import Callable
from typing import Any

Spec = dict[str, Any]
# One pass over the work: returns the number of records, or a dict of "records" and its own measurements
# ("seconds", "rss").
Run = Callable[[], "int | dict[str, Any]"]
Task = Callable[[Spec], Run]


def read_payloads(path: str, limit: int | None = None) -> list[bytes]:
    """The first ``limit`` payloads of a valid file, as in-memory input for the parsers (never measured)."""
    out: list[bytes] = []
    with open(path, "rb") as file:
        while limit is None or len(out) < limit:
            head = file.read(12)
            if len(head) < 12:
                break
            (length,) = struct.unpack("<Q", head[:8])
            out.append(file.read(length))
            file.seek(4, os.SEEK_CUR)
    return out


def frames(path: str) -> list[tuple[int, int]]:
    """Where each record of a good file begins and ends."""
    out, at = [], 0
    with open(path, "rb") as file:
        while len(head := file.read(12)) == 12:
            end = at + 16 + int.from_bytes(head[:8], "little")
            out.append((at, end))
            at = file.seek(end)
    return out


def batches_of(spec: Spec) -> list[list[bytes]]:
    """The request's payloads in batches; a short last batch is dropped."""
    records = read_payloads(spec["path"], spec.get("limit"))
    size = min(spec["batch"], len(records))
    return [records[i : i + size] for i in range(0, len(records) - size + 1, size)]


def draws(spec: Spec) -> list[list[int]]:
    """``spec["draws"]`` lists of ``spec["take"]`` random positions, the same for everyone."""
    rng = random.Random(spec.get("seed", 0))
    return [[rng.randrange(spec["records"]) for _ in range(spec["take"])] for _ in range(spec["draws"])]


def scratch(spec: Spec) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder for the output of a run: in memory if requested and available."""
    memory_folder = "/dev/shm"
    use = spec.get("in_memory") and os.access(memory_folder, os.W_OK)
    return tempfile.TemporaryDirectory(dir=memory_folder if use else None)


def resident(path: str) -> float:
    """The share of a file's pages that are in memory."""
    size = os.path.getsize(path)
    pages = -(-size // mmap.PAGESIZE)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as view:
        flags = (ctypes.c_ubyte * pages)()
        start = ctypes.addressof(ctypes.c_char.from_buffer(view))
        if ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), flags):
            raise OSError("mincore failed")
        return sum(flag & 1 for flag in flags) / pages


def drop_pages(path: str) -> None:
    """Drop a file's cached pages; raises if the kernel keeps them (because some process maps them)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    if (share := resident(path)) > 0.05:
        raise OSError(f"{share:.0%} of {os.path.basename(path)} stay in memory")


def reset_peak() -> None:
    """Restart the peak that `memory` reports."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def memory() -> tuple[int, int]:
    """Current and peak resident bytes of this process."""
    values = {}
    with open("/proc/self/status") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key in ("VmRSS", "VmHWM"):
                values[key] = int(value.split()[0]) * 1024
    return values["VmRSS"], values["VmHWM"]


class OwnMemory:
    """The most memory of its own that the process has during the block: ``peak``, in bytes.

    These are resident pages that belong to no file. They are counted every millisecond.
    """

    def __enter__(self) -> OwnMemory:
        self._done = threading.Event()
        self.peak = own_memory()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.001):
            self.peak = max(self.peak, own_memory())

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, own_memory())


def own_memory() -> int:
    """Resident bytes of this process that belong to no file."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * mmap.PAGESIZE
