"""Histograms of any numbers in one pass and constant memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_BINS = 32
_BLOCKS = "▁▂▃▄▅▆▇█"
# A bin's number must be exact as a float64.
_EXACT_BITS = 50
_LEAST_SHIFT = -250  # finer than any two float32 differ


@dataclass(frozen=True)
class Bar:
    """The count of the numbers from ``low`` up to, but not including, ``high``."""

    low: float
    high: float
    count: int


class Histogram:
    """Counts of numbers in at most 32 bins.

    The width of a bin is a power of two, and its ends are multiples of the width. It grows as numbers come,
    so the result does not depend on their order, and histograms merge exactly.
    """

    def __init__(self) -> None:
        self.shift = 0  # a bin is 2**shift wide
        self.first = 0  # the first bin begins at first * 2**shift
        self.counts = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.counts)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add finite numbers, int64 or float."""
        if not len(values):
            return
        low, high = values.min().item(), values.max().item()
        part = Histogram()
        if values.dtype.kind == "f":
            largest = max(abs(low), abs(high))
            part.shift = math.frexp(largest)[1] - _EXACT_BITS if largest else _LEAST_SHIFT
            span = (high - low) / _BINS
            part.shift = max(part.shift, math.frexp(span)[1] - 1) if span else part.shift
            part.first, last = (math.floor(math.ldexp(end, -part.shift)) for end in (low, high))
            places = np.floor(np.ldexp(values.astype(np.float64), -part.shift)).astype(np.int64)
        else:
            part.shift = max(0, ((high - low) // _BINS).bit_length() - 1)
            part.first, last = low >> part.shift, high >> part.shift
            places = values.astype(np.int64, copy=False) >> part.shift
        extra = 0
        while (last >> extra) - (part.first >> extra) >= _BINS:
            extra += 1
        part.shift, part.first = part.shift + extra, part.first >> extra
        part.counts = np.bincount((places >> extra) - part.first)
        self.merge(part)

    def merge(self, other: Histogram) -> None:
        """Add what another one counted."""
        if not len(other):
            return
        if not len(self):
            self.shift, self.first, self.counts = other.shift, other.first, other.counts.copy()
            return
        shift = max(self.shift, other.shift)
        while True:
            mine, its = self._first_at(shift), other._first_at(shift)
            first = min(mine[0], its[0])
            if max(mine[1], its[1]) - first < _BINS:
                break
            shift += 1
        counts = np.zeros(max(mine[1], its[1]) - first + 1, np.int64)
        for one in (self, other):
            np.add.at(counts, one._places(shift, first), one.counts)
        self.shift, self.first, self.counts = shift, first, counts

    def _first_at(self, shift: int) -> tuple[int, int]:
        """The first and the last bin if bins were this wide."""
        by = shift - self.shift
        return self.first >> by, (self.first + len(self.counts) - 1) >> by

    def _places(self, shift: int, first: int) -> list[int]:
        return [((self.first + i) >> (shift - self.shift)) - first for i in range(len(self.counts))]

    def bars(self) -> list[Bar]:
        """The bins in order, empty ones too."""
        ends = [self._end(i) for i in range(len(self) + 1)]
        return [Bar(ends[i], ends[i + 1], int(count)) for i, count in enumerate(self.counts)]

    def _end(self, place: int) -> float:
        number = self.first + place
        return number << self.shift if self.shift >= 0 else math.ldexp(number, self.shift)


def blocks(counts: Sequence[int], width: int = 16) -> str:
    """Counts as one line of at most ``width`` block characters; "" for fewer than two. Nothing is a space."""
    while len(counts) > width:
        counts = [sum(counts[i : i + 2]) for i in range(0, len(counts), 2)]
    top = max(counts, default=0)
    return "".join(_BLOCKS[(n * 8 - 1) // top] if n else " " for n in counts) if len(counts) > 1 else ""
