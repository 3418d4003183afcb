"""The datasets in one process: options, lengths, ranks, batches, transforms, mixes, map-style."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from simulation import SimulatedLoader, ids, write_files
from torch.utils.data import DataLoader, DistributedSampler, Subset, WeightedRandomSampler, random_split

import tfrecord.torch
from indexer.errors import ChecksumError, FeatureKindError, MissingFeatureError, TruncatedRecordError
from tfrecord.columns import Ragged
from tfrecord.features import FixedLenFeature, VarLenFeature
from tfrecord.reader import TFRecordReader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset, pad_collate
from tfrecord.torch.dataset import TFRecordDataset as ByItsOldName
from tfrecord.writer import TFRecordWriter

DENSE = {"id": FixedLenFeature((), "int"), "name": FixedLenFeature((), "byte")}


def read_with(dataset: Any, steps: int) -> dict[str, Any]:
    """The state after so many items, as JSON would keep it."""
    iterator = iter(dataset)
    for _ in range(steps):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(dataset.state_dict()))
    return state


class TestOptions:
    def test_where_it_is(self) -> None:
        assert ByItsOldName is TFRecordDataset is tfrecord.torch.TFRecordDataset

    def test_paths_lists_globs_folders_and_readers(self, make: Any) -> None:
        paths = make([3, 4])
        folder = os.path.dirname(paths[0])
        for given in (paths, folder, Path(folder), f"{folder}/part-*.tfrecord", TFRecordReader(paths)):
            assert ids(TFRecordDataset(given)) == list(range(7))
        view = TFRecordReader(paths).select([6, 2, 2])
        assert ids(TFRecordDataset(view)) == [6, 2, 2]

    @pytest.mark.parametrize("kind", [TFRecordDataset, TFRecordMapDataset])
    def test_a_reader_has_its_own_options(self, make: Any, kind: Any) -> None:
        reader = TFRecordReader(make([2]))
        for options in (
            {"compression_type": "GZIP"},
            {"verify": False},
            {"on_error": "skip"},
            {"max_skips": 1},
        ):
            with pytest.raises(ValueError, match=f"has its own {next(iter(options))}"):
                kind(reader, **options)

    def test_an_index_a_list_of_them_or_their_folder(self, make: Any) -> None:
        paths = make([3, 4], index=True)
        indexes = [path + ".tfindex" for path in paths]
        assert ids(TFRecordDataset(paths[1], indexes[1])) == [3, 4, 5, 6]
        for given in (indexes, os.path.dirname(paths[0]), False, None):
            assert ids(TFRecordDataset(paths, given)) == list(range(7))

    def test_records_are_dicts_of_arrays_and_bytes(self, make: Any) -> None:
        record = list(TFRecordDataset(make([3]), None, {"id": "int", "x": "float ", "name": "bytes"}))[2]
        assert record["id"].tolist() == [2] and record["id"].dtype == np.int64
        assert record["x"].tolist() == [2.0, 2.0] and record["x"].dtype == np.float32
        assert record["name"] == b"n2"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"shuffle": "blocks"}, "shuffle is False, True or 'block'"),
            ({"split": "even"}, "'exact', 'drop', 'pad'"),
            ({"batch_size": 0}, "batch_size is an integer of at least 1"),
            ({"batch_size": True}, "batch_size is an integer of at least 1"),
            ({"drop_last": True}, "drop_last needs a batch_size"),
            ({"shuffle_queue_size": -1}, "queue size is -1"),
            ({"shuffle_queue_bytes": 0}, "shuffle_queue_bytes is an integer of at least 1"),
            ({"ragged": "padded"}, "'ragged', 'pad', 'nested'"),
            ({"rank": 1}, "both, or neither"),
            ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
            ({"rank": -1, "world_size": 2}, "rank -1 of 2"),
            ({"features": {"id": "int"}, "description": ["id"]}, "not both"),
            ({"description": {"id": "integer"}}, "integer"),
            ({"drop_none": True, "split": "drop"}, "promises equal shares"),
            ({"on_error": "skip", "split": "pad"}, "promises equal shares"),
            ({"seed": None, "rank": 0, "world_size": 2}, "another order"),
        ],
    )
    def test_wrong_ones_are_refused_at_once(self, make: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TFRecordDataset(make([1]), **options)

    @pytest.mark.parametrize("name", ["seed", "batch_size", "shuffle_queue_bytes"])
    def test_what_is_no_integer_is_named(self, make: Any, name: str) -> None:
        for value in ("3", 2.0):
            with pytest.raises(TypeError, match=f"{name} is an integer, got {value!r}"):
                TFRecordDataset(make([1]), **{name: value})

    def test_integers_of_numpy_make_states_for_json(self, make: Any) -> None:
        three = np.int64(3)
        options = {"seed": three, "batch_size": three, "shuffle_queue_bytes": three}
        for paths in (make([4]), make([4], gzip=True)):
            dataset = TFRecordDataset(paths, None, None, three, **options)
            assert json.loads(json.dumps(dataset.state_dict()))["options"]["seed"] == 3

    def test_compressed_without_index_says_what_it_cannot(self, make: Any) -> None:
        paths = make([3], gzip=True)
        for split in ("drop", "pad"):
            with pytest.raises(ValueError, match=f"{paths[0]} is compressed.*build an index"):
                TFRecordDataset(paths, split=split)
        dataset = TFRecordDataset(paths)
        with pytest.raises(TypeError, match="build an index"):
            len(dataset)
        with pytest.raises(ValueError, match="build an index"):
            dataset.state_at(0, 1)

    def test_compressed_with_index_obeys_the_order(self, make: Any) -> None:
        plain, packed = make([20]), make([20], gzip=True, index=True)
        for options in ({}, {"shuffle": True}, {"shuffle": "block"}, {"shuffle_queue_size": 4}):
            assert ids(TFRecordDataset(plain, **options)) == ids(TFRecordDataset(packed, **options))
        assert len(TFRecordDataset(packed)) == 20

    def test_one_file_or_four_give_the_same_order(self, make: Any) -> None:
        for options in ({"shuffle": True}, {"shuffle": "block"}, {"shuffle_queue_size": 7}):
            assert ids(TFRecordDataset(make([40]), **options)) == ids(
                TFRecordDataset(make([9, 0, 30, 1]), **options)
            )

    def test_stored_order_unless_asked(self, make: Any) -> None:
        assert ids(TFRecordDataset(make([30], index=True))) == list(range(30))

    def test_without_reshuffle_every_epoch_is_the_same(self, make: Any) -> None:
        dataset = TFRecordDataset(make([30]), shuffle=True, reshuffle_each_epoch=False)
        assert ids(dataset) == ids(dataset) != list(range(30))

    def test_a_drawn_seed_is_kept(self, make: Any) -> None:
        paths = make([30])
        first, second = (TFRecordDataset(paths, shuffle=True, seed=None) for _ in range(2))
        assert first.seed != second.seed
        assert ids(pickle.loads(pickle.dumps(first))) == ids(first) != ids(second)

    def test_bytes_records(self, tmp_path: Path) -> None:
        path = tmp_path / "raw.tfrecord"
        with TFRecordWriter(path) as writer:
            for text in (b"\xffone", b"\xfftwo", b"\xffthree"):
                writer.write_bytes(text)
        expected = [b"\xffone", b"\xfftwo", b"\xffthree"]
        assert list(TFRecordDataset(path, record_type="bytes")) == expected
        assert list(TFRecordDataset(path, record_type="bytes", batch_size=2)) == [expected[:2], expected[2:]]
        padded = TFRecordDataset(path, record_type="bytes", split="pad", rank=1, world_size=2)
        assert list(padded) == [
            {"record": b"\xfftwo", "is_padding": False},
            {"record": b"\xffone", "is_padding": True},
        ]


class TestRanks:
    def test_from_the_launcher(self, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = make([7])
        dataset = TFRecordDataset(paths)
        monkeypatch.setenv("RANK", "1")
        assert len(dataset) == 7  # one of the two is no launcher
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.delenv("RANK")
        with pytest.raises(ValueError, match="WORLD_SIZE='3' is in the environment, RANK is not"):
            len(dataset)
        monkeypatch.setenv("RANK", "1")
        assert ids(dataset) == [1, 4] and len(dataset) == 2
        assert ids(TFRecordDataset(paths, rank=0, world_size=1)) == list(range(7))
        monkeypatch.setenv("RANK", "three")
        with pytest.raises(ValueError, match="RANK='three'"):
            len(dataset)
        monkeypatch.setenv("RANK", "3")
        with pytest.raises(ValueError, match="rank 3 of 3"):
            len(dataset)
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(ValueError, match="another order"):
            list(TFRecordDataset(paths, shuffle=True, seed=None))

    def test_from_torch_distributed_begun_later(self, make: Any, tmp_path: Path) -> None:
        """Made before init_process_group, read after it, by this process and by a spawned worker."""
        code = """
