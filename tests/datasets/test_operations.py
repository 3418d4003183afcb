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
from simulation import SimulatedLoader, ids, write_files

import indexer
import tfrecord
from indexer.errors import ChecksumError
from tfrecord import FixedLenFeature, VarLenFeature
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, _choosing

pytestmark = pytest.mark.usefixtures("quiet")
SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
FEATURES = {"id": FixedLenFeature((), "int"), "x": VarLenFeature("float")}

Ops = list[tuple[str, Any]]


def even(item: dict[str, Any]) -> Any:
    return item["id"] % 2 == 0


def not_third(item: dict[str, Any]) -> Any:
    return item["id"] % 3 != 0


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


def batched(numbers: list[int], options: dict[str, Any]) -> list[list[int]]:
    size = options["batch_size"] or 1
    items = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    return [item for item in items if len(item) == size or not options["drop_last"]]


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


class TestRepeat:
    def test_it_is_one_epoch_after_another(self, make: Any) -> None:
        paths = make([7])
        once = TFRecordDataset(paths, features=FEATURES, shuffle=True)
        epochs = [ids(once) for _ in range(4)]
        twice = once.repeat(2)
        assert [ids(twice), ids(twice)] == [epochs[0] + epochs[1], epochs[2] + epochs[3]]

    def test_without_end(self, make: Any) -> None:
        endless = TFRecordDataset(make([5]), features=FEATURES, shuffle=True).repeat()
        got = ids(itertools.islice(endless, 23))
        assert [sorted(got[at : at + 5]) for at in range(0, 20, 5)] == [list(range(5))] * 4
        with pytest.raises(TypeError, match="repeats forever"):
            len(endless)
        resumed = TFRecordDataset(endless.reader, shuffle=True).repeat()
        resumed.load_state_dict(endless.state_dict())
        whole = TFRecordDataset(endless.reader, shuffle=True).repeat()
        assert ids(itertools.islice(resumed, 10)) == ids(itertools.islice(whole, 33))[23:]
        assert len(endless.take(12)) == 12
        with pytest.raises(ValueError, match="put it last"):
            list(endless.take(3).repeat().skip(1).filter(even))

    def test_nothing_repeated_ends(self, make: Any) -> None:
        assert list(TFRecordDataset(make([0]), features=FEATURES).repeat()) == []


class TestFilter:
    def test_batches_are_filled_up(self, make: Any) -> None:
        dataset = TFRecordDataset(make([50]), features=FEATURES, batch_size=4).filter(even)
        assert [ids([batch]) for batch in dataset] == batched(
            list(range(0, 50, 2)), {"batch_size": 4, "drop_last": False}
        )
        assert ids(dataset.reader.batches(100)) == list(range(0, 50, 2))

    def test_compressed_files_without_an_index(self, make: Any) -> None:
        paths = make([20, 9], gzip=True)
        for size in (None, 4):
            dataset = (
                TFRecordDataset(paths, features=FEATURES, batch_size=size).filter(even).filter(not_third)
            )
            wanted = [n for n in range(29) if n % 2 == 0 and n % 3]
            assert [ids([item]) for item in dataset] == batched(
                wanted, {"batch_size": size, "drop_last": False}
            )
            assert sorted(ids(SimulatedLoader(dataset, 3))) == wanted
        for name in ("take", "skip", "repeat"):
            with pytest.raises(ValueError, match=f"{name} needs positions.*build an index"):
                getattr(dataset, name)(2)

    def test_wrong_answers(self, make: Any) -> None:
        paths = make([6])
        with pytest.raises(
            TypeError, match=r"part-00.tfrecord: record 0 .*a bool for each row, shape \(6,\)"
        ):
            TFRecordDataset(paths, features=FEATURES, batch_size=2).filter(lambda batch: True)
        with pytest.raises(TypeError, match="record 0: a filter returns one bool"):
            TFRecordDataset(paths, features=FEATURES).filter(lambda record: np.ones(3, bool))
        with pytest.raises(KeyError, match="record 0: filter raised KeyError"):
            TFRecordDataset(paths, features=FEATURES).filter(lambda record: record["lable"] == 1)
        with pytest.raises(TypeError, match="filter takes a function"):
            TFRecordDataset(paths, features=FEATURES).filter("id")  # type: ignore[arg-type]

    def test_damage(self, make: Any) -> None:
        paths = make([8])
        index = indexer.build_index(paths[0])
        with open(paths[0], "r+b") as file:
            file.seek(int(index.offsets[3]) + 14)
            file.write(b"\xff")
        with pytest.raises(ChecksumError) as caught:
            TFRecordDataset(paths, features=FEATURES, batch_size=2).filter(even)
        assert caught.value.record == 3
        kept = TFRecordDataset(paths, features=FEATURES, batch_size=2, on_error="skip").filter(even)
        assert ids(kept) == [0, 2, 4, 6] and kept.num_skipped == 1

    @pytest.mark.parametrize("compression", [None, "GZIP"])
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_payloads_that_are_no_messages(self, tmp_path: Path, compression: Any, batch_size: Any) -> None:
        path = str(tmp_path / "a.tfrecord")
        with tfrecord.TFRecordWriter(path, compression_type=compression) as writer:
            for number in range(30):
                if number in (5, 20):
                    writer.write_bytes(b"\xff" * 9)
                else:
                    writer.write({"id": (number, "int"), "x": ([1.0], "float")})
        dataset = TFRecordDataset(path, features=FEATURES, batch_size=batch_size, on_error="skip")
        assert ids(dataset.filter(even)) == [number for number in range(0, 30, 2) if number != 20]


