"""One epoch of a mix: items of several sources, in the order in which they are drawn."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._reading.rows import RowBatch, join_sources
from tfrecord.sampling.mixing import MixOrder
from tfrecord.sampling.permutation import Int64Array
from tfrecord.sampling.plans import Plan
from tfrecord.torch._producer import BoolArray, Finish, finish_batch
from tfrecord.torch._readahead import Later
from tfrecord.torch._single import TFRecordDataset
from tfrecord.torch._source import Source, SourceAhead
from tfrecord.torch._workers.ranks import Consumer

__all__ = ["DrawOrder", "MixedBatches", "MixedItems", "MixedPass", "MixedRecords", "mixed_payloads"]


class DrawOrder:
    """The draws of one pass of a mix, numbered from `start`."""

    def __init__(self, count: int, start: int) -> None:
        self.count, self.start = count, start

    def __len__(self) -> int:
        return self.count

    def positions(self, places: npt.NDArray[Any]) -> Int64Array:
        return places.astype(np.int64) + self.start


class MixedItems:
    """Items of a plan over draws, each from the pass of the mix that its draws belong to."""

    def __init__(self, plan: Plan, make: Callable[[int], MixedPass]) -> None:
        self._plan, self._make = plan, make
        self._held: tuple[int, MixedPass] | None = None

    def _pass(self, number: int) -> MixedPass:
        if self._held is None or self._held[0] != number:
            self._held = number, self._make(number)
        return self._held[1]

    def __call__(self, items: Int64Array, padding: BoolArray, later: Later | None = None) -> Iterator[Any]:
        draws, row_splits = self._plan.records(items)
        length = max(len(self._pass(0).mix), 1)
        numbers = draws[row_splits[:-1]] // length
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(items)]
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            if begin < end:
                splits = row_splits[begin : end + 1]
                own = draws[splits[0] : splits[-1]]
                number = int(numbers[begin])
                following = None if later is None else partial(self._following, later, number, length)
                yield from self._pass(number).items(
                    own - number * length, splits - splits[0], padding[begin:end], following
                )

    def _following(self, later: Later, number: int, length: int, window: int) -> Int64Array:
        """The draws of a later window that belong to the same pass."""
        items = later(window)
        if not len(items):
            return items
        draws = self._plan.records(items)[0] - number * length
        return draws[(draws >= 0) & (draws < length)]


@dataclass
class MixedPass(ABC):
    """One pass of a mix. A source that runs out starts another pass of its own."""

    datasets: list[TFRecordDataset]
    mix: MixOrder
    counts: list[int]
    epoch: int
    _held: dict[int, tuple[int, Any]] = field(default_factory=dict, init=False)
    _known: dict[bytes, tuple[Int64Array, Int64Array]] = field(default_factory=dict, init=False)

    @abstractmethod
    def items(
        self, draws: Int64Array, row_splits: Int64Array, padding: BoolArray, later: Later | None
    ) -> Iterator[Any]:
        """The items that hold these draws. `later` gives the draws of the n-th window after these."""

    def _resolve(self, draws: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(source, number in that source) of each draw."""
        return self.mix.draws(draws)

    def _now(self, draws: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`_resolve` of the draws that are read now."""
        return self._known.pop(draws.tobytes(), None) or self._resolve(draws)

    def _later(self, later: Later, number: int, window: int) -> Int64Array:
        """What `_resolve` gives for one source's draws of a later window. It is kept until they are read,
        because a mix can go back only by drawing everything again."""
        draws = later(window)
        if not len(draws):
            return draws
        key = draws.tobytes()
        if key not in self._known:
            self._known[key] = self._resolve(draws)
        sources, found = self._known[key]
        chosen: Int64Array = found[sources == number]
        return chosen

    def _of_pass(self, number: int, source_pass: int, make: Callable[[int, int], Any]) -> Any:
        """The result of `make` for a source's pass, cached until the next pass."""
        held = self._held.get(number)
        if held is None or held[0] != source_pass:
            held = self._held[number] = source_pass, make(number, source_pass)
        return held[1]

    def _passes(self, number: int, drawn: Int64Array) -> Iterator[tuple[int, BoolArray, Int64Array]]:
        """(pass, which draws, places in that pass) of a source's draws."""
        passes, places = np.divmod(drawn, self.counts[number])
        for source_pass in np.unique(passes).tolist():
            here = passes == source_pass
            yield source_pass, here, places[here]


@dataclass
class MixedRecords(MixedPass):
    """Items of the sources, each finished by its own source's options."""

    finishes: list[Finish]

    def _make(self, number: int, source_pass: int) -> Any:
        return self.datasets[number].produce(self.epoch, source_pass, self.finishes[number])

    def _items(
        self, number: int, drawn: Int64Array, padding: BoolArray, later: Later | None
    ) -> Iterator[Any]:
        for source_pass, here, places in self._passes(number, drawn):
            following = None if later is None else partial(self._places, later, number, source_pass)
            yield from self._of_pass(number, source_pass, self._make)(places, padding[here], following)

    def _places(self, later: Later, number: int, source_pass: int, window: int) -> Int64Array:
        """The places in a source's pass of its draws of a later window."""
        passes, places = np.divmod(self._later(later, number, window), self.counts[number])
        chosen: Int64Array = places[passes == source_pass]
        return chosen

    def items(
        self, draws: Int64Array, row_splits: Int64Array, padding: BoolArray, later: Later | None
    ) -> Iterator[Any]:
        sources, drawn = self._now(draws)
        running = {}
        for number in np.unique(sources).tolist():
            here = sources == number
            running[number] = self._items(number, drawn[here], padding[here], later)
        return (next(running[number]) for number in sources.tolist())


@dataclass
class MixedBatches(MixedPass):
    """Batches that mix records of all sources."""

    finish: Finish
    decoding: Source
    _ahead: dict[int, SourceAhead] = field(default_factory=dict, init=False)

    def _make(self, number: int, source_pass: int) -> Any:
        return self.datasets[number].plan(self.epoch, source_pass)

    def _resolve(self, draws: Int64Array) -> tuple[Int64Array, Int64Array]:
        """(source, position in it) of each draw."""
        sources, drawn = super()._resolve(draws)
        positions = np.empty(len(draws), np.int64)
        for number in np.unique(sources).tolist():
            here = np.flatnonzero(sources == number)
            for source_pass, some, places in self._passes(number, drawn[here]):
                plan = self._of_pass(number, source_pass, self._make)
                positions[here[some]] = plan.records(places)[0]
        return sources, positions

    def items(
        self, draws: Int64Array, row_splits: Int64Array, padding: BoolArray, later: Later | None
    ) -> Iterator[Any]:
        sources, positions = self._now(draws)
        told = []
        for number in np.unique(sources).tolist():
            here = sources == number
            if number not in self._ahead:
                self._ahead[number] = self.datasets[number].source.readahead()
            ahead = self._ahead[number]
            ahead.window(positions[here], None if later is None else partial(self._later, later, number))
            told.append((ahead, np.append(0, np.cumsum(here))))
        self.decoding.prepare()
        self.finish.check(self.decoding)
        bounds = row_splits.tolist()
        for i, padded in enumerate(padding.tolist()):
            own = slice(bounds[i], bounds[i + 1])
            for ahead, counts in told:
                ahead.reach(int(counts[bounds[i + 1]]))
            rows = self._rows(sources[own], positions[own])
            yield finish_batch(self.decoding, rows.payloads, rows.locate, padded, self.finish)

    def _rows(self, sources: Int64Array, positions: Int64Array) -> RowBatch:
        """The payloads of a batch in its order."""
        parts, rows = [], []
        for number in np.unique(sources).tolist():
            here = np.flatnonzero(sources == number)
            found = self.datasets[number].source.fetch(positions[here])
            parts.append(found)
            # If damaged records were skipped, we do not know which ones: the others move up.
            rows.append(here[: len(found)])
        return join_sources(parts).take(np.argsort(np.concatenate(rows), kind="stable"))


def mixed_payloads(
    datasets: Sequence[TFRecordDataset],
    weights: Sequence[float],
    infinite: bool,
    epoch: int,
    consumer: Consumer,
    rng: random.Random,
) -> Iterator[tuple[tuple[int, str], int, Any]]:
    """Payloads drawn by weight from one consumer's shares of sources without positions, until they run out
    (or forever): ((source, path), record, payload)."""
    passes = [0] * len(datasets)
    running = [dataset.payloads(epoch, consumer) for dataset in datasets]
    fresh = set(range(len(running)))  # started, no payload yet
    alive = list(range(len(running)))
    while alive:
        number = rng.choices(alive, [weights[i] for i in alive])[0]
        found = next(running[number], None)
        if found is not None:
            fresh.discard(number)
            yield (number, found[0]), found[1], found[2]
        elif infinite and number not in fresh:
            passes[number] += 1
            running[number] = datasets[number].payloads(epoch, consumer, passes[number])
            fresh.add(number)
        else:
            alive.remove(number)
