"""With real worker processes: start methods, epochs, states, errors, memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulation import ids
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from indexer.errors import ChecksumError, FeatureKindError, MissingFeatureError
from tfrecord.columns import Ragged
from tfrecord.reader import TFRecordReader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset

# What torch and torchdata say of this machine and of each other.
pytestmark = [
    pytest.mark.one_run,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
DESCRIPTION = {"id": "int", "x": "float", "name": "byte"}


def one_id(record: dict[str, Any]) -> dict[str, Any]:
    return {"id": record["id"]}


def loader(dataset: Any, workers: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=options.pop("batch_size", None), num_workers=workers, **options)


class TestEpochs:
    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_each_pass_is_the_next_epoch(self, make: Any, method: str) -> None:
        """New workers for every pass, an early break, and set_epoch, by any way of starting processes."""
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(["tfrecord.torch"])  # else each worker imports torch
        dataset = TFRecordDataset(make([7, 0, 10]), None, {"id": "int"}, shuffle=True)
        expected = []
        for epoch in range(4):
            dataset.set_epoch(epoch)
            expected.append(ids(dataset))
        assert len({tuple(order) for order in expected}) == 4
        dataset.set_epoch(0)
        data = loader(dataset, 2, multiprocessing_context=context)
        assert ids([next(iter(data))]) == expected[0][:1]
        assert ids(data) == expected[1]
        assert dataset.epoch == 1
        if method == "spawn":
            return  # each set of such workers takes seconds to start
        assert ids(data) == expected[2]
        dataset.set_epoch(1)
        assert ids(data) == expected[1]
        assert ids(dataset) == expected[2]  # and the same count in this process

    def test_persistent_workers(self, make: Any) -> None:
        dataset = TFRecordDataset(make([23]), None, {"id": "int"}, shuffle=True)
        expected = [ids(dataset) for _ in range(6)]
        dataset.set_epoch(0)
        data = loader(dataset, 3, persistent_workers=True)
        assert [ids(data), ids(data)] == expected[:2]
        iterator = iter(data)
        next(iterator)
        assert ids(data) == expected[3]
        dataset.set_epoch(1)
        assert ids(data) == expected[1]
        dataset.load_state_dict(dataset.state_at(4, 20))
        assert [ids(data), ids(data)] == [expected[4][20:], expected[5]]

    def test_the_same_seed_of_torch_before_each_pass_is_another_epoch_all_the_same(self, make: Any) -> None:
        dataset = TFRecordDataset(make([20]), None, {"id": "int"}, shuffle=True)
        data = loader(dataset, 2)
        orders = []
        for _ in range(3):
            torch.manual_seed(0)
            orders.append(tuple(ids(data)))
        assert len(set(orders)) == 3 and all(sorted(order) == list(range(20)) for order in orders)

    def test_two_loaders_at_once(self, make: Any) -> None:
        dataset = TFRecordDataset(make([16]), None, {"id": "int"}, shuffle=True)
        pairs = list(zip(loader(dataset, 2), loader(dataset, 2), strict=True))
        first, second = (ids(side) for side in zip(*pairs, strict=True))
        assert sorted(first) == sorted(second) == list(range(16)) and first != second

    def test_worker_passes_of_a_wrapper_stay_together(self, make: Any) -> None:
        """A dataset that goes through ours twice a pass in each worker reads each epoch whole."""
        dataset = TFRecordDataset(make([9]), None, {"id": "int"}, shuffle=True)
        got = ids(loader(_Twice(dataset), 2))
        assert sorted(got) == sorted([*range(9), *range(9)])

    @pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
    def test_many_datasets_cost_no_descriptors(self, make: Any) -> None:
        reader = TFRecordReader(make([1]))
        TFRecordDataset(reader)
        gc.collect()  # of what other tests left
        before = len(os.listdir("/proc/self/fd"))
        held = [TFRecordDataset(reader) for _ in range(50)]
        assert len(os.listdir("/proc/self/fd")) <= before
        held[0].set_epoch(5)
        assert [dataset.epoch for dataset in held[:3]] == [5, 0, 0]

    def test_copies_count_for_themselves(self, make: Any) -> None:
        dataset = TFRecordDataset(make([5]), None, {"id": "int"})
        list(dataset)
        twin = pickle.loads(pickle.dumps(dataset))
        list(dataset)
        assert (dataset._counter.peek().epoch, twin._counter.peek().epoch) == (2, 1)

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_ranks_started_with_the_dataset_count_for_themselves(self, make: Any, method: str) -> None:
        """Made in the parent, handed to two ranks that each read two epochs by a worker of their own."""
        dataset = TFRecordDataset(make([9]), None, {"id": "int"}, shuffle=True)
        expected = [ids(dataset) for _ in range(4)]
        dataset.set_epoch(2)
        context = multiprocessing.get_context(method)
        results = [context.Queue() for _ in range(2)]
        ranks = [
            context.Process(target=_read_as_rank, args=(dataset, rank, results[rank])) for rank in range(2)
        ]
        for process in ranks:
            process.start()
        got = [result.get(timeout=120) for result in results]
        for process in ranks:
            process.join()
        assert got == [[order[rank::2] for order in expected[2:]] for rank in range(2)]
        assert dataset.epoch == 2

    def test_from_several_threads(self, make: Any) -> None:
        dataset = TFRecordDataset(make([40]), None, {"id": "int"}, shuffle=True)
        got: list[list[int]] = []
        threads = [threading.Thread(target=lambda: got.append(ids(dataset))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({tuple(order) for order in got}) == 4
        assert all(sorted(order) == list(range(40)) for order in got)


def _read_as_rank(dataset: Any, rank: int, result: Any) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    data = loader(dataset, 1, multiprocessing_context="fork")
    result.put([ids(data), ids(data)])


class _Twice(IterableDataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        yield from self.dataset
        yield from self.dataset


class TestLength:
    @pytest.mark.parametrize("workers", [0, 1, 3])
    @pytest.mark.parametrize("batch_size", [None, 1, 4])
    def test_no_warning_of_length(self, make: Any, workers: int, batch_size: int | None) -> None:
        """Warnings are errors here: len is known before and right after."""
        dataset = TFRecordDataset(make([10, 3]), None, {"id": "int"}, shuffle=True, rank=1, world_size=2)
        data = loader(dataset, workers, batch_size=batch_size)
        for _ in range(2):
            assert len(data) == (6 if batch_size is None else -(-6 // batch_size))
            assert len(ids(data)) == 6
        inside = TFRecordDataset(make([10, 3]), None, {"id": "int"}, batch_size=5)
        data = loader(inside, workers)
        assert len(data) == len(list(data)) == 3


class TestState:
    @pytest.mark.parametrize("workers", [0, 1, 2])
    @pytest.mark.parametrize("batch_size", [None, 3])
    def test_stateful_loader_at_every_step(self, make: Any, workers: int, batch_size: int | None) -> None:
        paths = make([8, 3])

        def fresh() -> tuple[Any, Any]:
            dataset = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=batch_size)
            more = {"prefetch_factor": 4} if workers else {}
            return dataset, StatefulDataLoader(dataset, batch_size=None, num_workers=workers, **more)

        dataset = fresh()[0]
        epochs = [[ids([item]) for item in dataset] for _ in range(3)]
        total = len(epochs[0])
        states: list[Any] = []
        data = fresh()[1]
        states.append(data.state_dict())
        for _ in data:
            states.append(pickle.loads(pickle.dumps(data.state_dict())))
        finished = data.state_dict()
        assert len(states) == total + 1
        for step in (0, 1, 2, total // 2, total - 1, total):
            data = fresh()[1]
            data.load_state_dict(states[step])
            rest = [ids([item]) for item in data]
            follows = [ids([item]) for item in data]
            assert (rest, follows) == (epochs[0][step:] or epochs[1], epochs[1 if step < total else 2])
        data = fresh()[1]
        data.load_state_dict(finished)
        assert [ids([item]) for item in data] == epochs[1]

    def test_stateful_loader_that_collates(self, make: Any) -> None:
        """Records batched by the loader, snapshots now and then, persistent workers."""
        paths = make([30])
        options = {"batch_size": 4, "num_workers": 2, "persistent_workers": True, "snapshot_every_n_steps": 3}
        fresh = lambda: StatefulDataLoader(  # noqa: E731
            TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, transform=one_id), **options
        )
        data = fresh()
        whole = [ids([item]) for item in data]
        follows = [ids([item]) for item in data]
        for step in (1, 2, 4, 7):
            data = fresh()
            iterator = iter(data)
            before = [ids([next(iterator)]) for _ in range(step)]
            state = data.state_dict()
            del iterator, data
            resumed = fresh()
            resumed.load_state_dict(state)
            assert before + [ids([item]) for item in resumed] == whole
            assert [ids([item]) for item in resumed] == follows

    @pytest.mark.parametrize("persistent", [False, True])
    def test_a_finished_stateful_loader_starts_the_next_epoch(self, make: Any, persistent: bool) -> None:
        """Its state of a finished epoch, in a new loader, and again of the epoch after that."""
        paths = make([30])

        def fresh() -> Any:
            dataset = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=2)
            return StatefulDataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)

        single = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=2)
        epochs = [[ids([item]) for item in single] for _ in range(4)]
        data = fresh()
        assert [ids([item]) for item in data] == epochs[0]
        for epoch in (1, 2):
            state = data.state_dict()
            data = fresh()
            data.load_state_dict(state)
            assert [ids([item]) for item in data] == epochs[epoch]
        assert [ids([item]) for item in data] == epochs[3]

    def test_plain_loader_by_what_the_loop_consumed(self, make: Any) -> None:
        """Another process's loader, another number of workers, from the count of batches."""
        paths = make([25])
        dataset = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=4)
        expected = [[ids([item]) for item in dataset] for _ in range(2)]
        dataset.set_epoch(0)
        iterator = iter(loader(dataset, 2))
        consumed = [ids([next(iterator)]) for _ in range(3)]
        with pytest.raises(RuntimeError, match="state_at"):
            dataset.state_dict()
        state = dataset.state_at(0, len(consumed))
        del iterator
        resumed = TFRecordDataset(paths, None, {"id": "int"}, shuffle=True, batch_size=4)
        resumed.load_state_dict(state)
        data = loader(resumed, 3)
        assert [consumed + [ids([item]) for item in data], [ids([item]) for item in data]] == expected

    def test_a_workers_state_says_where_it_belongs(self, make: Any) -> None:
        dataset = TFRecordDataset(make([9]), None, {"id": "int"})
        data = StatefulDataLoader(dataset, batch_size=None, num_workers=2)
        iterator = iter(data)
        next(iterator)
        worker = data.state_dict()["_snapshot"]["_worker_snapshots"]["worker_1"]["dataset_state"]
        with pytest.raises(ValueError, match=r"worker 1 of 2.*state_at"):
            dataset.load_state_dict(worker)