import sys, torch.distributed as dist
from torch.utils.data import DataLoader
from tfrecord.torch import TFRecordDataset

def main():
    dataset = TFRecordDataset(sys.argv[1], None, {"id": "int"})
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[3]), world_size=2)
    here, there = ([int(item["id"][0]) for item in items] for items in (dataset, loader))
    print(here, there, len(dataset))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
        script = tmp_path / "ranks.py"
        script.write_text(code)
        path = make([5])[0]
        environment = {**os.environ, "PYTHONPATH": str(Path(tfrecord.torch.__file__).parents[2])}
        running = [
            subprocess.Popen(
                [sys.executable, str(script), path, str(tmp_path / "meet"), rank],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in ("0", "1")
        ]
        printed = [process.communicate(timeout=120)[0].strip() for process in running]
        assert printed == ["[0, 2, 4] [0, 2, 4] 3", "[1, 3] [1, 3] 2"]

    @pytest.mark.parametrize("batch_size", [None, 3])
    def test_padding_is_told_apart(self, make: Any, batch_size: int | None) -> None:
        paths = make([10])
        seen: list[tuple[int, bool]] = []
        lengths = set()
        for rank in range(4):
            options = {"rank": rank, "world_size": 4, "split": "pad", "batch_size": batch_size}
            items = list(TFRecordDataset(paths, None, DENSE, **options))
            lengths.add(len(items))
            for item in items:
                flags = np.atleast_1d(item["is_padding"]).tolist()
                seen += zip(ids([item]), flags, strict=True)
        assert len(lengths) == 1
        assert sorted(number for number, padding in seen if not padding) == list(range(10))
        assert any(padding for _, padding in seen) == (batch_size is None)

    def test_a_feature_of_that_name_is_no_mark(self, tmp_path: Path) -> None:
        path = tmp_path / "a.tfrecord"
        with TFRecordWriter(path) as writer:
            writer.write({"is_padding": (1, "int")})
        with pytest.raises(ValueError, match="a feature 'is_padding'"):
            list(TFRecordDataset(path, split="pad"))


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


class TestStates:
    def test_a_state_names_what_differs(self, make: Any) -> None:
        paths = make([12])
        state = read_with(TFRecordDataset(paths, shuffle=True, batch_size=3), 2)
        assert (state["epoch"], state["position"]) == (0, 2)
        for options, name in (
            ({"batch_size": 3, "seed": 1}, "seed"),
            ({"batch_size": 4}, "batch_size"),
            ({"batch_size": 3, "shuffle": "block"}, "shuffle"),
            ({"batch_size": 3, "drop_last": True}, "drop_last"),
        ):
            with pytest.raises(ValueError, match=rf"differs in .*{name} \(state: "):
                TFRecordDataset(paths, **{"shuffle": True, **options}).load_state_dict(state)
        for other in (make([13]), make([12], first=1)):
            with pytest.raises(ValueError, match="data"):
                TFRecordDataset(other, shuffle=True, batch_size=3).load_state_dict(state)
        moved = make([5, 7])
        TFRecordDataset(moved, shuffle=True, batch_size=3).load_state_dict(state)
        whose = {key: value for key, value in state.items() if key != "world_size"}
        for nothing in ({}, None, {"epoch": 1}, whose, state | {"options": None}):
            with pytest.raises(ValueError, match="no state"):
                TFRecordDataset(paths).load_state_dict(nothing)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="version 9"):
            TFRecordDataset(paths).load_state_dict(state | {"version": 9})
        with pytest.raises(ValueError, match="epoch and position"):
            TFRecordDataset(paths, shuffle=True, batch_size=3).load_state_dict(state | {"position": -1})

    def test_the_last_epoch_there_is(self, make: Any) -> None:
        dataset = TFRecordDataset(make([5]), shuffle=True)
        for epoch in (2**62 - 1, 2**64, -1):
            with pytest.raises(ValueError, match="an epoch is an integer of at least 0 and at most"):
                dataset.set_epoch(epoch)
        dataset.set_epoch(2**62 - 2)
        assert sorted(ids(dataset)) == list(range(5))
        dataset.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        assert sorted(ids(dataset)) == list(range(5))

    def test_set_epoch_after_a_state(self, make: Any) -> None:
        paths = make([9])
        epochs = [ids(one) for one in [TFRecordDataset(paths, shuffle=True)] for _ in range(3)]
        dataset = TFRecordDataset(paths, shuffle=True)
        dataset.load_state_dict(dataset.state_at(1, 4))
        dataset.set_epoch(1)
        assert ids(dataset) == epochs[1][4:]
        dataset.set_epoch(1)
        assert ids(dataset) == epochs[1]
        dataset.load_state_dict(dataset.state_at(1, 4))
        dataset.set_epoch(0)
        assert ids(dataset) == epochs[0]
        assert dataset.state_at(1, 9)["epoch"] == 2
        for epoch, position in ((0, 10), (-1, 0), (0, -1)):
            with pytest.raises(ValueError, match="9 items"):
                dataset.state_at(epoch, position)
        with pytest.raises(ValueError, match="at least 0"):
            dataset.set_epoch(-1)

    def test_any_ranks_state_serves_all(self, make: Any) -> None:
        paths = make([11])
        make_rank = lambda rank: TFRecordDataset(paths, shuffle=True, rank=rank, world_size=3)  # noqa: E731
        whole = ids(TFRecordDataset(paths, shuffle=True))
        for step in range(3):
            states = [read_with(make_rank(rank), step) for rank in range(3)]
            for state in states:
                rest = []
                for rank in range(3):
                    dataset = make_rank(rank)
                    dataset.load_state_dict(state)
                    rest += ids(dataset)
                assert sorted(rest) == sorted(whole[3 * step :])

    def test_states_are_small(self, make: Any) -> None:
        dataset = TFRecordDataset(make([1] * 30), shuffle_queue_size=1000)
        assert len(json.dumps(read_with(dataset, 7))) < 500


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
        with pytest.raises(ValueError, match="without batch_size"):
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
        with pytest.raises(ValueError, match="made with 1 ranks, here are 2"):
            fresh(0, 2).load_state_dict(state)


def _numbers(items: Any) -> Any:
    return (item["id"][0] for item in items)


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


def test_without_torch_it_says_how_to_install_it(tmp_path: Path) -> None:
    """A missing torch names the pip command; a broken one shows its own error; the core needs neither."""
    root = str(Path(tfrecord.torch.__file__).parents[2])
    code = "import sys; sys.modules['torch'] = None; import tfrecord; print(tfrecord.TFRecordReader)"
    code += "; import tfrecord.torch"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert "TFRecordReader" in found.stdout
    assert "ImportError" in found.stderr and "pip install 'tfrecord[torch]'" in found.stderr
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text("import a_library_that_is_gone")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"}
    found = subprocess.run(
        [sys.executable, "-c", "import tfrecord.torch"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert "a_library_that_is_gone" in found.stderr and "pip install" not in found.stderr


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