class TestBuckets:
    def test_lengths_of_the_index_are_used(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """And no record is read for them; of a view, those of its records."""
        paths = make([7, 5])
        read = TFRecordDataset(paths, features=FEATURES).bucket_by_length("x", [2], [4, 4])
        expected = [ids([item]) for item in read]
        for path in paths:
            tfrecord.build_index(path, columns=["len(x)"])
        monkeypatch.setattr(_choosing, "_feature_lengths", None)
        indexed = TFRecordDataset(paths, features=FEATURES).bucket_by_length("x", [2], [4, 4])
        assert [ids([item]) for item in indexed] == expected
        view = tfrecord.TFRecordReader(paths, features=FEATURES).select([11, 0, 3])
        buckets = TFRecordDataset(view).bucket_by_length("x", [2], [4, 4])
        assert [ids([item]) for item in buckets] == [[0], [11, 3]]

    def test_a_function_of_the_record(self, make: Any) -> None:
        dataset = TFRecordDataset(make([9]), features=FEATURES)
        buckets = dataset.bucket_by_length(
            lambda record: int(record["id"]), [3, 6], [2, 2, 2], drop_last=True
        )
        assert [ids([item]) for item in buckets] == [[0, 1], [3, 4], [6, 7]]

    def test_steps_of_a_feature_list(self, tmp_path: Path) -> None:
        path = str(tmp_path / "s.tfrecord")
        with tfrecord.TFRecordWriter(path) as writer:
            for number in range(6):
                steps = [[n] for n in range(number)]
                writer.write({"id": (number, "int")}, {"s": (steps, "int")})
        dataset = TFRecordDataset(path, features={"id": "int"}, sequence_features={"s": "int"}, ragged="pad")
        widths = [batch[1]["s"].shape[:2] for batch in dataset.bucket_by_length("s", [3], [3, 3])]
        assert [tuple(width) for width in widths] == [(3, 2), (3, 5)]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("x", [3, 1], [1, 1, 1]), "boundaries must ascend"),
            (("x", [1, 3], [1, 1]), "make 3 buckets, got 2"),
            (("x", [1], [1, 0]), "a batch size is an integer of at least 1"),
            (("y", [1], [1, 1]), "'y'"),
        ],
    )
    def test_wrong_ones(self, make: Any, arguments: Any, message: str) -> None:
        with pytest.raises((ValueError, KeyError), match=message):
            TFRecordDataset(make([3]), features=FEATURES).bucket_by_length(*arguments)

    def test_where_it_does_not_belong(self, make: Any) -> None:
        paths = make([3])
        with pytest.raises(ValueError, match="do not give batch_size"):
            TFRecordDataset(paths, features=FEATURES, batch_size=2).bucket_by_length("x", [1], [1, 1])
        with pytest.raises(ValueError, match="filter before"):
            TFRecordDataset(paths, features=FEATURES).bucket_by_length("x", [1], [1, 1]).filter(even)


class TestMixes:
    def test_an_endless_mix_may_be_taken_from(self, make: Any) -> None:
        mix = MultiTFRecordDataset.from_datasets(
            [make([5]), make([3], first=100)], [1, 1], features=FEATURES, batch_size=2
        )
        whole = ids(itertools.islice(mix, 9))
        assert len(mix.take(6).skip(2)) == 4
        assert ids(mix.take(6).skip(2)) == whole[4:12]

    def test_a_finite_mix_repeats_and_filters(self, make: Any) -> None:
        for size in (None, 4):
            mix = MultiTFRecordDataset.from_datasets(
                [make([5]), make([4], first=100)], [1, 2], infinite=False, features=FEATURES, batch_size=size
            )
            epochs = [[ids([item]) for item in mix] for _ in range(4)]
            twice = mix.repeat(2)
            assert [[ids([item]) for item in twice] for _ in range(2)] == [
                epochs[0] + epochs[1],
                epochs[2] + epochs[3],
            ]
            assert sorted(ids(mix.filter(even))) == [0, 2, 4, 100, 102]

    def test_parts_may_have_operations(self, make: Any) -> None:
        a = TFRecordDataset(make([9]), features=FEATURES).take(4).repeat(2)
        b = TFRecordDataset(make([6], first=100), features=FEATURES).filter(even)
        mix = MultiTFRecordDataset.from_datasets([a, b], [1, 1], infinite=False, batch_size=3)
        assert sorted(ids(mix)) == [0, 0, 1, 1, 2, 2, 3, 3, 100, 102, 104]
        with pytest.raises(ValueError, match="filter first"):
            MultiTFRecordDataset.from_datasets([a.filter(even)], [1])


def test_states_of_other_operations_are_refused(make: Any) -> None:
    dataset = TFRecordDataset(make([9]), features=FEATURES)
    state = dataset.take(4).state_dict()
    with pytest.raises(ValueError, match="differs in operations"):
        dataset.skip(4).load_state_dict(state)


def test_operations_leave_the_dataset_as_it_is(make: Any) -> None:
    dataset = TFRecordDataset(make([6]), features=FEATURES)
    shorter = dataset.take(2)
    assert ids(shorter) == [0, 1] and ids(dataset) == list(range(6))
    assert (dataset.epoch, shorter.epoch) == (0, 0)
    assert repr(shorter) == f"{dataset!r}.take(2)"
    with pytest.raises(ValueError, match="count is an integer of at least 0"):
        dataset.take(-1)
