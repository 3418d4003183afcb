"""The datasets in one process: options, lengths, ranks."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulation import DENSE, ids

import tfrecord.torch
from tfrecord.reader import TFRecordReader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset
from tfrecord.torch.dataset import TFRecordDataset as ByItsOldName
from tfrecord.writer import TFRecordWriter


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
            ({"shuffle": "blocks"}, "shuffle must be False, True or 'block'"),
            ({"shuffle": 1000}, "got 1000; shuffle_queue_size=1000"),
            ({"split": "even"}, "'exact', 'drop', 'pad'"),
            ({"batch_size": 0}, "batch_size must be an integer of at least 1"),
            ({"batch_size": True}, "batch_size must be an integer of at least 1"),
            ({"drop_last": True}, "drop_last needs a batch_size"),
            ({"shuffle_queue_size": -1}, "queue size is -1"),
            ({"shuffle_queue_bytes": 0}, "shuffle_queue_bytes must be an integer of at least 1"),
            ({"ragged": "padded"}, "'ragged', 'pad', 'nested'"),
            ({"rank": 1}, "give both rank and world_size, or neither"),
            ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
            ({"rank": -1, "world_size": 2}, "rank -1 of 2"),
            ({"description": {"id": "integer"}}, "integer"),
            ({"drop_none": True, "split": "drop"}, "promises equal shares"),
            ({"on_error": "skip", "split": "pad"}, "promises equal shares"),
            ({"seed": None, "rank": 0, "world_size": 2}, "a different order"),
        ],
    )
    def test_wrong_ones_are_refused_at_once(self, make: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TFRecordDataset(make([1]), **options)

    def test_two_names_for_one_thing_are_not_given_both(self, make: Any) -> None:
        paths = make([1])
        for dataset in (TFRecordDataset, TFRecordMapDataset, partial(MultiTFRecordDataset, splits={"a": 1})):
            where: Any = ("{}", None) if isinstance(dataset, partial) else (paths,)
            with pytest.raises(TypeError, match="give features or description, not both"):
                dataset(*where, features={"id": "int"}, description=["id"])
            with pytest.raises(TypeError, match="give sequence_features or sequence_description, not both"):
                dataset(*where, sequence_features={"id": "int"}, sequence_description=["id"])

    @pytest.mark.parametrize("name", ["seed", "batch_size", "shuffle_queue_bytes"])
    def test_what_is_no_integer_is_named(self, make: Any, name: str) -> None:
        for value in ("3", 2.0):
            with pytest.raises(TypeError, match=f"{name} must be an integer, got {value!r}"):
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
        with pytest.raises(ValueError, match="WORLD_SIZE='3' is in the environment, but RANK is not"):
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
        with pytest.raises(ValueError, match="a different order"):
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