class TestErrors:
    """Few of them with workers: torch takes five seconds to part with a worker that has failed."""

    @pytest.fixture(autouse=True)
    def without_leftovers(self) -> Iterator[None]:
        """A failed loader that is collected in a later test's worker would end in there."""
        yield
        gc.collect()

    @pytest.mark.parametrize(
        ("kind", "workers"), [(TFRecordDataset, 0), (TFRecordDataset, 2), (TFRecordMapDataset, 0)]
    )
    def test_damage_keeps_its_place(self, make: Any, kind: Any, workers: int) -> None:
        paths = make([5, 5, 5, 5, 5])
        data = bytearray(Path(paths[2]).read_bytes())
        data[-6] ^= 1
        Path(paths[2]).write_bytes(data)
        seen = []
        with pytest.raises(ChecksumError) as caught:
            for item in loader(kind(paths, None, {"id": "int"}), workers):
                seen.append(item)
        assert (caught.value.path, caught.value.record) == (paths[2], 4)
        assert paths[2] in str(caught.value) and caught.value.offset > 0
        assert ids(seen)[:14] == list(range(14)) or workers
        if workers:
            assert "in DataLoader worker process" in str(caught.value.__cause__)

    @pytest.mark.parametrize(("workers", "batch_size"), [(0, None), (0, 4), (1, 4)])
    def test_wrong_requests_keep_their_place(self, make: Any, workers: int, batch_size: int | None) -> None:
        paths = make([3])
        options = {"batch_size": batch_size}
        with pytest.raises(FeatureKindError) as kind:
            list(loader(TFRecordDataset(paths, None, {"id": "float"}, **options), workers))
        assert (kind.value.path, kind.value.record, kind.value.key) == (paths[0], 0, "id")
        if batch_size is None:
            with pytest.raises(MissingFeatureError) as missing:
                list(loader(TFRecordDataset(paths, None, {"nothing": "float"}), workers))
            assert (missing.value.path, missing.value.record, missing.value.key) == (paths[0], 0, "nothing")

    @pytest.mark.parametrize("workers", [0, 1])
    def test_transform_errors_name_the_record(self, make: Any, workers: int) -> None:
        paths = make([2, 3])
        data = loader(TFRecordDataset(paths, None, {"id": "int"}, transform=_fail_on_three), workers)
        with pytest.raises(ZeroDivisionError, match=rf"{paths[1]}: record 1: transform raised"):
            list(data)
        batches = TFRecordDataset(paths, None, {"id": "int"}, transform=_fail_on_three, batch_size=2)
        with pytest.raises(ZeroDivisionError, match=rf"{paths[1]}: record 0 \(the first of a batch of 2\)"):
            list(batches)

    def test_a_transform_cannot_end_the_data(self, make: Any) -> None:
        with pytest.raises(RuntimeError, match="record 0: transform raised StopIteration"):
            list(TFRecordDataset(make([2]), transform=_stop))


