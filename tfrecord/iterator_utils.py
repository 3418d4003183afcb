"""Cycling, mixing and shuffling of iterators, with private random generators.

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

from indexer.options import check_count, suggests_options

__all__ = ["check_queue_size", "check_weights", "cycle", "sample_iterators", "shuffle_iterator"]

T = TypeVar("T")

_LEAST = math.ulp(0.0)


def cycle(iterator_fn: Callable[[], Iterable[T]]) -> Iterator[T]:
    """Call ``iterator_fn`` again and again and yield the elements of each result.

    It ends after the first empty result, so an empty source does not loop forever.
    """
    if not callable(iterator_fn):
        raise TypeError(f"cycle needs a function that returns an iterator, got {type(iterator_fn).__name__}")
    return _cycle(iterator_fn)


def _cycle(iterator_fn: Callable[[], Iterable[T]]) -> Iterator[T]:
    empty = False
    while not empty:
        empty = True
        for element in iterator_fn():
            empty = False
            yield element


@suggests_options
def sample_iterators(
    iterators: Sequence[Callable[[], Iterable[T]] | Iterable[T]],
    ratios: Sequence[float],
    infinite: bool = True,
    *,
    seed: int | None = None,
) -> Iterator[T]:
    """Mix several sources: each element comes from source ``i`` with probability ``ratios[i] / sum(ratios)``.

    Args:
        iterators: functions that return an iterator (needed to restart a source), or iterables.
        ratios: one finite weight >= 0 per source, at least one of them positive. A source of weight zero is
            never opened.
        infinite: start an exhausted source again; else leave it out from then on and end with the last one.
        seed: makes the order repeatable; None draws one.

    An empty source is left out. If all sources are empty, the mix ends, even if it is infinite.

    Raises:
        ValueError: the weights are invalid; raised at the call.
    """
    sources = list(iterators)
    weights = check_weights(ratios, [f"source {i}" for i in range(len(sources))])
    rng = random.Random(seed)
    enabled = [(source, weight) for source, weight in zip(sources, weights, strict=True) if weight > 0]
    return _sample([source for source, _ in enabled], [weight for _, weight in enabled], infinite, rng)


def check_weights(weights: Iterable[Any], names: Sequence[object]) -> list[float]:
    """The weights of the named sources as floats, scaled so that the largest is 1. Only proportions matter,
    and sums of huge weights stay finite.

    Raises:
        ValueError: there is not one weight per source, a weight is not a finite number >= 0, or none is
            positive.
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
            raise ValueError(f"the weight of {name!r} is {weight!r}; a weight must be a number") from None
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"the weight of {name!r} is {weight!r}; it must be finite and not negative")
        checked.append(value)
    largest = max(checked, default=0.0)
    if not largest:
        raise ValueError("at least one weight must be positive")
    # A positive weight stays positive, however small: its source still has records when the others are done.
    return [max(value / largest, _LEAST) if value else 0.0 for value in checked]


def _open(source: Callable[[], Iterable[T]] | Iterable[T], infinite: bool) -> Iterator[T]:
    if callable(source):
        return _cycle(source) if infinite else iter(source())
    # An iterator returns itself and is then empty, so a cycle over it ends.
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
            # Rounding may place the draw on the last bound, which belongs to the last source.
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


@suggests_options
def shuffle_iterator(iterator: Iterable[T], queue_size: int, *, seed: int | None = None) -> Iterator[T]:
    """Shuffle with a queue: each element is drawn at random from ``queue_size`` waiting ones.

    A queue larger than the data is a full shuffle. ``seed`` makes the order repeatable; None draws one.

    Raises:
        ValueError: the queue size is not an integer of at least 1; raised at the call.
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
