"""Many ranges of one object as few requests, and taking them out of what arrives."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["NEAR", "PendingRanges", "UInt64Array", "join_ranges"]

UInt64Array = npt.NDArray[np.uint64]

# The cost of a request, as bytes that could be read in the same time: closer ranges become one request.
NEAR = 128 << 10
# Requests for ranges never read more than this many times what was asked for, plus one gap.
_MOST_WASTE = 8


class PendingRanges(NamedTuple):
    """Ranges that are being fetched; see `Store.start_ranges`."""

    futures: Sequence[Future[Any]]
    places: UInt64Array

    def result(self) -> tuple[memoryview, UInt64Array]:
        """Wait for all: (buffer, positions). Raises the first failure and cancels the other requests."""
        try:
            parts = [future.result() for future in self.futures]
        except BaseException:
            self.cancel()
            raise
        buffer = memoryview(parts[0]) if len(parts) == 1 else memoryview(b"".join(parts))
        return buffer.toreadonly(), self.places

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()


def join_ranges(
    starts: UInt64Array, ends: UInt64Array, gap: int, walls: UInt64Array | None = None
) -> tuple[UInt64Array, UInt64Array, npt.NDArray[np.int64]]:
    """Requests for ranges: (starts, ends, which request holds each range).

    Ranges that overlap, or lie at most ``gap`` bytes apart, become one, as long as all requests together
    read at most 8 times the bytes wanted, plus 128 KiB. None crosses one of the ``walls`` (sorted).
    """
    if not len(starts):
        return starts, ends, np.zeros(0, np.int64)
    order = np.argsort(starts, kind="stable")
    begins, reach = starts[order], np.maximum.accumulate(ends[order])
    holes = begins[1:].astype(np.int64) - reach[:-1].astype(np.int64)
    wanted = int(reach[-1] - begins[0]) - int(holes[holes > 0].sum())
    # Bridge the smallest gaps first, as many as the limit allows.
    sizes = np.sort(holes[(holes > 0) & (holes <= gap)])
    filled = np.cumsum(sizes)
    allowed = (_MOST_WASTE - 1) * wanted + NEAR
    fitting = int(np.searchsorted(filled, allowed, side="right"))
    if fitting < len(sizes):
        gap = int(sizes[fitting]) - 1
    apart = holes > gap
    if walls is not None and len(walls):
        apart |= np.diff(np.searchsorted(walls, begins)) > 0
    first = np.concatenate(([True], apart))
    heads = np.flatnonzero(first)
    which = np.empty(len(starts), np.int64)
    which[order] = np.cumsum(first) - 1
    return begins[heads], reach[np.append(heads[1:], len(starts)) - 1], which