def _fail_on_three(record: Any) -> Any:
    value = record["id"]
    value = value.values if isinstance(value, Ragged) else value
    if int(value[-1]) == 3:
        return 1 // 0
    return record


def _stop(record: Any) -> Any:
    raise StopIteration


class TestManners:
    def test_global_generators_are_left_alone(self, make: Any) -> None:
        paths, packed = make([30]), make([30], gzip=True)
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        expected = random.random(), np.random.rand(), torch.rand(1).item()
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        list(TFRecordDataset(paths, shuffle=True))
        list(TFRecordDataset(paths, shuffle_queue_size=5, seed=None))
        list(TFRecordDataset(packed, shuffle_queue_size=5))
        next(iter(MultiTFRecordDataset("{}", None, {paths[0]: 1.0, packed[0]: 1.0})))
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected

    def test_gzip_is_dealt_by_files_where_there_are_enough(self, make: Any, quiet: None) -> None:
        paths = make([5] * 6, gzip=True)
        data = loader(TFRecordDataset(paths, None, {"id": "int"}), 2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sorted(ids(data)) == list(range(30))

    def test_what_is_said_once(self, make: Any) -> None:
        dataset = TFRecordDataset(make([5], gzip=True), None, {"id": "int"}, shuffle=True)
        with pytest.warns(UserWarning, match="a queue of 16,384 records") as caught:
            for _ in range(3):
                list(dataset)
        assert len(caught) == 1
        from simulation import SimulatedLoader

        shared = TFRecordDataset(make([5], gzip=True), None, {"id": "int"})
        with pytest.warns(UserWarning, match="so each worker decompresses all") as caught:
            for _ in range(3):
                list(SimulatedLoader(shared, 3))
        assert len(caught) == 1

    def test_handles_open_in_the_worker(self, make: Any) -> None:
        dataset = TFRecordDataset(make([5] * 3), None, {"id": "int"}, shuffle=True)
        data = pickle.dumps(dataset)
        assert len(data) < 8000
        list(dataset)
        assert len(pickle.dumps(dataset)) < 8000
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert sorted(pool.apply(ids, (dataset,))) == list(range(15))
