"""From positions of an epoch to what a loader gets: records or batches, transformed, with readahead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.ahead import in_turn
from tfrecord._reading.batches import decodes_ahead, mean_size
from tfrecord.sampling.permutation import Int64Array
from tfrecord.sampling.plans import Plan
from tfrecord.torch._queue import with_last
from tfrecord.torch._ragged import RaggedOptions, tensors_of
from tfrecord.torch._readahead import Later
from tfrecord.torch._source import DROPPED, Source, SourceAhead
from tfrecord.torch._workers.errors import call_with_place
from tfrecord.torch._workers.packing import TensorDict

__all__ = [
    "PADDING",
    "WINDOW",
    "BothTransforms",
    "Finish",
    "finish_batch",
    "payload_batches",
    "produce_items",
]

BoolArray = npt.NDArray[np.bool_]
Locate = Callable[[int], tuple[str, int]]

PADDING = "is_padding"
# Positions computed at a time: enough that the order costs little, few enough that the first item comes
# quickly.
WINDOW = 8192
_FIRST_CHUNK, _CHUNK = 16, 256


@dataclass(frozen=True)
class Finish:
    """How decoded records or batches are finished before they are returned."""

    transform: Callable[[Any], Any] | None = None
    drop_none: bool = False
    ragged: RaggedOptions = RaggedOptions()
    mark_padding: bool = False

    def check(self, source: Source) -> None:
        """Raise KeyError if `pad_value` or `max_length` names a feature that the source does not have."""
        if self.ragged.names and source.view.record_type != "bytes":
            source.view.decoder.check_columns(self.ragged.names)

    def record(self, item: Any, padding: bool, locate: Locate, row: int = 0) -> Any:
        """One record, marked and transformed; DROPPED if the transform drops it."""
        if self.mark_padding:
            item = _marked(item, padding)
        if self.transform is None:
            return item
        return self._transformed(item, lambda: "{}: record {}".format(*locate(row)))

    def batch(self, batch: Any, padding: bool, locate: Locate, rows: int) -> Any:
        """One batch as tensors: marked, transformed."""
        item = tensors_of(batch, self.ragged)
        if self.mark_padding:
            item = _marked(item, torch.full((rows,), padding, dtype=torch.bool))
        if self.transform is None:
            return item

        def place() -> str:
            path, record = locate(0)
            return f"{path}: record {record} (the first of a batch of {rows})"

        item = self._transformed(item, place)
        return TensorDict(item) if type(item) is dict else item

    def _transformed(self, item: Any, place: Callable[[], str]) -> Any:
        assert self.transform is not None
        item = call_with_place(self.transform, item, "transform", place)
        return DROPPED if item is None and self.drop_none else item


class BothTransforms:
    """Two transforms, one after the other."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any], drop_none: bool) -> None:
        self.first, self.second, self.drop_none = first, second, drop_none

    def __call__(self, item: Any) -> Any:
        item = self.first(item)
        return item if item is None and self.drop_none else self.second(item)


def _marked(item: Any, flag: Any) -> Any:
    """The item with `is_padding`; payloads of bytes go under the key "record"."""
    if isinstance(item, tuple):
        return (_marked(item[0], flag), *item[1:])
    if not isinstance(item, dict):
        item = {"record": item}
    if PADDING in item:
        raise ValueError(
            f"the records have a feature {PADDING!r}, the key that split='pad' sets: leave the feature out"
        )
    item[PADDING] = flag
    return item


def produce_items(
    source: Source,
    ahead: SourceAhead,
    plan: Plan,
    batches: bool,
    finish: Finish,
    items: Int64Array,
    padding: BoolArray,
    later: Later | None = None,
) -> Iterator[Any]:
    """These items of a plan, one by one (DROPPED for an item that is left out).

    `ahead` is of the whole pass; `later` gives the items that it asks for after these.
    """
    positions, row_splits = ahead.records(plan, items)

    def following(number: int) -> Int64Array:
        assert later is not None
        found = later(number)
        return ahead.look_up(plan, found)[0] if len(found) else found

    source.prepare()
    ahead.window(positions, None if later is None else following)
    if batches:
        finish.check(source)
        return _batches(source, ahead, positions, row_splits, padding, finish)
    return _records(source, ahead, positions, padding, finish)


