"""The laws of the datasets, for any files, ranks, workers, batches and shuffles, with workers simulated."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulation import SimulatedLoader, ids, write_files

from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset

pytestmark = [pytest.mark.one_run, pytest.mark.usefixtures("quiet")]
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def files(counts: list[int], **options: Any) -> Iterator[list[str]]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield write_files(folder, counts, **options)
    finally:
        shutil.rmtree(folder)


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    """Files, and options that may go together."""
    gzip, index = draw(st.booleans()), draw(st.booleans())
    batch_size = draw(st.sampled_from([None, None, 1, 3, 8]))
    positioned = index or not gzip
    shuffle = draw(st.sampled_from([False, True, "block"]))
    return {
        "counts": draw(st.lists(st.integers(0, 14), min_size=1, max_size=4)),
        "gzip": gzip,
        "index": index,
        "ranks": draw(st.integers(1, 5)),
        "workers": draw(st.integers(0, 5)),
        "persistent": draw(st.booleans()),
        "positioned": positioned,
        "options": {
            "batch_size": batch_size,
            "drop_last": bool(batch_size) and draw(st.booleans()),
            "shuffle": shuffle,
            "shuffle_queue_size": None if shuffle and positioned else draw(st.sampled_from([None, 1, 9])),
            "split": draw(st.sampled_from(["exact", "exact", "drop", "pad"])) if positioned else "exact",
            "seed": draw(st.integers(-5, 2**70)),
        },
    }


def make(paths: list[str], rank: int, world_size: int, options: dict[str, Any]) -> TFRecordDataset:
    return TFRecordDataset(paths, None, {"id": "int"}, rank=rank, world_size=world_size, **options)


def epoch_of(paths: list[str], epoch: int, options: dict[str, Any]) -> list[list[int]]:
    """The items of the global sequence."""
    whole = make(paths, 0, 1, options | {"split": "exact"})
    whole.set_epoch(epoch)
    return [ids([item]) for item in whole]


def share_of(sequence: list[list[int]], rank: int, world_size: int, split: str) -> list[list[int]]:
    """What a rank has to get of it."""
    total = len(sequence)
    if split == "drop":
        return sequence[rank::world_size][: total // world_size]
    if split == "pad" and total:
        return [sequence[p % total] for p in range(rank, -(-total // world_size) * world_size, world_size)]
    return sequence[rank::world_size]


@SETTINGS
@given(cases())
def test_exactly_once_in_one_order(case: dict[str, Any]) -> None:
    options, split = case["options"], case["options"]["split"]
    with files(case["counts"], gzip=case["gzip"], index=case["index"]) as paths:
        ranks = [make(paths, rank, case["ranks"], options) for rank in range(case["ranks"])]
        loaders = [SimulatedLoader(rank, case["workers"], persistent=case["persistent"]) for rank in ranks]
        orders = []
        for epoch in range(3):
            got = [[ids([item]) for item in loader] for loader in loaders]
            flat = [number for rank in got for item in rank for number in item]
            if not case["positioned"]:
                if not options["drop_last"]:
                    assert sorted(flat) == list(range(sum(case["counts"])))
                continue
            sequence = epoch_of(paths, epoch, options)
            orders.append(sequence)
            for rank, items in enumerate(got):
                assert items == share_of(sequence, rank, case["ranks"], split)
                assert len(ranks[rank]) == len(items)
            if split == "exact" and not options["drop_last"]:
                assert sorted(flat) == list(range(sum(case["counts"])))
        for a, b in itertools.combinations(orders, 2):
            many = sum(case["counts"]) >= 12 and len(a) > 1
            if options["shuffle"] and many:
                assert a != b
            elif not options["shuffle"] and options["shuffle_queue_size"] is None:
                assert a == b


@settings(SETTINGS, max_examples=40)
@given(cases(), st.integers(1, 5), st.integers(0, 5))
def test_resumes_at_every_step(case: dict[str, Any], other_ranks: int, other_workers: int) -> None:
    """The rest, then whole epochs: from each rank's own state, and from rank 0's on other ranks."""
    options, world_size = case["options"], case["ranks"]
    if not case["positioned"]:
        return
    split = options["split"]
    with files(case["counts"], gzip=case["gzip"], index=case["index"]) as paths:
        sequences = [epoch_of(paths, epoch, options) for epoch in range(3)]
        shares = [[share_of(s, rank, world_size, split) for s in sequences] for rank in range(world_size)]
        for step in range(max(len(share[0]) for share in shares) + 1):
            states = []
            for rank in range(world_size):
                dataset = make(paths, rank, world_size, options)
                iterator = iter(dataset)
                for _ in range(min(step, len(shares[rank][0]))):
                    next(iterator)
                states.append(json.loads(json.dumps(dataset.state_dict())))
            for rank in range(world_size):
                resumed = make(paths, rank, world_size, options)
                resumed.load_state_dict(states[rank])
                loader = SimulatedLoader(resumed, case["workers"], persistent=case["persistent"])
                rest = [ids([item]) for item in loader]
                left = shares[rank][0][step:]
                assert rest == (left or shares[rank][1])
                assert [ids([item]) for item in loader] == shares[rank][1 if left else 2]
            state = states[0]
            if split == "exact" and state["epoch"] == 0:
                rest = []
                for rank in range(other_ranks):
                    resumed = make(paths, rank, other_ranks, options)
                    resumed.load_state_dict(state)
                    if other_ranks == world_size and rank == 0 and not shares[0][0][step:]:
                        continue  # its own share was done, so it goes on with its next epoch
                    rest += [ids([item]) for item in SimulatedLoader(resumed, other_workers)]
                assert sorted(rest) == sorted(sequences[0][state["position"] :])


@settings(SETTINGS, max_examples=30)
@given(cases(), st.integers(0, 12))
def test_streams_resume_where_they_can(case: dict[str, Any], step: int) -> None:
    """Compressed without an index: by itself, at any item; on other ranks or workers it says why not."""
    options = case["options"] | {"split": "exact"}
    with files(case["counts"], gzip=True) as paths:
        dataset = make(paths, 0, 1, options)
        whole = [ids([item]) for item in dataset]
        follows = [ids([item]) for item in dataset]
        dataset.set_epoch(0)
        iterator = iter(dataset)
        for _ in range(min(step, len(whole))):
            next(iterator)
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = make(paths, 0, 1, options)
        resumed.load_state_dict(state)
        rest = [ids([item]) for item in resumed]
        if options["drop_last"] and step >= len(whole):
            assert rest in ([], follows)
        else:
            assert rest == (whole[step:] or follows)
        if state["position"]:
            with pytest.raises(ValueError, match="1 ranks, but there are 2 here.*build an index"):
                make(paths, 0, 2, options).load_state_dict(state)
            resumed.load_state_dict(state)
            with pytest.raises(ValueError, match="made without workers, but there are 2 here.*build"):
                list(SimulatedLoader(resumed, 2))


@settings(SETTINGS, max_examples=30)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([None, 1, 5]),
    st.sampled_from([False, True, "block"]),
    st.booleans(),
)
def test_finite_mixes(
    counts: list[int], ranks: int, workers: int, batch_size: int | None, shuffle: Any, gzip: bool
) -> None:
    """Each record once over ranks and workers; the rest of the epoch from a state at every step."""
    with files(counts, gzip=gzip) as paths:

        def mix(rank: int, world_size: int) -> MultiTFRecordDataset:
            return MultiTFRecordDataset.from_datasets(
                paths,
                [1.0 + i for i in range(len(paths))],
                infinite=False,
                batch_size=batch_size,
                rank=rank,
                world_size=world_size,
                description={"id": "int"},
                shuffle=shuffle,
            )

        datasets = [mix(rank, ranks) for rank in range(ranks)]
        loaders = [SimulatedLoader(dataset, workers) for dataset in datasets]
        for _ in range(2):
            got = [[ids([item]) for item in loader] for loader in loaders]
            assert sorted(n for rank in got for item in rank for n in item) == list(range(sum(counts)))
            if not gzip:
                assert [len(dataset) for dataset in datasets] == [len(items) for items in got]
        if gzip:
            return
        whole = [ids([item]) for item in mix(0, 1)]
        for step in range(len(whole)):
            dataset = mix(0, 1)
            iterator = iter(dataset)
            for _ in range(step):
                next(iterator)
            resumed = mix(0, 1)
            resumed.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
            assert [ids([item]) for item in SimulatedLoader(resumed, workers)] == whole[step:]
