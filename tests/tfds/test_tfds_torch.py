"""TFDS folders in the torch datasets: records, batches, workers, resume, splits."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prepared import TEXT, dict_of, sequence, tensor, write_folder

from tfrecord import make_splits, tfds

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from tfrecord.torch import TFRecordDataset, TFRecordMapDataset  # noqa: E402

COUNT = 23


@pytest.fixture
def reader(tmp_path: Path) -> Any:
    features = dict_of(
        x=tensor("int64"), obs=dict_of(v=tensor("float32", 2), t=TEXT), many=sequence(tensor("int32"))
    )
    records = [
        {
            "x": (i, "int"),
            "obs/v": ([i, 0.5], "float"),
            "obs/t": (b"t%d" % i, "byte"),
            "many": ([i] * (i % 3), "int"),
        }
        for i in range(COUNT + 4)
    ]
    folder = write_folder(tmp_path, features, {"train": [records[:9], records[9:]]})
    return tfds.open(folder, "train[4:]")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches(reader: Any, workers: int) -> None:
    dataset = TFRecordDataset(reader, shuffle=True, seed=1, batch_size=4)
    seen = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=workers):
        assert (
            batch["obs"]["v"].dtype == torch.float32
            and batch["obs"]["v"][:, 0].tolist() == batch["x"].tolist()
        )
        assert batch["obs"]["t"] == [b"t%d" % x for x in batch["x"].tolist()]
        assert batch["many"].to_list() == [[x] * (x % 3) for x in batch["x"].tolist()]
        seen += batch["x"].tolist()
    assert seen != sorted(seen) and sorted(seen) == list(range(4, COUNT + 4))


def test_padded_batches(reader: Any) -> None:
    dataset = TFRecordDataset(reader, batch_size=3, ragged="pad", transform=lambda batch: batch)
    batch = next(iter(dataset))
    assert batch["many"].shape == batch["many_mask"].shape == (3, 2)


def test_records_and_resume(reader: Any) -> None:
    dataset = TFRecordDataset(reader, shuffle=True, seed=5)
    whole = [int(record["x"]) for record in dataset]
    again = TFRecordDataset(reader, shuffle=True, seed=5)
    part = iter(again)
    head = [int(next(part)["x"]) for _ in range(7)]
    other = TFRecordDataset(pickle.loads(pickle.dumps(reader)), shuffle=True, seed=5)
    other.load_state_dict(again.state_dict())
    assert head + [int(record["x"]) for record in other] == whole


def test_map_style(reader: Any) -> None:
    dataset = TFRecordMapDataset(reader, transform=lambda record: record["obs"]["v"])
    assert len(dataset) == COUNT and dataset[1].tolist() == [5, 0.5]
    batches = list(DataLoader(dataset, batch_size=10, shuffle=True, num_workers=2))
    assert sorted(x for batch in batches for x in batch[:, 0].tolist()) == list(range(4, COUNT + 4))


def test_splits(reader: Any) -> None:
    found = []
    for split in make_splits(reader, 3):
        split = pickle.loads(pickle.dumps(split))
        for batch in split.batches(4):
            found += batch["x"].tolist()  # type: ignore[call-overload, index, union-attr]
        assert split.reader()[0]["obs"]["t"].startswith(b"t")
    assert found == list(range(4, COUNT + 4))


@pytest.mark.parametrize("workers", [0, 2])
def test_windows(tmp_path: Path, workers: int) -> None:
    features = dict_of(steps=sequence(dict_of(a=tensor("int64"), v=tensor("float32", 2))))
    episodes = [
        {
            "steps/a": ([10 * i + j for j in range(n)], "int"),
            "steps/v": (np.zeros(2 * n, np.float32), "float"),
        }
        for i, n in enumerate([4, 3, 6])
    ]
    steps = tfds.open(write_folder(tmp_path, features, {"train": [episodes]})).steps(3, pad=True)
    dataset = TFRecordDataset(steps, shuffle=True, seed=2, batch_size=2)
    rows = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=workers):
        assert batch["a"].shape == batch["is_padding"].shape == (len(batch["a"]), 3)
        rows += [tuple(row) for row in batch["a"].tolist()]
    assert sorted(rows) == sorted(tuple(one["a"].tolist()) for one in steps) and len(rows) == 13
    assert sorted(tuple(one["a"].tolist()) for one in TFRecordDataset(steps, shuffle="block")) == sorted(rows)
    loader = DataLoader(TFRecordMapDataset(steps), batch_size=4, num_workers=workers)
    assert [row for batch in loader for row in batch["a"].tolist()] == [one["a"].tolist() for one in steps]
