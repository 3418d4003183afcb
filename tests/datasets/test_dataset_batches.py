"""Batches of tensors, transforms, and records that are left out."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulation import DENSE, SimulatedLoader, ids, read_with
from torch.utils.data import DataLoader

from indexer.errors import ChecksumError, FeatureKindError, MissingFeatureError, TruncatedRecordError
from tfrecord.columns import Ragged
from tfrecord.features import VarLenFeature
from tfrecord.torch import TFRecordDataset, pad_collate
from tfrecord.writer import TFRecordWriter


class TestBatches:
    def test_dense_columns_are_writable_tensors(self, make: Any) -> None:
        batches = list(TFRecordDataset(make([10]), None, DENSE, batch_size=4))
        assert [batch["id"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert batches[2]["name"] == [b"n8", b"n9"]
        batches[0]["id"].mul_(2)
        assert batches[0]["id"].dtype == torch.int64 and isinstance(batches[0], dict)
        dropped = TFRecordDataset(make([10]), None, DENSE, batch_size=4, drop_last=True)
        assert len(dropped) == len(list(dropped)) == 2

    def test_ragged_columns(self, make: Any) -> None:
        path, features = make([6]), {"x": VarLenFeature("float")}
        ragged = next(iter(TFRecordDataset(path, None, features, batch_size=6)))["x"]
        assert isinstance(ragged, Ragged)
        assert ragged.row_splits.tolist() == [0, 0, 1, 3, 6, 6, 7]
        assert ragged.to("cpu").to_padded(-1.0).shape == (6, 3)
        nested = next(iter(TFRecordDataset(path, None, features, batch_size=6, ragged="nested")))["x"]
        assert nested.is_nested and [len(row) for row in nested.unbind()] == [0, 1, 2, 3, 0, 1]
        padded = next(iter(TFRecordDataset(path, None, features, batch_size=6, ragged="pad")))
        assert padded["x"].tolist()[2] == [2.0, 2.0, 0.0]
        assert padded["x_mask"].sum(dim=1).tolist() == [0, 1, 2, 3, 0, 1]

    def test_sequence_examples(self, tmp_path: Path) -> None:
        path = tmp_path / "s.tfrecord"
        with TFRecordWriter(path) as writer:
            for i in range(3):
                writer.write({"id": (i, "int")}, {"tokens": ([[i] * 2] * (i + 1), "int")})
        records = list(TFRecordDataset(path, None, {"id": "int"}, sequence_description={"tokens": "int"}))
        context, lists = records[1]
        assert context["id"].tolist() == [1] and [step.tolist() for step in lists["tokens"]] == [
            [1, 1],
            [1, 1],
        ]
        dataset = TFRecordDataset(
            path, None, {"id": "int"}, sequence_description={"tokens": "int"}, batch_size=3
        )
        context, lists = next(iter(dataset))
        assert lists["tokens"].to_list() == [[[0, 0]], [[1, 1]] * 2, [[2, 2]] * 3]
        collated = next(iter(DataLoader(records, batch_size=3, collate_fn=pad_collate(-1, 2))))
        assert collated[1]["tokens"].shape == (3, 2, 2)
        assert collated[1]["tokens"][0].tolist() == [[0, 0], [-1, -1]]
        assert collated[1]["tokens_mask"][0].tolist() == [[True, True], [False, False]]

    def test_pad_collate(self, make: Any) -> None:
        data = DataLoader(
            TFRecordDataset(make([6]), None, {"id": "int", "x": "float", "name": "byte"}),
            batch_size=6,
            collate_fn=pad_collate(value=9, max_length=2),
        )
        batch = next(iter(data))
        assert batch["x"].tolist()[1:4] == [[1.0, 9.0], [2.0, 2.0], [3.0, 3.0]]
        assert batch["x_mask"].tolist()[:3] == [[False, False], [True, False], [True, True]]
        assert batch["id"].shape == (6, 2) and batch["name"] == [b"n%d" % i for i in range(6)]
        pickle.dumps(pad_collate(1))
        uncalled = next(
            iter(DataLoader([{"x": np.ones(i)} for i in range(3)], batch_size=3, collate_fn=pad_collate))
        )
        assert uncalled["x"].shape == (3, 2)
        with pytest.raises(ValueError, match="'x_mask'"):
            pad_collate()([{"x": np.zeros(1), "x_mask": 0}])
        with pytest.raises(KeyError, match="record 1 of the batch has no 'x'"):
            pad_collate()([{"x": np.zeros(1)}, {}])

    def test_schema_free_default_collate(self, make: Any) -> None:
        """The plainest use: one number and one byte string a record, batched by torch."""
        batch = next(
            iter(DataLoader(TFRecordDataset(make([4]), None, {"id": "int", "name": "byte"}), batch_size=4))
        )
        assert batch["id"].tolist() == [[0], [1], [2], [3]] and batch["name"] == [b"n0", b"n1", b"n2", b"n3"]


class TestTransforms:
    def test_on_records_and_batches(self, make: Any) -> None:
        assert list(TFRecordDataset(make([3]), transform=lambda record: int(record["id"][0]) + 1)) == [
            1,
            2,
            3,
        ]
        sums = TFRecordDataset(make([5]), None, DENSE, batch_size=2, transform=lambda b: int(b["id"].sum()))
        assert list(sums) == [1, 5, 4]

    def test_none_drops_where_asked(self, make: Any) -> None:
        odd = lambda record: record if record["id"][0] % 2 else None  # noqa: E731
        dataset = TFRecordDataset(make([9]), transform=odd, drop_none=True)
        assert ids(dataset) == [1, 3, 5, 7] and len(dataset) == 9
        assert list(TFRecordDataset(make([2]), transform=lambda record: None)) == [None, None]
        resumed = TFRecordDataset(dataset.reader, transform=odd, drop_none=True)
        resumed.load_state_dict(read_with(resumed, 2))
        assert ids(SimulatedLoader(resumed, 2)) == [5, 7]

    def test_missing_features(self, make: Any) -> None:
        path = make([2])
        with pytest.raises(MissingFeatureError) as caught:
            list(TFRecordDataset(path, None, {"id": "int", "y": "float"}))
        assert (caught.value.path, caught.value.record, caught.value.key) == (path[0], 0, "y")
        assert isinstance(caught.value, KeyError)
        with pytest.warns(UserWarning, match="no record that was read has a feature 'y'"):
            allowed = list(TFRecordDataset(path, None, {"id": "int", "y": VarLenFeature("float")}))
        assert allowed[0]["y"].tolist() == []
        with pytest.raises(FeatureKindError):
            list(TFRecordDataset(path, None, {"id": "byte"}))

    @pytest.mark.parametrize("batch_size", [None, 4])
    @pytest.mark.parametrize("gzip", [False, True])
    def test_damaged_records_are_skipped(self, make: Any, batch_size: int | None, gzip: bool) -> None:
        import gzip as packer

        paths = make([6, 6])
        data = bytearray(Path(paths[0]).read_bytes())
        data[-6] ^= 1
        Path(paths[0]).write_bytes(data)
        if gzip:
            for path in paths:
                Path(path).write_bytes(packer.compress(Path(path).read_bytes()))
        told: list[Any] = []
        for policy in ("skip", told.append):
            dataset = TFRecordDataset(paths, None, {"id": "int"}, on_error=policy, batch_size=batch_size)
            assert ids(dataset) == [0, 1, 2, 3, 4, *range(6, 12)]
        assert [(error.path, error.record) for error in told] == [(paths[0], 5)]
        strict = TFRecordDataset(paths, None, {"id": "int"}, batch_size=batch_size)
        seen = []
        with pytest.raises(ChecksumError) as caught:
            seen.extend(iter(strict))
        assert (caught.value.path, caught.value.record) == (paths[0], 5)
        capped = TFRecordDataset(paths, None, {"id": "int"}, on_error="skip", max_skips=0)
        with pytest.raises(ChecksumError):
            list(capped)

    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_good_records_come_before_a_cut(self, make: Any, batch_size: int | None) -> None:
        """Without an index, in stored order; also through workers. What needs all positions raises."""
        paths = make([5, 6, 7])
        data = Path(paths[1]).read_bytes()
        Path(paths[1]).write_bytes(data[:-3])
        options = {"description": {"id": "int"}, "batch_size": batch_size}
        for workers in (0, 2):
            seen: list[Any] = []
            with pytest.raises(TruncatedRecordError) as caught:
                for item in SimulatedLoader(TFRecordDataset(paths, **options), workers):
                    seen.append(item)
            assert (caught.value.path, caught.value.record) == (paths[1], 5)
            assert sorted(ids(seen)) == list(range(10))[: len(ids(seen))] and len(ids(seen)) >= 9 - workers
        assert ids(TFRecordDataset(paths, on_error="skip", **options)) == [*range(10), *range(11, 18)]
        for broken in (TFRecordDataset(paths, shuffle=True, **options), TFRecordDataset(paths, **options)):
            with pytest.raises(TruncatedRecordError):
                len(broken)


class TestThreads:
    @pytest.fixture(autouse=True)
    def small_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tfrecord._reading.ahead.LEAST_BYTES", 100)

    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("split", ["exact", "pad"])
    def test_batches_and_states_are_those_of_one_thread(self, make: Any, shuffle: bool, split: Any) -> None:
        paths = make([10, 23, 1])
        found = []
        for threads in (1, 3):
            dataset = TFRecordDataset(
                paths, None, DENSE, batch_size=3, shuffle=shuffle, split=split, num_threads=threads,
                rank=1, world_size=2,
            )  # fmt: skip
            steps = []
            for batch in dataset:
                steps.append((batch["id"].tolist(), batch["name"], dataset.state_dict()))
            resumed = TFRecordDataset(
                paths, None, DENSE, batch_size=3, shuffle=shuffle, split=split, num_threads=threads,
                rank=1, world_size=2,
            )  # fmt: skip
            running = iter(dataset)
            next(running)
            resumed.load_state_dict(dataset.state_dict())
            found.append((steps, [batch["id"].tolist() for batch in resumed]))
        assert found[0] == found[1] and len(found[0][0]) > 3

    def test_good_batches_come_before_damage(self, make: Any) -> None:
        path = make([60])[0]
        data = bytearray(Path(path).read_bytes())
        data[len(data) // 2] ^= 1
        Path(path).write_bytes(data)
        results = []
        for threads in (1, 3):
            taken: list[int] = []
            with pytest.raises(ChecksumError) as caught:
                for batch in TFRecordDataset(path, None, DENSE, batch_size=4, num_threads=threads):
                    taken += batch["id"].tolist()
            results.append((taken, caught.value.record))
        assert results[0] == results[1] and len(results[0][0]) > 20

    def test_the_transform_runs_in_the_thread_of_the_loop(self, make: Any) -> None:
        names = []

        def transform(batch: Any) -> Any:
            names.append(threading.get_ident())
            return batch

        list(TFRecordDataset(make([60]), None, DENSE, transform=transform, batch_size=4, num_threads=3))
        assert len(names) == 15 and set(names) == {threading.get_ident()}
