"""What the datasets say: wrong options, reprs, warnings, counts of skipped records."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulation import SimulatedLoader, ids
from torch.utils.data import DataLoader

import indexer
from tfrecord import FixedLenFeature, TFRecordWriter, make_splits
from tfrecord.reader import TFRecordReader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset

FEATURES = {"id": FixedLenFeature((), "int")}


class TestWrongOptions:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("shuffel", "; did you mean 'shuffle'?"),
            ("batchsize", "; did you mean 'batch_size'?"),
            ("verfy", "; did you mean 'verify'?"),
            ("max_skip", "; did you mean 'max_skips'?"),
            ("qqq", ""),
        ],
    )
    def test_a_misspelt_one_is_blamed_on_what_was_called(self, make: Any, name: str, hint: str) -> None:
        paths = make([1])
        wrong: Any = {name: 1}
        with pytest.raises(TypeError) as caught:
            TFRecordDataset(paths, **wrong)
        assert str(caught.value) == f"TFRecordDataset() got an unexpected keyword argument {name!r}{hint}"
        with pytest.raises(TypeError, match=f"^MultiTFRecordDataset.. got .*{name!r}"):
            MultiTFRecordDataset("{}", None, {"a": 1}, **wrong)
        with pytest.raises(TypeError, match=f"^MultiTFRecordDataset.from_datasets.. got .*{name!r}"):
            MultiTFRecordDataset.from_datasets([paths], [1], **wrong)

    def test_of_a_map(self, make: Any) -> None:
        wrong: Any = {"transfrom": id}
        with pytest.raises(
            TypeError, match=r"^TFRecordMapDataset\(\) got .*'transfrom'; did you mean 'transform'"
        ):
            TFRecordMapDataset(make([1]), **wrong)

    @pytest.mark.parametrize("key", [1.5, "3", b"4", None, {1}, {1: 2}, [0.5], np.array([0.5])])
    def test_what_is_no_position_is_a_type_error(self, make: Any, key: Any) -> None:
        dataset = TFRecordMapDataset(make([5]), features=FEATURES)
        with pytest.raises(TypeError):
            dataset[key]
        with pytest.raises(TypeError):
            dataset.reader[key]
        with pytest.raises(IndexError):
            dataset[5]

    def test_sequence_features(self, tmp_path: Any) -> None:
        from tfrecord import TFRecordWriter

        path = str(tmp_path / "a.tfrecord")
        with TFRecordWriter(path) as writer:
            writer.write({"id": (1, "int")}, {"s": ([[1, 2], [3]], "int")})
        both: Any = {"features": {"id": "int"}, "sequence_features": {"s": "int"}}
        for dataset in (
            TFRecordDataset(path, **both),
            TFRecordMapDataset(path, **both),
            MultiTFRecordDataset(f"{tmp_path}/{{}}.tfrecord", None, {"a": 1}, infinite=False, **both),
            MultiTFRecordDataset.from_datasets([path], [1], infinite=False, **both),
        ):
            ((context, lists),) = [dataset[0]] if isinstance(dataset, TFRecordMapDataset) else list(dataset)
            assert context["id"].tolist() == [1] and [step.tolist() for step in lists["s"]] == [[1, 2], [3]]


class TestReprs:
    def test_they_are_the_calls(self, make: Any) -> None:
        paths = make([4])
        shown = repr(paths)
        assert repr(TFRecordDataset(paths, None, ["id"], shuffle=True, verify=False)) == (
            f"TFRecordDataset({shown}, description=['id'], shuffle=True, verify=False)"
        )
        assert repr(TFRecordMapDataset(paths, transform=id)) == (
            f"TFRecordMapDataset({shown}, transform=builtins.id)"
        )
        dataset = TFRecordDataset(TFRecordReader(paths), batch_size=2)
        assert repr(dataset) == f"TFRecordDataset(TFRecordReader({shown}), batch_size=2)"
        mix = MultiTFRecordDataset.from_datasets([dataset], [1.0], infinite=False)
        assert repr(mix) == f"MultiTFRecordDataset.from_datasets([{dataset!r}], [1.0], infinite=False)"
        before = repr(mix.take(1))
        list(mix)
        assert repr(mix.take(1)) == before == repr(pickle.loads(pickle.dumps(mix.take(1))))


class TestRanks:
    def test_unequal_numbers_of_batches_are_said_once(self, make: Any) -> None:
        paths = make([10])
        for size, ranks in ((2, 2), (4, 2), (3, 3)):
            dataset = TFRecordDataset(paths, features=FEATURES, batch_size=size, rank=0, world_size=ranks)
            if -(-10 // size) % ranks == 0:
                list(dataset)
                continue
            with pytest.warns(UserWarning, match="ranks get one more batch.*split='drop'") as caught:
                list(dataset)
                list(SimulatedLoader(dataset, 2))
            assert len(caught) == 1 and caught[0].filename == __file__

    def test_not_where_they_are_equal_or_wanted(self, make: Any) -> None:
        def count(**options: Any) -> int:
            """Batches or records of a pass; a warning would be an error."""
            return len(list(TFRecordDataset(paths, features=FEATURES, **options)))

        paths = make([10])
        assert [count(batch_size=3, rank=1, world_size=3, split=split) for split in ("drop", "pad")] == [1, 2]
        assert count(rank=1, world_size=3) == 3
        assert count(batch_size=3) == 4


def test_warnings_point_to_the_loop(make: Any) -> None:
    """Through a loader of torch's as well."""
    dataset = TFRecordDataset(make([3], gzip=True), features=FEATURES, shuffle=True)
    with pytest.warns(UserWarning, match="shuffled through a queue") as caught:
        list(DataLoader(dataset, batch_size=None))
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_skipped_records_are_counted_over_workers(
    make: Any, batch_size: int | None, persistent: bool
) -> None:
    paths = make([20, 20])
    for path, records in zip(paths, ([3, 11], [0]), strict=True):
        index = indexer.build_index(path)
        with open(path, "r+b") as file:
            for record in records:
                file.seek(int(index.offsets[record]) + 14)
                file.write(b"\xff")
    dataset = TFRecordDataset(paths, features=FEATURES, on_error="skip", batch_size=batch_size)
    assert dataset.num_skipped == 0
    simulated = SimulatedLoader(dataset, 3, persistent=persistent)
    for _ in range(2):
        assert len(ids(simulated)) == 37
        assert dataset.num_skipped == 3  # the same ones again


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_skipped_records_are_counted_over_processes(make: Any, method: str) -> None:
    paths = make([20])
    index = indexer.build_index(paths[0])
    with open(paths[0], "r+b") as file:
        for record in (2, 3, 9):
            file.seek(int(index.offsets[record]) + 14)
            file.write(b"\xff")
    dataset = TFRecordDataset(paths, features=FEATURES, on_error="skip", batch_size=3)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    assert len(ids(loader)) == 17
    assert dataset.num_skipped == 3
    if method == "fork":
        list(loader)
        assert dataset.num_skipped == 3


