"""Readers of many shards with indexes in another process: each index is loaded when its file is used."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from tfrecord import IndexFileError, StaleIndexError, TFRecordReader
from tfrecord._reading import indexes

COUNT = indexes.MANY_FILES + 6


def write(path: Path, numbers: range) -> None:
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        for number in numbers:
            writer.write({"number": (number, "int")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two records in each of 70 files."""
    for i in range(COUNT):
        write(tmp_path / f"a-{i:05d}-of-{COUNT:05d}", range(2 * i, 2 * i + 2))
    return tmp_path


def shard(folder: Path, number: int) -> Path:
    return folder / f"a-{number:05d}-of-{COUNT:05d}"


def numbers(batch: Any) -> list[int]:
    return [int(value) for value in batch["number"].ravel()]


def copied(folder: Path) -> Any:
    reader = TFRecordReader(folder)
    reader.read([0])
    return pickle.loads(pickle.dumps(reader))


def test_only_the_indexes_that_are_used_are_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(copied(folder))
    loaded: list[str] = []
    real = indexes.load_index
    monkeypatch.setattr(indexes, "load_index", lambda name, *args: loaded.append(name) or real(name, *args))
    reader = pickle.loads(data)
    assert len(reader) == 2 * COUNT and loaded == []
    assert numbers(reader.read([7, 2 * COUNT - 1, 6])) == [7, 2 * COUNT - 1, 6]
    assert sorted(loaded) == [f"{shard(folder, number)}.tfindex" for number in (3, COUNT - 1)]
    again = pickle.loads(pickle.dumps(reader))
    assert len(again) == 2 * COUNT and len(loaded) == 2
    assert [int(record["number"][0]) for record in again] == list(range(2 * COUNT))
    assert len(loaded) == 2 + COUNT
    shuffled = np.concatenate([numbers(batch) for batch in pickle.loads(data).batches(9, shuffle=True)])
    assert sorted(shuffled) == list(range(2 * COUNT))


def test_opening_loads_no_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    loaded: list[str] = []
    load, look = indexes.load_index, indexes.load_summary
    monkeypatch.setattr(indexes, "load_index", lambda name, *args: loaded.append(name) or load(name, *args))
    monkeypatch.setattr(indexes, "load_summary", lambda name, *args: looked.append(name) or look(name, *args))
    reader = TFRecordReader(folder)
    assert (
        reader.has_index and repr(reader.index) == f"<MergedIndex: each of {COUNT} files has an index file>"
    )
    assert looked == loaded == []
    assert len(reader) == 2 * COUNT and list(reader.schema) == ["number"] and reader.record_type == "example"
    assert len(looked) == COUNT and loaded == []
    assert numbers(reader.read([2 * COUNT - 1, 0])) == [2 * COUNT - 1, 0]
    assert len(looked) == COUNT and len(loaded) == 2


def test_an_index_in_text_is_loaded_to_count_its_records(folder: Path) -> None:
    tfrecord.build_indexes(shard(folder, 3), format="text", force=True)
    reader = TFRecordReader(folder)
    assert len(reader) == 2 * COUNT and reader.read([6, 7, 8])["number"].to_list() == [[6], [7], [8]]


def test_a_file_of_another_size_is_refused_before_any_record(folder: Path) -> None:
    with shard(folder, 9).open("ab") as file:
        file.write(b"more")
    uses: list[Any] = [len, list, lambda reader: reader[0], lambda reader: reader.read([0]), pickle.dumps]
    for use in uses:
        reader = TFRecordReader(folder)
        with pytest.raises(StaleIndexError) as caught:
            use(reader)
        assert caught.value.path == str(shard(folder, 9))


def test_a_copy_is_like_the_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, copy = TFRecordReader(folder), copied(folder)
    assert copy.has_index and copy.paths == reader.paths and copy.schema == reader.schema
    assert len(copy.select([5, 1])) == 2 and numbers(copy.select([5, 1]).read([0, 1])) == [5, 1]
    assert copy.locate(9) == reader.locate(9)
    closed = TFRecordReader(folder)
    closed.close()
    assert len(pickle.loads(pickle.dumps(closed))) == 2 * COUNT
    monkeypatch.chdir(folder)
    relative = pickle.dumps(TFRecordReader("."))
    monkeypatch.chdir(folder.parent)
    assert numbers(pickle.loads(relative).read([3])) == [3]


def test_an_index_that_does_not_fit_is_refused_before_a_record_of_its_file(folder: Path) -> None:
    data = pickle.dumps(copied(folder))
    write(shard(folder, 5), range(900, 903))  # data and index were written again, with another count
    (folder / f"{shard(folder, 6).name}.tfindex").write_bytes(b"damaged")
    shutil.copy(f"{shard(folder, 8)}.tfindex", f"{shard(folder, 7)}.tfindex")  # of other data
    shard(folder, 9).with_name(f"{shard(folder, 9).name}.tfindex").unlink()
    reader = pickle.loads(data)
    assert numbers(reader.read([8, 20])) == [8, 20]
    for number, error in ((5, StaleIndexError), (6, IndexFileError), (7, StaleIndexError), (9, OSError)):
        for at in (2 * number, 2 * number + 1):
            for read in (reader.raw, lambda at: reader.read([0, at]), lambda at: reader.read_raw([at])):
                with pytest.raises(error):
                    read(at)
    for whole in (reader, reader.batches(4), reader.batches(4, shuffle=True)):
        with pytest.raises((IndexFileError, OSError)):
            list(whole)
    with pytest.raises(StaleIndexError, match="it has 3 records, and had 2 before"):
        reader[10]
