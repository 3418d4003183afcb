"""Which shards of a set are missing is said where a glob or folder finds the others."""

from __future__ import annotations

import gzip
import random
import warnings
from pathlib import Path
from typing import Any

import pytest

from indexer.framing import frame_record
from indexer.shards import expand_shards, shard_sets
from tfrecord.encode import encode_example
from tfrecord.reader import TFRecordReader


@pytest.fixture
def shards(make_file: Any) -> list[Path]:
    """Four of five shards."""
    payload = encode_example({"x": (1, "int")})
    return [make_file([payload], f"d.tfrecord-{number:05d}-of-00005") for number in (0, 1, 2, 4)]


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("name", ["", "d.tfrecord-*-of-00005", "d.tfrecord-0000[01]*", "**/d*"])
def test_a_missing_shard_is_named(name: str, as_list: bool, shards: list[Path], tmp_path: Path) -> None:
    path = str(tmp_path / name)
    with pytest.warns(UserWarning, match=r"d\.tfrecord-\*-of-00005: 4 of 5 shards; missing: 00003") as caught:
        reader = TFRecordReader(iter([path]) if as_list else path)
    assert caught[0].filename == __file__ and len(caught) == 1
    assert reader.num_files in (2, 4)


def test_files_named_one_by_one_are_a_choice(shards: list[Path]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(TFRecordReader(shards)) == 4
        assert len(TFRecordReader(str(shards[0]))) == 1


def test_a_part_of_a_complete_set(shards: list[Path], make_file: Any, tmp_path: Path) -> None:
    make_file([], "d.tfrecord-00003-of-00005")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TFRecordReader(tmp_path / "d.tfrecord-0000[01]-of-*").num_files == 2
        assert TFRecordReader(tmp_path).num_files == 5


def test_words_of_a_set(tmp_path: Path) -> None:
    def words(*names: str) -> list[str]:
        return [str(found).removeprefix(f"{tmp_path}/") for found in shard_sets(tmp_path / n for n in names)]

    assert words("a-0-of-1", "b") == ["a-*-of-1: complete, 1 shard"]
    assert words("a-7-of-3") == ["a-*-of-3: 0 of 3 shards; missing: 00000, 00001, 00002; above the total: 7"]
    assert words("a-00000-of-02000")[0].endswith("00019, 00020, …")


# ---- folders that hold more than one may think -------------------------------------------------------


def test_a_folder_with_two_sets_warns_once(tmp_path: Path) -> None:
    for base in ("train", "validation"):
        for number in range(2):
            (tmp_path / f"{base}-{number:05d}-of-00002").write_bytes(frame_record(b"x"))
    with pytest.warns(UserWarning) as caught:
        assert len(expand_shards(tmp_path)) == 4
    (warning,) = caught
    assert "train-*-of-00002" in str(warning.message) and "validation-*-of-00002" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(expand_shards(tmp_path / "train-*")) == 2
        assert len(expand_shards(tmp_path / "train@2")) == 2


def test_ignored_files_that_look_like_data_are_named(tmp_path: Path) -> None:
    data = frame_record(b"x")
    (tmp_path / "a.tfrecord").write_bytes(data)
    (tmp_path / "a.tfrecord.tfindex").write_bytes(b"TFRINDEX")
    (tmp_path / "README").write_bytes(b"text")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(expand_shards(tmp_path)) == 1
    (tmp_path / "odd.data").write_bytes(data)
    (tmp_path / "packed").write_bytes(gzip.compress(data))
    with pytest.warns(UserWarning, match=r"ignored because of their names \(odd.data, packed\)") as caught:
        assert len(expand_shards(tmp_path)) == 1
    assert len(caught) == 1


def test_an_ignored_zstd_file_is_named(tmp_path: Path) -> None:
    """Its first block is longer than what is read of other files."""
    zstandard = pytest.importorskip("zstandard")
    data = frame_record(random.Random(1).randbytes(5000))
    (tmp_path / "a.tfrecord").write_bytes(data)
    (tmp_path / "packed").write_bytes(zstandard.ZstdCompressor().compress(data))
    with pytest.warns(UserWarning, match=r"ignored because of their names \(packed\)"):
        assert len(expand_shards(tmp_path)) == 1


def test_a_set_by_its_name_that_lacks_shards(tmp_path: Path) -> None:
    (tmp_path / "t-00001-of-00003").write_bytes(b"")
    with pytest.warns(UserWarning, match="1 of 3 shards; missing: 00000, 00002"):
        assert len(expand_shards(tmp_path / "t@3")) == 1


def test_a_shard_above_the_total_is_named(tmp_path: Path) -> None:
    for number in (0, 1, 5):
        (tmp_path / f"t-{number:05d}-of-00002").write_bytes(b"")
    with pytest.warns(UserWarning, match="2 of 2 shards; above the total: 5"):
        assert len(expand_shards(tmp_path / "t@2")) == 3


@pytest.mark.parametrize("name", ["", "/", "/t@3", "/t@*", "/t-*"])
def test_missing_shards_behind_urls(name: str) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe({f"/shards-test/t-{number:05d}-of-00003": b"" for number in (0, 2)})
    with pytest.warns(
        UserWarning, match=r"memory://shards-test/t-\*-of-00003: 2 of 3 shards; missing: 00001"
    ):
        assert len(expand_shards(f"memory://shards-test{name}")) == 2


def test_a_part_of_a_complete_set_behind_urls() -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe({f"/whole-shards-test/t-{number:05d}-of-00003": b"" for number in range(3)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(expand_shards("memory://whole-shards-test/t-0000[01]-*")) == 2
        assert len(expand_shards("memory://whole-shards-test/t-00001-of-00003")) == 1
