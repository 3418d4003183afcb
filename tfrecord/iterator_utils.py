"""Cycling, mixing and shuffling of iterators, with random generators of their own.

The global generators of `random` and NumPy are neither read nor reseeded. Arguments are checked when a
function is called; the sources are opened when the first element is asked for.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from indexer.options import check_count

__all__ = ["check_queue_size", "check_weights", "cycle", "sample_iterators", "shuffle_iterator"]

T = TypeVar("T")

_LEAST = math.ulp(0.0)


def cycle(iterator_fn: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Call ``iterator_fn`` again and again and yield what each call gives.

    It ends after the first call that gives nothing, so that an empty source is no endless loop.
    """
    if not callable(iterator_fn):
        raise TypeError(f"cycle needs a function that gives an iterator, got {type(iterator_fn).__name__}")
    return _cycle(iterator_fn)


def _cycle(iterator_fn: Callable[[], Iterable[T]]) -> Iterator[T]:
    empty = False
    while not empty:
        empty = True
        for element in iterator_fn():
            empty = False
            yield element


def sample_iterators(
    iterators: Sequence[Callable[[], Iterable[T]] | Iterable[T]],
    ratios: Sequence[float],
    infinite: bool = True,
    *,
    seed: int | None = None,
) -> Iterator[T]:
    """Mix several sources: each element comes from source ``i`` with probability ``ratios[i] / sum(ratios)``.

    Args:
        iterators: functions that give an iterator (needed to start a source again), or iterables.
        ratios: one finite weight >= 0 a source, at least one of them positive. A source of weight zero is
            never opened.
        infinite: start an exhausted source again; else leave it out from then on and end with the last one.
        seed: makes the order repeatable; None draws one.

    An empty source is left out. The mix ends when all sources are, also when it is infinite.

    Raises:
        ValueError: at the call, for weights that are not as said.
    """
    sources = list(iterators)
    weights = check_weights(ratios, [f"source {i}" for i in range(len(sources))])
    rng = random.Random(seed)
    enabled = [(source, weight) for source, weight in zip(sources, weights, strict=True) if weight > 0]
    return _sample([source for source, _ in enabled], [weight for _, weight in enabled], infinite, rng)


def check_weights(weights: Iterable[Any], names: Sequence[object]) -> list[float]:
    """The weights of the named sources as floats, the largest 1: only the proportions count, and sums of huge
    ones stay finite.

    Raises:
        ValueError: not one weight a source, one that is no finite number >= 0, or none that is positive.
    """
    given = list(weights)
    if len(given) != len(names):
        raise ValueError(f"there are {len(names)} sources but {len(given)} weights")
    checked = []
    for weight, name in zip(given, names, strict=True):
        try:
            if isinstance(weight, str | bytes):
                raise TypeError
            value = float(weight)
        except OverflowError:  # an integer beyond all floats
            value = math.inf
        except (TypeError, ValueError):
            raise ValueError(f"the weight of {name!r} is {weight!r}; a weight is a number") from None
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"the weight of {name!r} is {weight!r}; weights are finite and not negative")
        checked.append(value)
    largest = max(checked, default=0.0)
    if not largest:
        raise ValueError("at least one weight must be positive")
    # However small, a positive weight stays one: its source has records to give when the others are done.
    return [max(value / largest, _LEAST) if value else 0.0 for value in checked]


def _open(source: Callable[[], Iterable[T]] | Iterable[T], infinite: bool) -> Iterator[T]:
    if callable(source):
        return _cycle(source) if infinite else iter(source())
    # An iterator gives itself again and is then empty, so that a cycle over it ends.
    return _cycle(source.__iter__) if infinite else iter(source)


def _sample(
    sources: list[Callable[[], Iterable[T]] | Iterable[T]],
    weights: list[float],
    infinite: bool,
    rng: random.Random,
) -> Iterator[T]:
    opened: list[Iterator[T] | None] = [None] * len(sources)  # opened when first drawn
    while sources:
        bounds = list(itertools.accumulate(weights))
        while True:
            # Rounding may put the draw on the last bound, which belongs to the last source.
            chosen = min(bisect.bisect_right(bounds, rng.random() * bounds[-1]), len(bounds) - 1)
            iterator = opened[chosen]
            if iterator is None:
                iterator = opened[chosen] = _open(sources[chosen], infinite)
            try:
                element = next(iterator)
            except StopIteration:
                break
            yield element
        del sources[chosen], weights[chosen], opened[chosen]


def shuffle_iterator(iterator: Iterable[T], queue_size: int, *, seed: int | None = None) -> Iterator[T]:
    """Shuffle through a queue: each element comes out of ``queue_size`` waiting ones, drawn at random.

    A queue larger than the data is a full shuffle. ``seed`` makes the order repeatable; None draws one.

    Raises:
        ValueError: at the call, for a queue size that is no integer of at least 1.
    """
    size = check_queue_size(queue_size)
    return _shuffle(iter(iterator), size, random.Random(seed))


def check_queue_size(queue_size: int) -> int:
    """``queue_size`` as an int of at least 1, or a ValueError."""
    return min(check_count(queue_size, "the queue size"), sys.maxsize)


def _shuffle(iterator: Iterator[T], size: int, rng: random.Random) -> Iterator[T]:
    queue = list(itertools.islice(iterator, size))
    for element in iterator:
        drawn = rng.randrange(len(queue))
        yield queue[drawn]
        queue[drawn] = element
    rng.shuffle(queue)
    yield from queue
