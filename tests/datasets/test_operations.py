"""take, skip, filter, repeat and bucket_by_length: what they give, and the laws of the datasets for them."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operated import FEATURES, batched, even, not_third
from simulation import SimulatedLoader, ids, write_files

from tfrecord.torch import TFRecordDataset

pytestmark = pytest.mark.usefixtures("quiet")
SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))

Ops = list[tuple[str, Any]]


PREDICATES = {"even": even, "not_third": not_third}


@contextmanager
def files(counts: list[int]) -> Iterator[list[str]]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield write_files(folder, counts, index=True)
    finally:
        shutil.rmtree(folder)


def make(paths: list[str], options: dict[str, Any], operations: Ops, rank: int = 0, size: int = 1) -> Any:
    dataset = TFRecordDataset(paths, features=FEATURES, rank=rank, world_size=size, **options)
    for name, argument in operations:
        dataset = getattr(dataset, name)(PREDICATES.get(argument, argument) if name == "filter" else argument)
    return dataset


def expected(
    order: Callable[[int], list[int]], epoch: int, options: dict[str, Any], ops: Ops
) -> list[list[int]]:
    """What the operations have to give, by lists."""
    if not ops:
        return batched(order(epoch), options)
    (name, argument), before = ops[-1], ops[:-1]
    if name == "repeat":
        return [
            item for n in range(argument) for item in expected(order, epoch * argument + n, options, before)
        ]
    if name == "filter" and not any(one == "take" or one == "skip" for one, _ in before):
        return expected(
            lambda e: [n for n in order_of(order, before, e) if keeps(argument, n)],
            epoch,
            options,
            [op for op in before if op[0] != "filter"],
        )
    items = expected(order, epoch, options, before)
    if name == "take":
        return items[:argument]
    if name == "skip":
        return items[argument:]
    kept = [number for item in items for number in item if keeps(argument, number)]
    return batched(kept, options)


def order_of(order: Callable[[int], list[int]], before: Ops, epoch: int) -> list[int]:
    kept = order(epoch)
    for name, argument in before:
        if name == "filter":
            kept = [number for number in kept if keeps(argument, number)]
    return kept


def keeps(name: str, number: int) -> bool:
    return bool(PREDICATES[name]({"id": number}))


operations = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 9)),
        st.tuples(st.just("skip"), st.integers(0, 5)),
        st.tuples(st.just("filter"), st.sampled_from(sorted(PREDICATES))),
        st.tuples(st.just("repeat"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    batch_size = draw(st.sampled_from([None, 1, 3, 8]))
    return {
        "counts": draw(st.lists(st.integers(0, 14), min_size=1, max_size=3)),
        "ranks": draw(st.integers(1, 3)),
        "workers": draw(st.integers(0, 3)),
        "operations": draw(operations),
        "options": {
            "batch_size": batch_size,
            "drop_last": bool(batch_size) and draw(st.booleans()),
            "shuffle": draw(st.sampled_from([False, True, "block"])),
            "split": draw(st.sampled_from(["exact", "exact", "drop", "pad"])),
            "reshuffle_each_epoch": draw(st.booleans()),
        },
    }


def share_of(sequence: list[Any], rank: int, world_size: int, split: str) -> list[Any]:
    total = len(sequence)
    if split == "drop":
        return sequence[rank::world_size][: total // world_size]
    if split == "pad" and total:
        return [sequence[p % total] for p in range(rank, -(-total // world_size) * world_size, world_size)]
    return sequence[rank::world_size]


@SETTINGS
@given(cases())
def test_each_operation_does_what_lists_do(case: dict[str, Any]) -> None:
    """Without a shuffle, where the order is known beforehand."""
    options = case["options"] | {"shuffle": False, "split": "exact"}
    with files(case["counts"]) as paths:
        stored = list(range(sum(case["counts"])))
        dataset = make(paths, options, case["operations"])
        for epoch in range(2):
            wanted = expected(lambda _: stored, epoch, options, case["operations"])
            assert len(dataset) == len(wanted)
            assert [ids([item]) for item in dataset] == wanted


@SETTINGS
@given(cases(), st.integers(1, 3), st.integers(0, 3))
def test_the_laws_hold(case: dict[str, Any], other_ranks: int, other_workers: int) -> None:
    """One sequence for any ranks and workers; the rest of it from a state at any step, on other ranks too."""
    options, ops, world_size = case["options"], case["operations"], case["ranks"]
    split = options["split"]
    with files(case["counts"]) as paths:
        whole = make(paths, options | {"split": "exact"}, ops)
        sequences = [[ids([item]) for item in whole] for _ in range(2)]
        for rank in range(world_size):
            dataset = make(paths, options, ops, rank, world_size)
            loader = SimulatedLoader(dataset, case["workers"])
            for sequence in sequences:
                share = share_of(sequence, rank, world_size, split)
                assert len(dataset) == len(share)
                assert [ids([item]) for item in loader] == share
        first = share_of(sequences[0], 0, world_size, split)
        for step in {0, 1, len(first) // 2, len(first)}:
            dataset = make(paths, options, ops, 0, world_size)
            for _ in itertools.islice(dataset, min(step, len(first))):
                pass
            state = json.loads(json.dumps(dataset.state_dict()))
            resumed = make(paths, options, ops, 0, world_size)
            resumed.load_state_dict(state)
            rest = [ids([item]) for item in SimulatedLoader(resumed, case["workers"])]
            if step or not first:
                assert rest == (first[step:] or share_of(sequences[1], 0, world_size, split))
            if split == "exact" and state["epoch"] == 0 and first[step:]:
                rest = []
                for rank in range(other_ranks):
                    resumed = make(paths, options, ops, rank, other_ranks)
                    resumed.load_state_dict(state)
                    if any(
                        place % other_ranks == rank for place in range(state["position"], len(sequences[0]))
                    ):
                        rest += [ids([item]) for item in SimulatedLoader(resumed, other_workers)]
                assert sorted(rest) == sorted(sequences[0][state["position"] :])


@SETTINGS
@given(
    st.lists(st.integers(0, 25), min_size=1, max_size=3),
    st.lists(st.integers(0, 4), unique=True, max_size=3).map(sorted),
    st.data(),
)
def test_buckets(counts: list[int], boundaries: list[int], data: Any) -> None:
    """Each record once, in batches of one bucket, full but for one each; alike for any ranks and workers."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(boundaries) + 1, max_size=len(boundaries) + 1))
    ranks, workers = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    with files(counts) as paths:

        def build(rank: int, size: int) -> Any:
            dataset = TFRecordDataset(paths, features=FEATURES, shuffle=True, rank=rank, world_size=size)
            return dataset.bucket_by_length("x", boundaries, sizes)

        whole = build(0, 1)
        order = ids(TFRecordDataset(paths, features=FEATURES, shuffle=True))
        items = [ids([item]) for item in whole]
        assert len(whole) == len(items)
        assert sorted(number for item in items for number in item) == sorted(order)
        place = {number: at for at, number in enumerate(order)}
        short = [0] * len(sizes)
        ends = []
        for item in items:
            (bucket,) = {int(np.searchsorted(boundaries, number % 4, side="right")) for number in item}
            assert [place[number] for number in item] == sorted(place[number] for number in item)
            short[bucket] += len(item) < sizes[bucket]
            if len(item) == sizes[bucket]:
                ends.append(place[item[-1]])
        assert max(short) <= 1 and ends == sorted(ends)
        for rank in range(ranks):
            dataset = build(rank, ranks)
            assert [ids([item]) for item in SimulatedLoader(dataset, workers)] == items[rank::ranks]
        for step in range(len(items)):
            dataset = build(0, 1)
            for _ in itertools.islice(dataset, step):
                pass
            resumed = build(0, 1)
            resumed.load_state_dict(dataset.state_dict())
            if step:
                assert [ids([item]) for item in SimulatedLoader(resumed, workers)] == items[step:]
