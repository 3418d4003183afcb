"""Mixing several sources into one sequence by weights: the source and the record number of each place.

The draws of an epoch depend only on the counts, the weights, the seed and the epoch. So every rank and worker
computes the same global sequence and takes its own places: the weights hold overall and for each worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord.iterator_utils import check_weights
from tfrecord.sampling.permutation import Int64Array, as_count, derive_key, hash_places

__all__ = ["ENDLESS", "MixOrder"]

# The length of an infinite mix: no run gets that far, and the sum of two still fits int64.
ENDLESS = 1 << 60

_DRAWS = 8192


def _uniform(places: Int64Array, key: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each place."""
    bits: npt.NDArray[np.float64] = (hash_places(places, key) >> np.uint64(11)).astype(np.float64)
    return bits * 2.0**-53


class MixOrder:
    """The source of each place of a mix.

    `counts` and `weights` are the sizes and weights of the sources; empty sources and those of weight zero
    never come. In an infinite mix each draw is independent, by the weights. In a finite mix each draw is by
    weight x remaining share, so a source thins out rather than ends early, and every record comes once. A
    finite mix is drawn as a race: each record's time is exponential with its source's rate, which gives
    exactly this distribution.

    Raises:
        ValueError: a count is below 0, or a weight is negative or not finite.
    """

    def __init__(
        self,
        counts: Sequence[int],
        weights: Sequence[float],
        *,
        infinite: bool,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        self.infinite = infinite
        sizes = [as_count(count) for count in counts]
        names = [f"source {i}" for i in range(len(sizes))]
        checked = check_weights(weights, names) if any(weights) else [0.0] * len(weights)
        self._sources = [i for i, (n, w) in enumerate(zip(sizes, checked, strict=True)) if n > 0 and w > 0]
        self._counts = [sizes[i] for i in self._sources]
        largest = max((checked[i] for i in self._sources), default=1.0)
        # Bounded from below, so that times stay finite; no run would notice the difference.
        self._weights = [max(checked[i] / largest, 1e-200) for i in self._sources]
        self._num_sources = len(counts)
        self._key = derive_key("mix", seed, epoch)
        self._restart()

    def __len__(self) -> int:
        if self.infinite:
            return ENDLESS if self._sources else 0
        return sum(self._counts)

    def _restart(self) -> None:
        self._chunks = self._endless() if self.infinite else self._race()
        self._start = 0
        self._ids = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._drawn = np.zeros(self._num_sources, np.int64)

    def draws(self, places: npt.NDArray[Any]) -> tuple[Int64Array, Int64Array]:
        """(source, number) of each place: `number` counts that source's earlier places.

        Places that ascend from call to call are O(1) each; going back restarts the epoch's draws.
        """
        flat = places.astype(np.int64).ravel()
        ids, numbers = np.empty(len(flat), np.int64), np.empty(len(flat), np.int64)
        order = np.argsort(flat, kind="stable")
        at = 0
        while at < len(flat):
            place = int(flat[order[at]])
            if place < self._start:
                self._restart()
            while place >= self._start + len(self._ids):
                self._advance()
            end = at + int(np.searchsorted(flat[order[at:]], self._start + len(self._ids)))
            chosen = order[at:end]
            ids[chosen] = self._ids[flat[chosen] - self._start]
            numbers[chosen] = self._numbers[flat[chosen] - self._start]
            at = end
        return ids.reshape(places.shape), numbers.reshape(places.shape)

    def _advance(self) -> None:
        self._start += len(self._ids)
        self._ids = next(self._chunks)
        self._numbers = np.empty(len(self._ids), np.int64)
        for source in np.unique(self._ids):
            here = np.flatnonzero(self._ids == source)
            self._numbers[here] = self._drawn[source] + np.arange(len(here))
            self._drawn[source] += len(here)

    def _endless(self) -> Iterator[Int64Array]:
        sources = np.array(self._sources, np.int64)
        bounds = np.cumsum(self._weights)
        at = 0
        while True:
            u = _uniform(np.arange(at, at + _DRAWS), self._key) * bounds[-1]
            yield sources[np.minimum(np.searchsorted(bounds, u, "right"), len(sources) - 1)]
            at += _DRAWS

    def _arrivals(self, source: int) -> Iterator[npt.NDArray[np.float64]]:
        """The times at which a source's records come, ascending, in runs: sorted exponentials."""
        count = self._counts[source]
        rate = self._weights[source] / count
        key = derive_key(self._key, "source", self._sources[source])
        time = 0.0
        for start in range(0, count, _DRAWS):
            numbers = np.arange(start, min(start + _DRAWS, count))
            times = time + np.cumsum(-np.log1p(-_uniform(numbers, key)) / ((count - numbers) * rate))
            yield times
            time = float(times[-1])

    def _race(self) -> Iterator[Int64Array]:
        runs = [self._arrivals(i) for i in range(len(self._sources))]
        waiting = [next(run) for run in runs]
        more = [len(times) < count for times, count in zip(waiting, self._counts, strict=True)]
        left = [count - len(times) for times, count in zip(waiting, self._counts, strict=True)]
        while any(len(times) for times in waiting):
            # Beyond the last known time of a source that has more records, nothing is decided yet.
            horizon = min((times[-1] for times, m in zip(waiting, more, strict=True) if m), default=np.inf)
            taken = [int(np.searchsorted(times, horizon, "right")) for times in waiting]
            times = np.concatenate([times[:n] for times, n in zip(waiting, taken, strict=True)])
            ids = np.repeat(np.array(self._sources, np.int64), taken)
            waiting = [times[n:] for times, n in zip(waiting, taken, strict=True)]
            for i, times_left in enumerate(waiting):
                if not len(times_left) and left[i]:
                    waiting[i] = next(runs[i])
                    left[i] -= len(waiting[i])
                more[i] = left[i] > 0
            yield ids[np.argsort(times, kind="stable")]
