"""What the machine gives: plain NumPy over the same bytes, for a checked pass over large records; and plain C
on one thread or two."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from benchlib.common import Run, Spec, Task


def version() -> str:
    """NumPy's version."""
    return str(np.__version__)


def total(spec: Spec) -> Run:
    """The sum of the file's bytes as uint64, from a fresh map each time or from memory."""
    words = int(spec["bytes"]) // 8
    memory: npt.NDArray[np.uint64] | None = None
    if spec["source"] == "memory":
        memory = np.fromfile(spec["path"], np.uint64, words)

    def run() -> int:
        data = memory if memory is not None else np.memmap(spec["path"], np.uint64, "r", shape=(words,))
        data.sum()
        return int(spec["records"])

    return run


def busy(spec: Spec) -> Run:
    """SHA-256 of a small buffer on some threads: C code that needs neither the GIL nor much memory."""
    block, threads, turns = bytes(1 << 16), int(spec["threads"]), 64
    pool = ThreadPoolExecutor(threads)

    def work(count: int) -> None:
        for _ in range(count):
            hashlib.sha256(block).digest()

    def run() -> int:
        list(pool.map(work, [turns // threads] * threads))
        return turns

    return run


TASKS: dict[str, Task] = {"sum": total, "busy": busy}