class TestPadding:
    FEATURES = ("id", "x")

    def batch(self, make: Any, **options: Any) -> Any:
        dataset = TFRecordDataset(
            make([7]), features={"id": "int", "x": "float"}, batch_size=7, ragged="pad", **options
        )
        return next(iter(dataset))

    def test_values_and_widths(self, make: Any) -> None:
        batch = self.batch(make, pad_value=-1, pad_to_multiple_of=4)
        assert batch["x"].shape == (7, 4) and batch["id"].shape == (7, 4)
        for row in range(7):
            assert batch["x"][row].tolist() == [float(row)] * (row % 4) + [-1.0] * (4 - row % 4)
            assert batch["x_mask"][row].tolist() == [True] * (row % 4) + [False] * (4 - row % 4)
        assert batch["x"].dtype == torch.float32 and batch["x_mask"].dtype == torch.bool

    def test_by_feature(self, make: Any) -> None:
        batch = self.batch(make, pad_value={"x": 9}, max_length={"x": 2})
        assert batch["x"].tolist()[:4] == [[9, 9], [1, 9], [2, 2], [3, 3]]
        assert batch["id"].tolist() == [[n] for n in range(7)]

    def test_a_length_cuts_and_its_multiple_fills(self, make: Any) -> None:
        batch = self.batch(make, max_length=2, pad_to_multiple_of=3, pad_value=5)
        assert batch["x"][3].tolist() == [3, 3, 5] and batch["x_mask"][3].tolist() == [True, True, False]
        assert self.batch(make, max_length=6)["x"].shape == (7, 6)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"pad_value": 1}, "pad_value needs ragged='pad', not ragged='ragged'"),
            ({"ragged": "nested", "max_length": 1}, "max_length needs ragged='pad'"),
            ({"ragged": "pad", "max_length": -1}, "max_length must be an integer of at least 0"),
            ({"ragged": "pad", "max_length": 1.5}, "max_length must be an integer, got 1.5"),
            (
                {"ragged": "pad", "pad_to_multiple_of": 0},
                "pad_to_multiple_of must be an integer of",
            ),
            ({"ragged": "padded"}, "ragged must be one of"),
        ],
    )
    def test_wrong_ones(self, make: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises((TypeError, ValueError), match=message):
            TFRecordDataset(make([1]), batch_size=1, **options)


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 2}, {"shuffle": True}, {"batch_size": 2, "prefetch": 2}]
)
def test_a_feature_that_no_record_has_is_said_once(make: Any, options: dict[str, Any], gzip: bool) -> None:
    if gzip and "shuffle" in options:
        options = {"shuffle_queue_size": 3}
    paths = make([3, 2], gzip=gzip)
    for kind in ("int", FixedLenFeature((), "int", 0)):
        dataset = TFRecordDataset(paths, features={"idd": kind}, **options)
        with pytest.warns(UserWarning, match="no record .* has a feature 'idd'; did you mean 'id'") as caught:
            list(dataset)
            list(DataLoader(dataset, batch_size=None))
        assert [warning.filename for warning in caught] == [__file__]
        list(TFRecordDataset(paths, features={"idd": kind}, allow_missing=True, **options))


def test_an_empty_file_says_nothing_about_names(make: Any) -> None:
    reader = TFRecordReader(make([0]), features={"idd": "int"})
    assert list(reader) == list(reader.batches(2)) == list(TFRecordDataset(reader)) == []


def test_an_item_by_position_names_the_map_style_dataset(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "data.tfrecord") as writer:
        writer.write({"label": (1, "int")})
    with pytest.raises(
        TypeError, match="TFRecordDataset gives its items in the order of an epoch.*TFRecordMapDataset"
    ):
        TFRecordDataset(tmp_path / "data.tfrecord")[0]


def test_a_split_is_not_a_path(make: Any) -> None:
    (split,) = make_splits(make([2]), 1)
    with pytest.raises(TypeError, match=r"give split\.reader\(\) to the dataset"):
        TFRecordDataset(split)
    assert len(TFRecordDataset(split.reader())) == 2