def _records(
    source: Source, ahead: SourceAhead, positions: Int64Array, padding: BoolArray, finish: Finish
) -> Iterator[Any]:
    at, size = 0, _FIRST_CHUNK
    padded = padding.tolist()
    while at < len(positions):
        end = min(at + size, len(positions))
        ahead.reach(end)
        if source.skips:
            yield from _one_by_one(source, positions[at:end], padding[at:end], finish)
        else:
            done = at
            for rows in source.fetch_in_order(positions[at:end]):
                for row, item in enumerate(source.decode_rows(rows)):
                    yield finish.record(item, padded[done], rows.locate, row)
                    done += 1
        at, size = end, min(size * 2, _CHUNK)


def _one_by_one(source: Source, positions: Int64Array, padding: BoolArray, finish: Finish) -> Iterator[Any]:
    """`_records` if damaged records are skipped: of several, we would not know which are missing."""
    for i in range(len(positions)):
        rows = source.fetch(positions[i : i + 1])
        if not len(rows.payloads):
            yield DROPPED
            continue
        item = source.decode_one(rows.payloads.view(0), *rows.locate(0))
        yield item if item is DROPPED else finish.record(item, bool(padding[i]), rows.locate)


def _batches(
    source: Source,
    ahead: SourceAhead,
    positions: Int64Array,
    row_splits: Int64Array,
    padding: BoolArray,
    finish: Finish,
) -> Iterator[Any]:
    bounds = row_splits.tolist()
    num_threads = source.view.decoder.num_threads
    if not len(positions) or not decodes_ahead(source.view, num_threads):
        for i, padded in enumerate(padding.tolist()):
            ahead.reach(bounds[i + 1])
            rows = source.fetch(positions[bounds[i] : bounds[i + 1]])
            yield finish_batch(source, rows.payloads, rows.locate, padded, finish)
        return
    size = mean_size(source.view, positions)

    def read(some: Int64Array) -> tuple[Any, Locate]:
        rows = source.fetch(some)
        return source.decode_batch(rows.payloads, rows.locate, num_threads=1), rows.locate

    def calls() -> Iterator[tuple[int, Callable[[], tuple[Any, Locate]]]]:
        for start, stop in pairwise(bounds):
            ahead.reach(stop)
            yield int(size * (stop - start)), partial(read, positions[start:stop])

    flags = padding.tolist()
    for padded, (batch, locate) in zip(flags, in_turn(calls(), num_threads), strict=True):
        yield _finished(batch, locate, padded, finish)


def finish_batch(source: Source, payloads: BytesColumn, locate: Locate, padded: bool, finish: Finish) -> Any:
    """A batch of payloads decoded and finished; DROPPED if all of it was damaged and skipped."""
    return _finished(source.decode_batch(payloads, locate), locate, padded, finish)


def _finished(batch: Any, locate: Locate, padded: bool, finish: Finish) -> Any:
    count = len(batch) if isinstance(batch, BytesColumn) else batch.num_rows
    return finish.batch(batch, padded, locate, count) if count else DROPPED


def payload_batches(
    source: Source, records: Iterator[tuple[str, int, Any]], batch_size: int, drop_last: bool, finish: Finish
) -> Iterator[tuple[Any, bool]]:
    """Batches of payloads that arrive one by one, and which is the last."""
    held: list[tuple[str, int, Any]] = []
    source.prepare()
    finish.check(source)
    for record, last in with_last(records):
        held.append(record)
        if len(held) == batch_size or (last and not drop_last):
            places = [(path, number) for path, number, _ in held]
            payloads = BytesColumn.from_list(payload for _, _, payload in held)
            held = []
            yield finish_batch(source, payloads, places.__getitem__, False, finish), last
