"""One epoch of a mix: items of several sources in the order of its draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfrecord._reading.rows import RowBatch, join_sources
from tfrecord.sampling.mixing import MixOrder
from tfrecord.sampling.permutation import Int64Array
from tfrecord.torch._producer import BoolArray, Finish, finish_batch
from tfrecord.torch._single import TFRecordDataset
from tfrecord.torch._source import Source

__all__ = ["MixedBatches", "MixedRecords"]


@dataclass
class _Mixed:
    """One epoch of a mix."""

    datasets: list[TFRecordDataset]
    mix: MixOrder
    counts: list[int]
    epoch: int
    _held: dict[int, tuple[int, Any]] = field(default_factory=dict, init=False)

    def _of_turn(self, number: int, turn: int, make: Callable[[int, int], Any]) -> Any:
        """What `make` gives for a source's turn; kept until the next turn."""
        held = self._held.get(number)
        if held is None or held[0] != turn:
            held = self._held[number] = turn, make(number, turn)
        return held[1]

    def _turns(self, number: int, draws: Int64Array) -> Iterator[tuple[int, BoolArray, Int64Array]]:
        """(turn, which draws, places in that turn) of a source's draws."""
        turns, places = np.divmod(draws, self.counts[number])
        for turn in np.unique(turns).tolist():
            here = turns == turn
            yield turn, here, places[here]


@dataclass
class MixedRecords(_Mixed):
    """Items of the sources, each finished in its own way."""

    finishes: list[Finish]

    def _make(self, number: int, turn: int) -> Any:
        return self.datasets[number].produce(self.epoch, turn, self.finishes[number])

    def _items(self, number: int, draws: Int64Array, padding: BoolArray) -> Iterator[Any]:
        for turn, here, places in self._turns(number, draws):
            yield from self._of_turn(number, turn, self._make)(places, padding[here])

    def __call__(self, places: Int64Array, padding: BoolArray) -> Iterator[Any]:
        sources, draws = self.mix.draws(places)
        running = {}
        for number in np.unique(sources).tolist():
            here = sources == number
            running[number] = self._items(number, draws[here], padding[here])
        return (next(running[number]) for number in sources.tolist())


@dataclass
class MixedBatches(_Mixed):
    """Batches of records of all sources."""

    batch_size: int
    finish: Finish
    decoding: Source

    def _make(self, number: int, turn: int) -> Any:
        return self.datasets[number].order(self.epoch, turn)

    def _positions(self, number: int, draws: Int64Array) -> Int64Array:
        out = np.empty(len(draws), np.int64)
        for turn, here, places in self._turns(number, draws):
            out[here] = self._of_turn(number, turn, self._make).positions(places)
        return out

    def __call__(self, units: Int64Array, padding: BoolArray) -> Iterator[Any]:
        size = self.batch_size
        starts = units * size
        ends = np.minimum(starts + size, len(self.mix))
        places = np.concatenate(
            [np.arange(a, b) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        )
        sources, draws = self.mix.draws(places)
        positions = np.empty(len(places), np.int64)
        ahead = {}
        for number in np.unique(sources).tolist():
            here = sources == number
            positions[here] = self._positions(number, draws[here])
            ahead[number] = self.datasets[number].source.readahead(positions[here])
        self.decoding.prepare()
        splits = np.concatenate([[0], np.cumsum(ends - starts)]).tolist()
        for i, padded in enumerate(padding.tolist()):
            own = slice(splits[i], splits[i + 1])
            for number, told in ahead.items():
                told.reach(int((sources[: splits[i + 1]] == number).sum()))
            rows = self._rows(sources[own], positions[own])
            yield finish_batch(self.decoding, rows.payloads, rows.locate, padded, self.finish)

    def _rows(self, sources: Int64Array, positions: Int64Array) -> RowBatch:
        """The payloads of a batch in its order."""
        parts, rows = [], []
        for number in np.unique(sources).tolist():
            here = np.flatnonzero(sources == number)
            found = self.datasets[number].source.fetch(positions[here])
            parts.append(found)
            # Where damaged records were left out, which ones is not known: the others move up.
            rows.append(here[: len(found)])
        return join_sources(parts).take(np.argsort(np.concatenate(rows), kind="stable"))
