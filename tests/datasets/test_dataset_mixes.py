"""Several datasets mixed by weights."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation import DENSE, SimulatedLoader, ids, read_with, write_files

from tfrecord.reader import TFRecordReader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset
from tfrecord.writer import TFRecordWriter


class TestMixes:
    def pattern(self, make: Any, *counts: int) -> str:
        folder = Path(make([0])[0]).parent / "b{r}ace"
        first = 0
        for number, count in enumerate(counts):
            source = Path(write_files(folder / str(number), [count], first=first)[0])
            source.rename(folder / f"s{number}.tfrecord")
            first += 100
        return f"{folder}/{{}}.tfrecord"

    def test_infinite_holds_weights_for_all_and_for_each_rank(self, make: Any) -> None:
        pattern = self.pattern(make, 7, 3)
        for rank in range(2):
            dataset = MultiTFRecordDataset(
                pattern, None, {"s0": 3, "s1": 1}, {"id": "int"}, rank=rank, world_size=2
            )
            with pytest.raises(TypeError, match="infinite"):
                len(dataset)
            drawn = [number for number, _ in zip(map(int, _numbers(dataset)), range(2000), strict=False)]
            share = np.mean([number >= 100 for number in drawn])
            assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)
        whole = MultiTFRecordDataset(pattern, None, {"s0": 3, "s1": 1}, {"id": "int"})
        drawn = [int(number) for number, _ in zip(_numbers(whole), range(2000), strict=False)]
        for counts in (
            np.bincount([n for n in drawn if n < 100]),
            np.bincount([n - 100 for n in drawn if n >= 100]),
        ):
            assert counts.max() - counts.min() <= 1  # each turn of a source gives each record once

    def test_finite_gives_each_once(self, make: Any) -> None:
        pattern = self.pattern(make, 7, 3, 0)
        splits = {"s0": 0.8, "s1": 0.2, "s2": 1.0}
        dataset = MultiTFRecordDataset(pattern, None, splits, {"id": "int"}, 4, infinite=False)
        first, second = ids(dataset), ids(dataset)
        assert sorted(first) == sorted(second) == [*range(7), 100, 101, 102] and first != second
        assert len(dataset) == 10
        batched = MultiTFRecordDataset(pattern, None, splits, DENSE, infinite=False, batch_size=4)
        batches = list(batched)
        assert [len(batch["name"]) for batch in batches] == [4, 4, 2] and sorted(ids(batches)) == sorted(
            first
        )

    def test_ends_where_nothing_is(self, make: Any) -> None:
        pattern = self.pattern(make, 0, 0)
        assert list(MultiTFRecordDataset(pattern, None, {"s0": 1, "s1": 1})) == []
        packed = make([0, 0], gzip=True)
        assert list(MultiTFRecordDataset("{}", None, dict.fromkeys(packed, 1.0))) == []

    def test_sources_of_weight_zero_are_not_opened(self, make: Any) -> None:
        pattern = self.pattern(make, 4)
        dataset = MultiTFRecordDataset(pattern, None, {"s0": 1, "nothing": 0}, infinite=False)
        assert ids(dataset) == [0, 1, 2, 3]
        with pytest.raises(FileNotFoundError, match="nothing"):
            MultiTFRecordDataset(pattern, None, {"s0": 1, "nothing": 0.1})
        for weights in ({"s0": -1}, {"s0": 0}, {}, {"s0": float("nan")}):
            with pytest.raises(ValueError, match="weight"):
                MultiTFRecordDataset(pattern, None, weights)

    def test_of_datasets_readers_and_paths(self, make: Any) -> None:
        """Each source with its own transform and shuffle; one with batches of its own."""
        paths = make([4, 5, 6])
        sources = [
            TFRecordDataset(paths[0], transform=lambda record: ("first", int(record["id"][0]))),
            TFRecordReader(paths[1], features={"id": "int"}),
            paths[2],
        ]
        mixed = MultiTFRecordDataset.from_datasets(sources, [1, 1, 1], infinite=False)
        items = list(mixed)
        assert sorted(item[1] for item in items if isinstance(item, tuple)) == [0, 1, 2, 3]
        assert sorted(ids(item for item in items if isinstance(item, dict))) == list(range(4, 15))
        batches = [TFRecordDataset(path, None, DENSE, batch_size=2) for path in paths]
        assert len(list(MultiTFRecordDataset.from_datasets(batches, [1, 2, 0], infinite=False))) == 5
        with pytest.raises(ValueError, match="2 datasets but 1 weights"):
            MultiTFRecordDataset.from_datasets(sources[:2], [1])
        with pytest.raises(TypeError, match="datasets and weights are lists"):
            MultiTFRecordDataset.from_datasets({"a": sources[0]}, [1])
        with pytest.raises(ValueError, match="without their own batch_size"):
            MultiTFRecordDataset.from_datasets(batches, [1, 1, 1], batch_size=2)
        with pytest.raises(TypeError, match="not of mixes"):
            MultiTFRecordDataset.from_datasets([mixed], [1])

    @pytest.mark.parametrize("gzip", [False, True])
    def test_batches_of_all_are_decoded_alike(self, tmp_path: Path, gzip: bool, quiet: None) -> None:
        """By what all the sources hold, not by the first one; where options of theirs differ it says so."""
        paths = [str(tmp_path / f"{number}.tfrecord") for number in range(3)]
        for path, count in zip(paths, (0, 2, 3), strict=True):
            with TFRecordWriter(path, compression_type="GZIP" if gzip else None) as writer:
                for i in range(count):
                    writer.write({"id": (i, "int")}, {"steps": ([[1]] * i, "int")})
        mix = MultiTFRecordDataset.from_datasets(paths, [1, 1, 1], infinite=False, batch_size=4)
        batches = list(pickle.loads(pickle.dumps(mix)))
        assert [sorted(context) + sorted(lists) for context, lists in batches] == [["id", "steps"]] * 2
        one, two = (
            TFRecordDataset(path, None, {name: "int"}) for path, name in zip(paths, "ab", strict=False)
        )
        with pytest.raises(ValueError, match="same features.*0.tfrecord and .*1.tfrecord differ"):
            MultiTFRecordDataset.from_datasets([one, two], [1, 1], batch_size=4)
        assert len(MultiTFRecordDataset.from_datasets([one, two], [1, 1]).datasets) == 2

    def test_a_mix_is_dense_where_all_sources_are(self, tmp_path: Path) -> None:
        paths = [str(tmp_path / f"{number}.tfrecord") for number in range(2)]
        for path, lengths in zip(paths, ((2, 2, 2), (0, 1, 3)), strict=True):
            with TFRecordWriter(path, index=True) as writer:
                for length in lengths:
                    writer.write({"id": (1, "int"), "x": ([1.0] * length, "float")})
        (batch,) = MultiTFRecordDataset.from_datasets(paths, [1, 1], infinite=False, batch_size=6)
        assert batch["id"].tolist() == [1] * 6 and sorted(batch["x"].lengths().tolist()) == [0, 1, 2, 2, 2, 3]

    def test_options_that_no_source_takes(self, make: Any) -> None:
        dataset = TFRecordDataset(make([1]))
        with pytest.raises(TypeError, match="shuffle: for readers and paths only"):
            MultiTFRecordDataset.from_datasets([dataset], [1], shuffle=True)

    def test_streams_mix_too(self, make: Any, quiet: None) -> None:
        """Compressed sources without an index, beside a plain one."""
        sources = [make([9], gzip=True)[0], make([4], first=100)[0]]
        for batch_size in (None, 3):
            options = {
                "description": {"id": "int"},
                "infinite": False,
                "batch_size": batch_size,
                "shuffle": True,
            }
            dataset = MultiTFRecordDataset.from_datasets(sources, [1, 1], **options)
            for workers in (0, 2):
                assert sorted(ids(SimulatedLoader(dataset, workers))) == [*range(9), *range(100, 104)]
        endless = MultiTFRecordDataset("{}", None, dict.fromkeys(sources, 1.0), {"id": "int"})
        drawn = [int(number) for number, _ in zip(_numbers(endless), range(400), strict=False)]
        assert 120 < sum(number >= 100 for number in drawn) < 280

    @pytest.mark.parametrize("infinite", [False, True])
    def test_resumes_on_its_ranks_only(self, make: Any, infinite: bool) -> None:
        pattern = self.pattern(make, 7, 5)

        def fresh(rank: int = 0, world_size: int = 1) -> MultiTFRecordDataset:
            return MultiTFRecordDataset(
                pattern,
                None,
                {"s0": 1, "s1": 2},
                {"id": "int"},
                infinite=infinite,
                rank=rank,
                world_size=world_size,
            )

        whole = [int(number) for number, _ in zip(_numbers(fresh()), range(12), strict=False)]
        state = read_with(fresh(), 5)
        resumed = fresh()
        resumed.load_state_dict(state)
        rest = [
            int(number) for number, _ in zip(_numbers(SimulatedLoader(resumed, 2)), range(7), strict=False)
        ]
        assert rest == whole[5:]
        with pytest.raises(ValueError, match="made with 1 ranks, but there are 2 here"):
            fresh(0, 2).load_state_dict(state)


def _numbers(items: Any) -> Any:
    return (item["id"][0] for item in items)
