"""A reader reads the files that it opened, whatever becomes of their names; nothing after it is closed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import example, ids, write

from indexer import localfile
from indexer.errors import IndexFileError, StaleIndexError, TruncatedRecordError
from tfrecord._reading import open_files
from tfrecord.reader import TFRecordReader, build_index

OLD, NEW = [[example(first + number) for number in range(20)] for first in (100, 200)]


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed"))


def replace(path: Path) -> None:
    other = write(path.with_name("new" + path.suffix), NEW)
    assert path.suffix or other.stat().st_size == path.stat().st_size
    os.replace(other, path)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("suffix", [".tfrecord", ".gz", ".zz"])
@pytest.mark.parametrize("change", [remove, rename, replace], ids=lambda change: change.__name__)
@pytest.mark.parametrize("used", [True, False])
def test_every_way_of_reading_gives_the_same_file(
    mmap: bool, index: bool, suffix: str, change: Any, used: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / f"a{suffix}", OLD)
    if index:
        build_index(path, columns=["id"])
    reader = TFRecordReader(path, mmap=mmap)
    if used:
        assert reader[3]["id"].tolist() == [103]
    change(path)
    expected = list(range(100, 120))
    assert ids(reader) == expected
    assert ids(reader.read(range(20))) == expected
    assert [ids([reader[number]])[0] for number in range(20)] == expected
    assert [number for batch in reader.batches(7) for number in ids(batch)] == expected
    assert [bytes(payload) for _, payload in reader.iter_file(0)] == OLD
    assert len(reader) == 20 and reader.schema["id"].num_present == 20
    if index:
        assert reader.where(id=105).tolist() == [5]


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_made_room_and_was_replaced(
    mmap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "MAX_MAPPED_FILES", 2)
    monkeypatch.setattr(open_files, "MAX_OPEN_FILES", 2)
    paths = [write(tmp_path / f"{number}.tfrecord", OLD) for number in range(5)]
    for path in paths:
        build_index(path)
    reader = TFRecordReader(paths, mmap=mmap)
    assert reader[0]["id"].tolist() == [100] and reader[80]["id"].tolist() == [100]
    assert reader[40]["id"].tolist() == [100]
    replace(paths[0])
    for way in (lambda: reader[0], lambda: reader.read([0, 50]), lambda: list(reader)):
        with pytest.raises(StaleIndexError, match="0.tfrecord.*another file has replaced it"):
            way()
    assert reader[99]["id"].tolist() == [119]


@pytest.mark.parametrize("how", ["renamed", "linked"])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_shrinks_under_another_name(how: str, mmap: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [b"x" * 100_000] * 9)
    reader = TFRecordReader(path, mmap=mmap, record_type="bytes")
    assert len(reader) == 9
    other = tmp_path / "other"
    if how == "renamed":
        path.rename(other)
    else:
        os.link(path, other)
    os.truncate(other, 200_000)
    for way in (lambda: reader[8], lambda: reader.read([0, 8]), lambda: list(reader)):
        with pytest.raises(TruncatedRecordError):
            way()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_large_index_that_is_overwritten_in_place(number: int, tmp_path: Path) -> None:
    """As `cp` does: cut to nothing, then written."""
    path = write(tmp_path / "a.tfrecord", [b""] * 100_000)
    build_index(path)
    sidecar = Path(f"{path}.tfindex")
    assert sidecar.stat().st_size > 1 << 20
    reader = TFRecordReader(path, record_type="bytes")
    assert reader[50_000] == b""
    other = write(tmp_path / "b.tfrecord", [b"abc"] * (50_000 * number))
    build_index(other)
    shutil.copyfile(f"{other}.tfindex", sidecar)
    for way in (lambda: reader[99_999], lambda: reader.read([5, 99_998]), lambda: reader.index.columns["x"]):
        try:
            way()
        except (IndexFileError, KeyError):
            pass
    assert list(reader)[99_999] == b""


def test_many_files_with_few_descriptors(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{number:04d}.tfrecord", [example(number)]) for number in range(600)]
    build_index(paths)
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tfrecord.reader import TFRecordReader
for mmap in (True, False):
    reader = TFRecordReader(sys.argv[1], mmap=mmap)
    views = [reader.raw(number) for number in range(600)]
    assert reader.read(range(600))["id"].tolist() == list(range(600))
    assert len(list(reader)) == 600
print("good")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout == "good\n", done.stderr


def test_more_files_than_may_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if localfile._kernel is not None:
        monkeypatch.setattr(localfile._kernel, "MOST_MAPS", 20)
    paths = [write(tmp_path / f"{number:04d}.tfrecord", [example(number)]) for number in range(50)]
    reader = TFRecordReader(paths)
    views = [reader.raw(number) for number in range(50)]
    assert [bytes(view) for view in views] == [example(number) for number in range(50)]
    assert ids(reader.read(range(50))) == list(range(50))


# ---- closing -----------------------------------------------------------------------------------------

WAYS: dict[str, Any] = {
    "len": len,
    "iter": iter,
    "getitem": lambda reader: reader[0],
    "slice": lambda reader: reader[0:2],
    "raw": lambda reader: reader.raw(0),
    "read_raw": lambda reader: reader.read_raw([0]),
    "read": lambda reader: reader.read([0]),
    "decode": lambda reader: reader.decode([OLD[0]]),
    "batches": lambda reader: reader.batches(2),
    "shuffled": lambda reader: reader.batches(2, shuffle=True),
    "iter_file": lambda reader: reader.iter_file(0),
    "select": lambda reader: reader.select([0]),
    "where": lambda reader: reader.where(id=3),
    "index": lambda reader: reader.index,
    "schema": lambda reader: reader.schema,
    "locate": lambda reader: reader.locate(0),
    "file_starts": lambda reader: reader.file_starts,
    "has_index": lambda reader: reader.has_index,
    "compression": lambda reader: reader.compression(0),
    "record_type": lambda reader: reader.record_type,
    "enter": lambda reader: reader.__enter__(),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_reads_after_close(way: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", OLD)
    build_index(path, columns=["id"])
    with TFRecordReader(path) as reader:
        WAYS[way](reader)
        view = reader.select([1, 2])
        inner = view.select([0])
        assert not reader.closed and not view.closed
    for closed in (reader, view, inner):
        assert closed.closed
        with pytest.raises(ValueError, match="I/O operation on closed reader"):
            WAYS[way](closed)
    reader.close()
    assert reader.paths == (str(path),) and "closed" in repr(reader)


def test_iterators_end_with_their_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", OLD)
    reader = TFRecordReader(path)
    iterators = [iter(reader), reader.iter_file(0), reader.batches(2), reader.batches(2, shuffle=True)]
    iterators.append(iter(reader.select([3, 4, 5])))
    columns = reader.index.columns
    held = [next(iterator) for iterator in iterators]
    reader.close()
    for iterator in iterators:
        with pytest.raises(ValueError, match="closed reader"):
            next(iterator)
    with pytest.raises(ValueError, match="closed reader"):
        columns["id"]
    assert bytes(held[1][1]) == OLD[0]


def test_a_view_closes_alone(tmp_path: Path) -> None:
    reader = TFRecordReader(write(tmp_path / "a.tfrecord", OLD))
    with reader.select([3, 1]) as view:
        assert ids(view) == [103, 101]
    assert view.closed and not reader.closed
    assert ids(reader.read([0])) == [100]


def test_an_unpickled_reader_is_open(tmp_path: Path) -> None:
    reader = TFRecordReader(write(tmp_path / "a.tfrecord", OLD))
    view = reader.select([3])
    reader.close()
    for again in (pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(view))):
        assert not again.closed
        assert ids(again)[-1] in (119, 103)
        again.close()
        with pytest.raises(ValueError, match="closed reader"):
            again[0]


def test_descriptors_come_back(tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("no /proc")
    path = write(tmp_path / "a.tfrecord", OLD)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with TFRecordReader(path) as reader:
            kept = reader.read_raw(np.arange(3))
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the reference engine's map keeps one
    assert bytes(kept[0]) == OLD[0]
