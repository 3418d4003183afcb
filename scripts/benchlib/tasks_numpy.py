"""How fast plain NumPy reads the same bytes: the limit for a checked pass over large records."""

from __future__ import annotations

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


TASKS: dict[str, Task] = {"sum": total}
