"""Shows the progress of a long call: a tqdm bar, or a callable from the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "Report", "shown"]

Report = Callable[[int, int], object]
"""Called with the amount done and the total."""

Progress = bool | Report | None
"""What callers pass: True for a bar, a callable, or False or None for nothing."""


@contextmanager
def shown(progress: Progress, label: str, *, unit: str = "B") -> Iterator[Report]:
    """The callable to report to while the block runs.

    With True that is a tqdm bar on standard error; if tqdm is not installed, nothing is shown.
    """
    if callable(progress):
        yield progress
        return
    bar = _bar(label, unit) if progress else None
    if bar is None:
        yield lambda done, total: None
        return

    def report(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    with bar:
        yield report


def _bar(label: str, unit: str) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(desc=label, unit=unit, unit_scale=unit == "B")
