"""take, skip, filter, repeat and bucket_by_length, case by case."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operated import FEATURES, batched, even, not_third
from simulation import SimulatedLoader, ids

import indexer
import tfrecord
from indexer.errors import ChecksumError
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, _choosing

pytestmark = pytest.mark.usefixtures("quiet")


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
            (("x", [1, 3], 4), "boundaries and batch_sizes are lists"),
            (("x", [1], [1, 0]), "a batch size must be an integer of at least 1"),
            (("y", [1], [1, 1]), "'y'"),
        ],
    )
    def test_wrong_ones(self, make: Any, arguments: Any, message: str) -> None:
        with pytest.raises((ValueError, KeyError, TypeError), match=message):
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
    with pytest.raises(ValueError, match="count must be an integer of at least 0"):
        dataset.take(-1)


@pytest.mark.parametrize("declares", [True, False])
def test_a_length_that_no_record_has(tmp_path: Path, declares: bool) -> None:
    """It would put all records into the first bucket."""
    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"id": [1, 2], "tokens": [[1], [2, 3]]})
    dataset = TFRecordDataset(path, features={"id": "int", "tokens": "int"} if declares else None)
    with pytest.raises(KeyError, match="'tokns'.*did you mean 'tokens'"):
        dataset.bucket_by_length("tokns", [1], [1, 1])
    allowed = TFRecordDataset(path, allow_missing=True).bucket_by_length("tokns", [1], [2, 2])
    assert len(allowed) == 1


@pytest.mark.parametrize(("length", "error"), [(1.5, TypeError), (None, TypeError), (-1, ValueError)])
def test_a_function_that_gives_no_length(tmp_path: Path, length: Any, error: type[Exception]) -> None:
    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"id": [1, 2]})
    with pytest.raises(error, match="record 0: the length must be an integer"):
        TFRecordDataset(path).bucket_by_length(lambda record: length, [1], [1, 1])


@pytest.mark.parametrize("option", ["pad_value", "max_length"])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_padding_of_a_feature_that_is_not_there(tmp_path: Path, option: str, compression: str | None) -> None:
    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"tokens": [[1], [2, 3]]}, compression_type=compression)  # type: ignore[arg-type]
    options: dict[str, Any] = {"batch_size": 2, "ragged": "pad", "features": {"tokens": "int"}}
    for name, error in (("tokens", None), ("tokns", KeyError)):
        dataset = TFRecordDataset(path, **options, **{option: {name: 1}})
        if error is None:
            assert len(list(dataset)) == 1
            continue
        with pytest.raises(error, match="'tokns'; did you mean 'tokens'"):
            list(dataset)
