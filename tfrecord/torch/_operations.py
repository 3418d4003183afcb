"""`take`, `skip`, `repeat`, `filter` and `bucket_by_length`, as steps from an order of records to a plan.

The result of `describe` goes into states. A state whose description differs is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrecord.sampling.orders import ListOrder, Order
from tfrecord.sampling.permutation import Int64Array
from tfrecord.sampling.plans import BucketPlan, Plan, RepeatPlan, SlicePlan, all_records

if TYPE_CHECKING:
    from tfrecord.torch._choosing import Keep

__all__ = ["Bucket", "Filter", "Operation", "Repeat", "Skip", "Take", "make_plan"]

# Each epoch of an endless repetition starts at a multiple of this, so that no two epochs are alike.
_ENDLESS_PASSES = 1 << 20


@dataclass(frozen=True)
class Take:
    """The first items."""

    count: int

    def describe(self) -> list[Any]:
        return ["take", self.count]


@dataclass(frozen=True)
class Skip:
    """All items except the first `count`."""

    count: int

    def describe(self) -> list[Any]:
        return ["skip", self.count]


@dataclass(frozen=True)
class Repeat:
    """Several epochs as one; None: forever."""

    times: int | None

    def describe(self) -> list[Any]:
        return ["repeat", self.times]

    @property
    def stride(self) -> int:
        """By how much the first epochs of two consecutive repetitions differ."""
        return _ENDLESS_PASSES if self.times is None else self.times


@dataclass(frozen=True)
class Filter:
    """The records that a predicate keeps, of those that earlier operations left."""

    keep: Keep

    def describe(self) -> list[Any]:
        return ["filter"]


@dataclass(frozen=True, eq=False)
class Bucket:
    """Batches of records of similar length; `lengths` holds the length of every record of the source."""

    lengths: Int64Array
    boundaries: Sequence[int]
    batch_sizes: Sequence[int]
    drop_last: bool

    def describe(self) -> list[Any]:
        return ["bucket_by_length", list(self.boundaries), list(self.batch_sizes), self.drop_last]


Operation = Take | Skip | Repeat | Filter | Bucket


def make_plan(
    operations: Sequence[Operation],
    epoch: int,
    order: Callable[[int], Order],
    batched: Callable[[Order], Plan],
) -> Plan:
    """The items of an epoch; `order` gives the records of one, `batched` makes items of an order."""
    if not operations:
        return batched(order(epoch))
    *before, last = operations
    if isinstance(last, Repeat):
        first = epoch * last.stride
        return RepeatPlan(lambda n: make_plan(before, first + n, order, batched), last.times)
    plan = make_plan(before, epoch, order, batched)
    if isinstance(last, Take):
        return SlicePlan(plan, 0, last.count)
    if isinstance(last, Skip):
        return SlicePlan(plan, last.count, None)
    positions = all_records(plan)
    if isinstance(last, Filter):
        return batched(ListOrder(positions[last.keep(positions)]))
    lengths = np.asarray(last.lengths)[positions]
    return BucketPlan(positions, lengths, last.boundaries, last.batch_sizes, last.drop_last)
