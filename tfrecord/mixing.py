"""Mixing several sources into one sequence by weights: which source and which of its records each place is.

The draws of an epoch are a function of the counts, the weights, the seed and the epoch, so every rank and
worker works out the same global sequence and takes its own places of it: weights hold for all and for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._permutation import Int64Array, derive_key, hash_places
from tfrecord.sampling import Order, shuffled_order

__all__ = ["ENDLESS", "MixOrder", "MixedOrder", "check_weights"]

# The length of an infinite mix: no run gets there, and sums of two such still fit int64.
ENDLESS = 1 << 60

_DRAWS = 8192


def check_weights(weights: Iterable[Any], names: Sequence[object]) -> list[float]:
    """The weights as floats, largest 1; ValueError where one is no finite number >= 0 or none is positive."""
    checked = []
    for weight, name in zip(weights, names, strict=True):
        try:
            value = float(weight)
        except (TypeError, ValueError):
            raise ValueError(f"the weight of {name!r} is {weight!r}; a weight is a number") from None
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"the weight of {name!r} is {weight!r}; weights are finite and not negative")
        checked.append(value)
    largest = max(checked, default=0.0)
    if largest <= 0:
        raise ValueError("at least one weight must be positive")
    return [weight / largest for weight in checked]


def _uniform(places: Int64Array, key: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each place."""
    bits: npt.NDArray[np.float64] = (hash_places(places, key) >> np.uint64(11)).astype(np.float64)
    return bits * 2.0**-53


class MixOrder:
    """Which source each place of a mix belongs to.

    `counts` and `weights` are the sources' sizes and weights; empty ones and those of weight zero never come.
    Infinite: each draw is independent, by the weights. Finite: each draw is by weight x share remaining, so a
    source thins out rather than ends early, and every record comes once. A finite mix is drawn as a race:
    each record's time is exponential with its source's rate, which gives that very law.
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
        self._sources = [i for i, (n, w) in enumerate(zip(counts, weights, strict=True)) if n > 0 and w > 0]
        self._counts = [int(counts[i]) for i in self._sources]
        largest = max((float(weights[i]) for i in self._sources), default=1.0)
        # Bounded from below, so that times stay finite; no run would tell the difference.
        self._weights = [max(float(weights[i]) / largest, 1e-200) for i in self._sources]
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

        Places that ascend from call to call are O(1) each; going back starts the epoch's draws again.
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
            # Beyond the last known time of a source that has more, nothing is decided yet.
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


class MixedOrder:
    """A mix as one order over the sources' records laid end to end (source i begins at `sum(counts[:i])`).

    Within a source the records come in its own order; an infinite mix goes through it again and again, each
    time in another order where it is shuffled.
    """

    def __init__(
        self,
        counts: Sequence[int],
        weights: Sequence[float],
        *,
        infinite: bool,
        shuffle: bool | str = False,
        queue_size: int | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        self.mix = MixOrder(counts, weights, infinite=infinite, seed=seed, epoch=epoch)
        self._counts = list(counts)
        self._bases = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._shuffle, self._queue_size = shuffle, queue_size
        self._seed, self._epoch = seed, epoch
        self._orders: dict[int, tuple[int, Order]] = {}

    def __len__(self) -> int:
        return len(self.mix)

    def _order(self, source: int, turn: int) -> Order:
        held = self._orders.get(source)
        if held is None or held[0] != turn:
            seed = derive_key("source", self._seed, source, turn)
            order = shuffled_order(
                self._counts[source], self._shuffle, self._queue_size, seed=seed, epoch=self._epoch
            )
            held = self._orders[source] = turn, order
        return held[1]

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        """The positions at these places, over all sources' records."""
        sources, numbers = self.mix.draws(places)
        out = np.empty(sources.shape, np.int64)
        for source in np.unique(sources).tolist():
            here = sources == source
            turns, within = np.divmod(numbers[here], self._counts[source])
            found = np.empty(len(within), np.int64)
            for turn in np.unique(turns).tolist():
                now = turns == turn
                found[now] = self._order(source, turn).positions(within[now])
            out[here] = found + self._bases[source]
        return out
