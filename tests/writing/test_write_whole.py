"""`tfrecord.write`: a whole file in one call, or nothing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from tfrecord import ColumnBatch, Ragged, TFRecordReader, write

COLUMNS = {
    "id": np.arange(5),
    "name": [b"a", b"", b"c", b"d", b"e"],
    "x": ([[], [1], [2, 3], [], [4]], "float"),
}


def test_columns_batches_and_frames(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    assert write(path, COLUMNS) == 5
    with TFRecordReader(path) as reader:
        batch = reader[:]
        assert batch["x"].to_list() == [[], [1.0], [2.0, 3.0], [], [4.0]]
        assert write(tmp_path / "b.tfrecord", batch) == 5
        assert (tmp_path / "b.tfrecord").read_bytes() == path.read_bytes()
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for frame in (pandas.DataFrame({"id": [1, 2]}), polars.DataFrame({"id": [1, 2]})):
        assert write(path, frame) == 2
    with TFRecordReader(tmp_path / "b.tfrecord") as reader:
        assert write(path, reader) == 5
    assert path.read_bytes() == (tmp_path / "b.tfrecord").read_bytes()


def test_options_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    write(path, COLUMNS, compression_type="GZIP", index=True, columns=["id"])
    with TFRecordReader(path) as reader:
        assert reader.has_index and reader.where(id=3).tolist() == [3] and reader.compression(0) == "gzip"
    with pytest.raises(FileExistsError):
        write(path, COLUMNS, mode="x")
    plain = tmp_path / "b.tfrecord"
    write(plain, COLUMNS, mode="x", present=None)
    assert write(plain, {"id": [7]}, mode="a") == 1
    with TFRecordReader(plain) as reader:
        assert len(reader) == 6
    target = io.BytesIO()
    write(target, {"id": [7]})
    assert len(target.getvalue()) == len(tfrecord.encode_example({"id": (7, "int")})) + 16
    write(plain, {"id": [1, 2]}, present={"id": np.array([True, False])})
    for options in ({"mode": "q"}, {"compression_type": "rar"}, {"indx": True}):
        with pytest.raises((ValueError, TypeError)):
            write(plain, COLUMNS, **options)  # type: ignore[arg-type]
    with TFRecordReader(plain) as reader:
        assert len(reader) == 2


BAD: list[dict[str, Any]] = [
    {"x": [1, None]},
    {"x": [1], "y": [1, 2]},
    {"x": np.array([2**64 - 1], np.uint64)},
    {"x": Ragged(Ragged([1], [0, 1]), [0, 1])},
]


@pytest.mark.parametrize("columns", BAD, ids=range(len(BAD)))
def test_a_failure_leaves_what_was_there(tmp_path: Path, columns: dict[str, Any]) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, COLUMNS, index=True)
    files = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    with pytest.raises((TypeError, ValueError)):
        write(path, columns)
    with pytest.raises((TypeError, ValueError)):
        write(tmp_path / "new.tfrecord", columns)
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == files


def test_an_index_column_that_does_not_fit_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, COLUMNS, index=True, columns=["id"])
    files = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    with pytest.raises(tfrecord.TFRecordError, match="'x'"):
        write(path, COLUMNS, index=True, columns=["x"])
    assert {item.name: item.read_bytes() for item in tmp_path.iterdir()} == files


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, COLUMNS)
    before = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tfrecord._writing.encoder.RowFrames.frames", full)
    with pytest.raises(OSError, match="No space"):
        write(path, COLUMNS)
    assert path.read_bytes() == before and [item.name for item in tmp_path.iterdir()] == ["a.tfrecord"]


def test_indexes_of_the_earlier_file_do_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, COLUMNS, index=True, columns=["id"])
    write(path, {"id": [9, 8]})  # an index that is there is renewed, with what it kept
    with TFRecordReader(path) as reader:
        assert reader.index.columns["id"].tolist() == [9, 8]
    write(path, {"id": [1]}, index=False)
    with TFRecordReader(path) as reader:
        assert len(reader) == 1 and not (tmp_path / "a.tfrecord.tfindex").exists()


def test_an_empty_batch_is_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    assert write(path, ColumnBatch({"x": np.zeros(0, np.int64)})) == 0 and path.read_bytes() == b""
