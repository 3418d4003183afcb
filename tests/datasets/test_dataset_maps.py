"""Records by position, for samplers and for grain."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulation import DENSE, ids
from torch.utils.data import DataLoader, DistributedSampler, Subset, WeightedRandomSampler, random_split

import tfrecord.torch
from indexer.errors import MissingFeatureError
from tfrecord.features import FixedLenFeature
from tfrecord.torch import TFRecordMapDataset
from tfrecord.writer import TFRecordWriter


class TestMapStyle:
    def test_is_a_sequence(self, make: Any) -> None:
        data = TFRecordMapDataset(make([4, 3]), None, {"id": "int", "name": "byte"})
        assert len(data) == 7
        assert [int(data[i]["id"][0]) for i in (0, 5, -1, np.int64(3), torch.tensor(2))] == [
            0,
            5,
            6,
            3,
            2,
        ]
        assert ids(data[1:6:2]) == [1, 3, 5] and ids(data[[4, 4]]) == [4, 4]
        assert ids(data.__getitems__([6, 0, -2])) == [6, 0, 5]
        for index in (7, -8):
            with pytest.raises(IndexError, match="there are 7 records"):
                data[index]
        with pytest.raises(ValueError, match="on_error"):
            TFRecordMapDataset(make([1]), on_error="skip")

    def test_a_batch_of_records_is_as_one_by_one(self, tmp_path: Path) -> None:
        path = tmp_path / "kinds.tfrecord"
        with TFRecordWriter(path) as writer:
            for i in range(12):
                names = [b"x%d\0" % j for j in range(i % 4)]
                floats = [float(j) for j in range(i % 3)]
                writer.write(
                    {"a": (i, "int"), "b": (floats, "float"), "c": (names, "byte"), "d": ([i, 1], "int")}
                )
        features = {
            "a": FixedLenFeature((), "int32"),
            "b": "float",
            "c": "byte",
            "d": FixedLenFeature((2,), "int"),
            "e": FixedLenFeature((), "byte", default_value=b"none"),
        }
        data = TFRecordMapDataset(path, None, features)
        for single, together in zip([data[i] for i in range(12)], data.__getitems__(range(12)), strict=True):
            assert list(single) == list(together)
            for name, value in single.items():
                assert type(value) is type(together[name]) and np.array_equal(value, together[name])
                assert getattr(value, "dtype", None) == getattr(together[name], "dtype", None)
        with pytest.raises(MissingFeatureError) as caught:
            TFRecordMapDataset(path, None, {"a": "int", "z": "int"}).__getitems__([4, 5])
        assert (caught.value.path, caught.value.record, caught.value.key) == (str(path), 4, "z")

    @pytest.mark.parametrize("features", [DENSE, {"id": "int", "name": "byte"}])
    def test_with_every_sampler(self, make: Any, features: Any) -> None:
        data = TFRecordMapDataset(make([10, 11]), None, features, transform=_with_square)
        everything = list(range(21))
        assert sorted(ids(DataLoader(data, batch_size=4, shuffle=True, num_workers=2))) == everything
        parts = random_split(data, [0.7, 0.3])
        assert sorted(ids(parts[0]) + ids(parts[1])) == everything
        assert ids(DataLoader(Subset(data, [3, 1]), batch_size=2)) == [3, 1]
        ranks = [DistributedSampler(data, num_replicas=3, rank=rank) for rank in range(3)]
        assert (
            sorted(n for sampler in ranks for n in ids(DataLoader(data, batch_size=4, sampler=sampler)))
            == everything
        )
        weights = [0.0] * 20 + [1.0]
        assert ids(DataLoader(data, batch_size=5, sampler=WeightedRandomSampler(weights, 5))) == [20] * 5
        batch = next(iter(DataLoader(data, batch_size=3)))
        assert batch["square"].tolist() == [0, 1, 4] and batch["name"] == [b"n0", b"n1", b"n2"]

    def test_labels_of_the_index_choose(self, tmp_path: Path) -> None:
        path = tmp_path / "labels.tfrecord"
        with TFRecordWriter(path) as writer:
            for i in range(10):
                writer.write({"id": (i, "int"), "label": (i % 3, "int")})
        tfrecord.build_index(path, columns=["label"])
        data = TFRecordMapDataset(path, None, {"id": "int"})
        labels = data.reader.index.columns["label"]
        weights = (np.asarray(labels) == 2).astype(float)
        chosen = ids(DataLoader(data, sampler=WeightedRandomSampler(weights.tolist(), 30), batch_size=5))
        assert set(chosen) == {2, 5, 8}
        assert ids(TFRecordMapDataset(data.reader.select(data.reader.where(label=1)))) == [1, 4, 7]

    def test_compressed_and_pickled(self, make: Any) -> None:
        data = pickle.loads(pickle.dumps(TFRecordMapDataset(make([5], gzip=True), None, {"id": "int"})))
        assert ids(data) == list(range(5))


def _with_square(record: dict[str, Any]) -> dict[str, Any]:
    record["square"] = int(np.asarray(record["id"]).ravel()[0]) ** 2
    return record


GRAIN = os.environ.get("TFRECORD_GRAIN_PYTHON", "")


@pytest.mark.skipif(not GRAIN, reason="TFRECORD_GRAIN_PYTHON names no Python that has grain")
def test_grain_reads_a_reader(make: Any) -> None:
    """In grain's own environment: a reader is its RandomAccessDataSource, pickled to its worker processes."""
    code = """
import sys
import grain.python as grain
from tfrecord.reader import TFRecordReader

def main():
    reader = TFRecordReader(sys.argv[1], features={"id": "int"})
    assert isinstance(reader, grain.RandomAccessDataSource)
    whole = grain.NoSharding()
    for workers in (0, 1):
        sampler = grain.IndexSampler(len(reader), shard_options=whole, shuffle=True, num_epochs=1, seed=3)
        loader = grain.DataLoader(data_source=reader, sampler=sampler, worker_count=workers)
        print(sorted(int(record["id"][0]) for record in loader))
    data = grain.MapDataset.source(reader).shuffle(seed=1).map(lambda record: int(record["id"][0]))
    print(sorted(data))

if __name__ == "__main__":
    main()
"""
    script = Path(make([0])[0]).with_suffix(".py")
    script.write_text(code)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(tfrecord.torch.__file__).parents[2]),
        "TFRECORD_ENGINE": "reference",
    }
    found = subprocess.run(
        [GRAIN, str(script), make([12])[0]], capture_output=True, text=True, env=environment, timeout=240
    )
    assert found.stdout.splitlines() == [str(list(range(12)))] * 3, found.stderr[-2000:]
