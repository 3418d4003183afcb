"""What torchdata's StatefulDataLoader does to workers that it restores at the end of a pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from multiprocessing.context import get_spawning_popen
from typing import Any

__all__ = ["LoaderState"]


class LoaderState:
    """Whether the loader that starts this worker restores a pass whose end its loop had already reached.

    Such a loader starts the workers, lets them read ahead, discards the result and starts again. A worker
    cannot tell this from a normal pass: the states of the workers are the same, and only the loader's own
    state says that it had finished. So we look there: a forked worker still has the loader's frame on its
    stack, and a spawned one gets the answer with its copy of the dataset.
    """

    def __init__(self) -> None:
        self._handed: bool | None = None

    @property
    def finished(self) -> bool:
        """The answer, in a worker."""
        return _find() if self._handed is None else self._handed

    def __getstate__(self) -> dict[str, Any]:
        return {"_handed": _find() if get_spawning_popen() is not None else None}


def _find() -> bool:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and "next_iter_state" in frame.f_code.co_varnames:
            state = frame.f_locals.get("next_iter_state")
            return isinstance(state, Mapping) and bool(state.get("_iterator_finished"))
        frame = frame.f_back  # type: ignore[assignment]
    return False
