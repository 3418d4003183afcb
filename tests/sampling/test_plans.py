"""Plans: what each item of an epoch is made of, at any place, without torch and without a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord.sampling.mixing import ENDLESS
from tfrecord.sampling.orders import ListOrder, StoredOrder
from tfrecord.sampling.permutation import Permutation
from tfrecord.sampling.plans import BatchPlan, BucketPlan, RecordPlan, RepeatPlan, SlicePlan, all_records


def items(plan: Any, asked: Any = None) -> list[list[int]]:
    numbers = np.arange(len(plan)) if asked is None else np.array(asked, np.int64)
    positions, row_splits = plan.records(numbers)
    assert positions.dtype == row_splits.dtype == np.int64 and row_splits[-1] == len(positions)
    return [positions[a:b].tolist() for a, b in zip(row_splits[:-1], row_splits[1:], strict=True)]


@given(st.integers(0, 40), st.integers(1, 9), st.booleans(), st.data())
def test_any_items_in_any_order(count: int, size: int, drop_last: bool, data: Any) -> None:
    """The same as those of the whole sequence, for plans upon plans."""
    batches = BatchPlan(Permutation(count, seed=3), size, drop_last)
    lengths = np.arange(count) % 5
    for plan in (
        RecordPlan(StoredOrder(count)),
        batches,
        SlicePlan(batches, 1, 4),
        RepeatPlan(lambda number: BatchPlan(Permutation(count - min(count, number), seed=number), size), 3),
        BucketPlan(np.arange(count), lengths, [1, 3], [2, 3, 1], drop_last),
    ):
        whole = items(plan)
        assert len(whole) == len(plan)
        if whole:
            asked = data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6))
            assert items(plan, asked) == [whole[number] for number in asked]


def test_batches() -> None:
    assert items(BatchPlan(StoredOrder(5), 2)) == [[0, 1], [2, 3], [4]]
    assert items(BatchPlan(StoredOrder(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert items(BatchPlan(ListOrder(np.array([7, 1, 9])), 2)) == [[7, 1], [9]]


def test_slices() -> None:
    plan = RecordPlan(StoredOrder(5))
    assert items(SlicePlan(plan, 2, None)) == [[2], [3], [4]]
    assert items(SlicePlan(plan, 2, 1)) == items(SlicePlan(plan, 9, 12)) == []
    assert items(SlicePlan(SlicePlan(plan, 1, 4), 1, 9)) == [[2], [3]]


def test_repetitions() -> None:
    made = RepeatPlan(lambda number: RecordPlan(ListOrder(np.arange(number, 3))), 3)
    assert items(made) == [[0], [1], [2], [1], [2], [2]]
    endless = RepeatPlan(lambda number: RecordPlan(StoredOrder(3)), None)
    assert len(endless) == len(SlicePlan(endless, 5, None)) == ENDLESS
    assert items(SlicePlan(endless, 2, 7)) == [[2], [0], [1], [2], [0]]
    assert items(endless, [300_000]) == [[0]]
    assert len(RepeatPlan(lambda number: RecordPlan(StoredOrder(0)), None)) == 0
    with pytest.raises(ValueError, match="put it last"):
        all_records(endless)


def test_buckets_wait_for_their_last_record() -> None:
    lengths = np.array([1, 9, 1, 9, 9, 1, 1, 9, 1])
    made = BucketPlan(np.arange(9) + 100, lengths, [5], [3, 2])
    assert items(made) == [[101, 103], [100, 102, 105], [104, 107], [106, 108]]
    assert items(BucketPlan(np.arange(9), lengths, [5], [3, 2], drop_last=True)) == [
        [1, 3],
        [0, 2, 5],
        [4, 7],
    ]
    assert items(BucketPlan(np.arange(4), np.array([0, 1, 2, 3]), [1, 2, 3], [1, 1, 1, 1])) == [
        [0],
        [1],
        [2],
        [3],
    ]
