"""The items of an epoch, after `take`, `skip`, `filter`, `repeat` and batching.

A plan is one sequence of items, the same for all ranks and workers. Each item is a record or a batch, and the
plan says which records it holds. So a `Share` can distribute the items of any plan, and a number of items is
enough to resume.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from tfrecord.sampling.mixing import ENDLESS
from tfrecord.sampling.orders import Order
from tfrecord.sampling.permutation import Int64Array

__all__ = ["BatchPlan", "BucketPlan", "Plan", "RecordPlan", "RepeatPlan", "SlicePlan", "all_records"]


class Plan(Protocol):
    """A sequence of items."""

    def __len__(self) -> int: ...

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The records of these items (numbers 0 .. len - 1): their positions, and row splits, int64."""
        ...


class RecordPlan:
    """Each item is one record, in an order."""

    def __init__(self, order: Order) -> None:
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self.order.positions(items), np.arange(len(items) + 1, dtype=np.int64)


class BatchPlan:
    """Item b is the batch of the places from b x `batch_size` on of an order; the last may be short."""

    def __init__(self, order: Order, batch_size: int, drop_last: bool = False) -> None:
        self.order, self.batch_size = order, batch_size
        whole, rest = divmod(len(order), batch_size)
        self._count = whole + bool(rest and not drop_last)

    def __len__(self) -> int:
        return self._count

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        starts = items * self.batch_size
        lengths = np.minimum(self.batch_size, len(self.order) - starts)
        row_splits = _row_splits(lengths)
        places = np.arange(row_splits[-1]) + np.repeat(starts - row_splits[:-1], lengths)
        return self.order.positions(places), row_splits


class SlicePlan:
    """The items of a plan from `start` to `stop` (None: to its end)."""

    def __init__(self, plan: Plan, start: int, stop: int | None) -> None:
        self.plan, self.start = plan, min(start, len(plan))
        end = len(plan) if stop is None else min(stop, len(plan))
        # The rest of an endless sequence is endless.
        self._count = ENDLESS if end >= ENDLESS else max(end - self.start, 0)

    def __len__(self) -> int:
        return self._count

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        return self.plan.records(items + self.start)


class RepeatPlan:
    """The plans `make(0)`, `make(1)`, ... one after another: `times` of them, or endlessly if None.

    It ends early after a plan without items, so repeating an empty plan does not loop forever.
    """

    def __init__(self, make: Callable[[int], Plan], times: int | None) -> None:
        self._make, self._times = make, times
        self._starts = [0]
        self._held: tuple[int, Plan] | None = None
        self._count = ENDLESS
        if times is not None:
            while len(self._starts) <= times:
                self._starts.append(self._starts[-1] + len(self._pass(len(self._starts) - 1)))
            self._count = self._starts[-1]
        elif not len(self._pass(0)):
            self._count = 0

    def __len__(self) -> int:
        return self._count

    def _pass(self, number: int) -> Plan:
        if self._held is None or self._held[0] != number:
            self._held = number, self._make(number)
        return self._held[1]

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        last = int(items.max()) if len(items) else -1
        while self._starts[-1] <= last:
            self._starts.append(self._starts[-1] + len(self._pass(len(self._starts) - 1)))
        positions, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        at = 0
        while at < len(items):
            number = bisect_right(self._starts, int(items[at])) - 1
            inside = (items[at:] >= self._starts[number]) & (items[at:] < self._starts[number + 1])
            end = at + (len(inside) if inside.all() else int(np.argmin(inside)))
            found, row_splits = self._pass(number).records(items[at:end] - self._starts[number])
            positions.append(found)
            lengths.append(np.diff(row_splits))
            at = end
        return np.concatenate(positions), _row_splits(np.concatenate(lengths))


class BucketPlan:
    """Batches of records of similar lengths: each holds records of one bucket, in their order.

    A record of length l belongs to bucket i if ``boundaries[i - 1] <= l < boundaries[i]``. A batch comes when
    its last record comes; batches that are not full come at the end, unless `drop_last`.

    Args:
        positions: the records in their order, int64 (n,).
        lengths: their lengths, (n,).
        boundaries: ascending.
        batch_sizes: one more than `boundaries`.
    """

    def __init__(
        self,
        positions: Int64Array,
        lengths: Int64Array,
        boundaries: Sequence[int],
        batch_sizes: Sequence[int],
        drop_last: bool = False,
    ) -> None:
        buckets = np.searchsorted(np.asarray(boundaries, np.int64), lengths, side="right")
        order = np.argsort(buckets, kind="stable")
        starts = np.searchsorted(buckets[order], np.arange(len(batch_sizes) + 1))
        begins, ends, turns = [], [], []
        for number, size in enumerate(batch_sizes):
            begin = np.arange(starts[number], starts[number + 1], size)
            end = np.minimum(begin + size, starts[number + 1])
            full = end - begin == size
            if drop_last:
                begin, end, full = begin[full], end[full], full[full]
            # The place of the last record; a batch that is not full waits for the end.
            turn = np.where(full, order[end - 1], len(order) + number) if len(end) else end
            begins.append(begin)
            ends.append(end)
            turns.append(turn)
        by_turn = np.argsort(np.concatenate(turns), kind="stable")
        self._begins, self._ends = np.concatenate(begins)[by_turn], np.concatenate(ends)[by_turn]
        self._positions = positions[order]

    def __len__(self) -> int:
        return len(self._begins)

    def records(self, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        begins = self._begins[items]
        lengths = self._ends[items] - begins
        row_splits = _row_splits(lengths)
        places = np.arange(row_splits[-1]) + np.repeat(begins - row_splits[:-1], lengths)
        return self._positions[places], row_splits


def all_records(plan: Plan) -> Int64Array:
    """The positions of all records of a plan, in its order. ValueError for an endless one."""
    if len(plan) >= ENDLESS:
        raise ValueError("repeat() without a number never ends: put it last")
    return plan.records(np.arange(len(plan), dtype=np.int64))[0]


def _row_splits(lengths: Int64Array) -> Int64Array:
    row_splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=row_splits[1:])
    return row_splits
