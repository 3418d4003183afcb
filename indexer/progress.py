"""Shows the progress of a long call: a tqdm bar, or a callable from the caller."""

from __future__ import annotations

import sys
import time
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

    With True that is a tqdm bar on standard error; if tqdm is not installed, a line of numbers on a terminal.
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
        return _Line(label, unit) if sys.stderr is not None and sys.stderr.isatty() else None
    return tqdm(desc=label, unit=unit, unit_scale=unit == "B")


class _Line:
    """What `shown` needs of a bar, as a line that is written over and over."""

    def __init__(self, label: str, unit: str) -> None:
        self.n = self.total = 0
        self._label, self._unit = label, unit
        self._next = 0.0

    def update(self, more: int) -> None:
        self.n += more
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            print(f"\r{self._label}: {self.n:,} of {self.total:,} {self._unit}", end="", file=sys.stderr)
            sys.stderr.flush()

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *exc: object) -> None:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
