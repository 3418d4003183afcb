"""What a reader makes of indexes: positions, columns to choose by, a schema."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
from recorded import example, ids, sequence, write

from indexer.errors import IndexFileError, StaleIndexError
from tfrecord.columns import BytesColumn
from tfrecord.reader import TFRecordReader, build_index


def test_index_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(5)])
    assert not TFRecordReader(path).has_index
    elsewhere = tmp_path / "there"
    elsewhere.mkdir()
    build_index(path, elsewhere / "a.tfrecord.tfindex")
    for index in (elsewhere / "a.tfrecord.tfindex", [str(elsewhere / "a.tfrecord.tfindex")], elsewhere):
        reader = TFRecordReader(path, index=index)
        assert reader.has_index
        assert ids(pickle.loads(pickle.dumps(reader)).read([4, 0])) == [4, 0]
    assert not (tmp_path / "a.tfrecord.tfindex").exists()
    assert ids(TFRecordReader(path, index="build").read([4, 0])) == [4, 0]
    assert (tmp_path / "a.tfrecord.tfindex").exists()
    assert TFRecordReader(path).has_index
    assert not TFRecordReader(path, index=False).has_index
    assert TFRecordReader(path, index=False).has_index is False
    two = [path, write(tmp_path / "b.tfrecord", [example(9)])]
    with pytest.raises(ValueError, match="one index was given for 2 files"):
        TFRecordReader(two, index=elsewhere / "a.tfrecord.tfindex")
    with pytest.raises(FileNotFoundError, match="no index of .*b.tfrecord"):
        TFRecordReader(two, index=elsewhere)
    assert ids(TFRecordReader(two, index=[elsewhere / "a.tfrecord.tfindex", None])) == [0, 1, 2, 3, 4, 9]


def test_stale_and_damaged_indexes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(5)])
    sidecar = tmp_path / "a.tfrecord.tfindex"
    build_index(path)
    write(path, [example(number) for number in range(6)])
    with pytest.raises(StaleIndexError) as caught:
        TFRecordReader(path)
    assert (caught.value.path, caught.value.index_path) == (str(path), str(sidecar))
    assert "Rebuild it: tfrecord index" in str(caught.value)
    assert len(TFRecordReader(path, index=False)) == 6
    assert len(TFRecordReader(path, index="build")) == 6
    assert len(TFRecordReader(path)) == 6

    sidecar.write_bytes(b"TFRINDEX" + bytes(50))
    with pytest.raises(IndexFileError):
        TFRecordReader(path)
    with pytest.warns(UserWarning, match="being rebuilt"):
        assert len(TFRecordReader(path, index="build")) == 6
    assert len(TFRecordReader(path)) == 6


def test_a_damaged_entry_is_refused_where_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [b"x" * 100] * 9)
    built = build_index(path)
    sidecar = tmp_path / "a.tfrecord.tfindex"
    data = sidecar.read_bytes()
    offsets = built.offsets.tobytes()
    at = data.index(offsets)
    moved = built.offsets.copy()
    moved[4] = moved[5]  # another good frame of the same length
    sidecar.write_bytes(data[:at] + moved.tobytes() + data[at + len(offsets) :])
    for mmap in (True, False):
        reader = TFRecordReader(path, record_type="bytes", mmap=mmap)
        assert bytes(reader.raw(0)) == b"x" * 100
        for way in (
            reader.raw,
            reader.__getitem__,
            lambda p, r=reader: r.read([0, p]),
            lambda p, r=reader: r.read_raw([p]),
        ):
            with pytest.raises(IndexFileError) as caught:
                way(4)
            assert (caught.value.path, caught.value.index_path) == (str(path), str(sidecar))


def test_where_chooses_by_an_index_column(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.tfrecord", [example(4 * i + j) for j in range(4)]) for i in range(3)]
    with pytest.raises(KeyError, match="no column 'id'.*build_index"):
        TFRecordReader(paths).where(id=3)
    for path in paths:
        build_index(path, columns=["id", "name"])
    reader = TFRecordReader(paths)
    assert reader.index.columns["id"].tolist() == list(range(12))
    assert sorted(reader.index.columns) == ["id", "name"]
    assert reader.where(id=3).tolist() == [3]
    assert reader.where(id=[3, 11, 99]).tolist() == [3, 11]
    assert reader.where(id=[]).tolist() == []
    assert reader.where(id=lambda column: column % 5 == 0).tolist() == [0, 5, 10]
    assert reader.where(name=b"n7").tolist() == reader.where(name="n7").tolist() == [7]
    assert reader.where({"id": [1, 2, 3]}, name=["n2", "n8"]).tolist() == [2]
    assert ids(reader.select(reader.where(id=[11, 2]))) == [2, 11]
    assert reader.select([8, 3]).where(id=3).tolist() == [1]
    assert reader.where(id=3).dtype == np.int64
    with pytest.raises(TypeError, match="'id'"):
        reader.where(id="3")
    with pytest.raises(ValueError, match="bool array"):
        reader.where(id=lambda column: column)


def test_every_feature_is_dense_where_the_schema_of_all_data_says_so(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.tfrecord", [example(4 * i + j) for j in range(4)]) for i in range(2)]
    ragged = TFRecordReader(paths).read([5, 0])
    assert ragged["id"].to_list() == [[5], [0]]
    for path in paths:
        build_index(path)
    reader = TFRecordReader(paths)
    batch = reader.read([5, 0])
    assert isinstance(batch["id"], np.ndarray)
    assert batch["id"].tolist() == [5, 0]
    assert isinstance(batch["name"], BytesColumn)
    assert batch["list"].to_list() == [[2.5], []]
    assert [b["id"].tolist() for b in reader.batches(5)] == [[0, 1, 2, 3, 4], [5, 6, 7]]
    assert reader[5]["id"].tolist() == [5]
    one = TFRecordReader([paths[0], write(tmp_path / "late.tfrecord", [example(9)])])
    assert one.read([0])["id"].to_list() == [[0]]  # one file has no schema


def test_a_column_that_no_record_has(tmp_path: Path) -> None:
    """It is empty where no schema knows better, or where it may be missing; else it is a wrong request."""
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(3)])
    for index in (False, "build"):
        reader = TFRecordReader(path, index=index, allow_missing=bool(index))
        batch = reader.read([0, 2], columns=["nothing", "id"])
        assert sorted(batch) == ["id", "nothing"]
        assert ids(batch) == [0, 2]
        assert batch["nothing"].to_list() == [[], []]
        assert batch.present["nothing"].tolist() == [False, False]
    sequences = write(tmp_path / "s.tfrecord", [sequence(number) for number in range(3)])
    for index in (False, "build"):
        found = TFRecordReader(sequences, index=index, allow_missing=bool(index)).read(
            [2], columns=["tokens", "nothing"]
        )
        assert found.feature_lists["tokens"].to_list() == [[[0, 2], [1, 2]]]
        assert found.context["nothing"].to_list() == [[]]
    with pytest.raises(KeyError, match="nothing"):
        TFRecordReader(path, features=["id"]).read([0], columns=["nothing"])


def test_schema_with_and_without_an_index(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.tfrecord", [example(4 * i + j) for j in range(4)]) for i in range(2)]
    sampled = TFRecordReader(paths).schema
    for path in paths:
        build_index(path)
    stored = TFRecordReader(paths).schema
    for schema in (sampled, stored):
        assert sorted(schema) == ["id", "list", "name"]
        assert (schema["id"].kind, schema["id"].num_present) == ("int64", 8)
        assert (schema["list"].kind, schema["list"].min_length, schema["list"].max_length) == ("float", 0, 3)
        assert schema["list"].shape is None
        assert schema["name"].kind == "bytes"


def test_the_index_of_a_file_without_records_is_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(b""))
    build_index(path)
    with TFRecordReader(path) as reader:
        assert reader.has_index and len(reader) == 0
