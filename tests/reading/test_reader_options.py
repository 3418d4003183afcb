"""What a reader may be told, and where it reads from."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import example, ids, write

import tfrecord
from indexer.errors import ChecksumError, TFRecordError
from tfrecord.features import FixedLenFeature
from tfrecord.reader import TFRecordReader, build_index, tfrecord_iterator


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"record_type": "json"}, ValueError, "record_type is 'json'; it is one of auto, example"),
        ({"on_error": "ignore"}, ValueError, "on_error is 'ignore'"),
        ({"max_skips": -1}, ValueError, "max_skips is -1"),
        ({"max_skips": "1"}, TypeError, "max_skips is '1'"),
        ({"compression_type": "SNAPPY"}, ValueError, "GZIP"),
        ({"features": {"a": "int31"}}, ValueError, "int64"),
        ({"sequence_features": {"a": "int"}, "record_type": "example"}, ValueError, "needs SequenceExamples"),
        ({"features": ["a"], "record_type": "bytes"}, ValueError, "record_type is 'bytes'"),
        ({"index": True}, TypeError, "index is True"),
        ({"index": {"id": "int"}}, TypeError, "; features are given by name"),
        ({"index": []}, ValueError, "0 indexes were given for 1 files"),
        ({"index": "missing.tfindex"}, FileNotFoundError, "missing.tfindex"),
    ],
)
def test_wrong_options_fail_at_construction(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    path = write(tmp_path / "a", [example(0)])
    with pytest.raises(kind, match=message):
        TFRecordReader(path, **options)


def test_missing_files_fail_at_construction(tmp_path: Path) -> None:
    for paths in (tmp_path / "no", [tmp_path / "no"], tmp_path / "*.tfrecord", str(tmp_path / "no")):
        with pytest.raises(FileNotFoundError):
            TFRecordReader(paths)
    with pytest.raises(ValueError, match="no paths"):
        TFRecordReader([])


def test_build_falls_back_to_memory_where_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(5)])

    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", "a.tfrecord.tfindex")

    monkeypatch.setattr("tfrecord._reading.indexes.build_index", refuse)
    with pytest.warns(UserWarning, match="kept in memory"):
        reader = TFRecordReader(path, index="build")
    assert ids(reader.read([4, 1])) == [4, 1]
    assert list(tmp_path.iterdir()) == [path]


def test_a_larger_spool_than_allowed_says_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gz", [b"x" * 1000] * 50)
    reader = TFRecordReader(path, record_type="bytes", max_spool_bytes=10_000)
    assert len(reader) == 50  # counting needs no space
    assert len(list(reader)) == 50
    for way in (lambda: reader[0], lambda: reader.read([0, 1])):
        with pytest.raises(TFRecordError, match="max_spool_bytes=10000"):
            way()
    with pytest.raises(TFRecordError, match="max_spool_bytes=10000"):
        TFRecordReader(path, record_type="bytes", max_spool_bytes="10kB")[0]
    with pytest.raises(ValueError, match="max_spool_bytes is 'much'; it must be a number of bytes"):
        TFRecordReader(path, max_spool_bytes="much")
    two = [path, write(tmp_path / "b.gz", [b"x" * 1000] * 50)]
    both = TFRecordReader(two, record_type="bytes", max_spool_bytes=60_000)
    assert both[0] == b"x" * 1000
    with pytest.raises(TFRecordError, match="b.gz.*max_spool_bytes"):
        both[99]
    assert both[49] == b"x" * 1000


def test_a_full_disk_while_spooling_names_file_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.gz", [b"x" * 1000] * 50)
    reader = TFRecordReader(path, record_type="bytes")

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("indexer.localfile.os.pwrite", full)
        with pytest.raises(OSError, match="No space left.*a.gz.*TMPDIR") as caught:
            reader[0]
        assert caught.value.errno == errno.ENOSPC
    assert reader[49] == b"x" * 1000  # there is room again


def test_random_positions_near_and_far_without_a_map(tmp_path: Path) -> None:
    payloads = [bytes([number]) * (40_000 if number % 3 == 0 else 5) for number in range(60)]
    reader = TFRecordReader(write(tmp_path / "a", payloads), record_type="bytes", mmap=False)
    rng = np.random.default_rng(0)
    for size in (1, 2, 10, 60, 200):
        asked = rng.integers(0, 60, size)
        assert reader.read(asked).to_list() == [payloads[position] for position in asked]


def test_a_repr_is_the_call_alone(tmp_path: Path) -> None:
    """grain compares it with that of the reader that a checkpoint was made with."""
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(3)])
    features = {"id": FixedLenFeature((), "int")}
    reader = TFRecordReader(path, features=features, verify=False, on_error=example)
    before = repr(reader)
    assert before.startswith(f"TFRecordReader({os.fspath(path)!r}, features={{'id': FixedLenFeature")
    assert "verify=False" in before and ".example" in before and "mmap" not in before
    assert len(reader) == 3 and reader.record_type == "example" and len(list(reader)) == 3
    assert reader.schema.num_records == 3 == reader.read([0, 1, 2]).num_rows
    assert (
        repr(reader)
        == before
        == repr(TFRecordReader(path, features=features, verify=False, on_error=example))
    )
    assert repr(TFRecordReader(path)) == f"TFRecordReader({os.fspath(path)!r})"
    assert repr(reader.select([0, 1])) == repr(reader.select(range(2))) != repr(reader.select([1, 0]))
    many = [path] * 30
    assert len(repr(TFRecordReader(many))) < 5 * len(os.fspath(path)) + 100
    assert repr(TFRecordReader(many)) != repr(TFRecordReader([*many, path]))


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_relative_names_lead_to_the_files_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mmap: bool, indexed: bool
) -> None:
    write(tmp_path / "a", [example(0), example(1)])
    write(tmp_path / "b.gz", [example(2), example(3)])
    monkeypatch.chdir(tmp_path)
    if indexed:
        build_index("a")
        build_index("b.gz")
    paths: list[str | Path] = ["a", Path("b.gz")]
    untouched, opened = (TFRecordReader(paths, mmap=mmap) for _ in range(2))
    assert opened.paths == ("a", "b.gz")
    assert ids(opened) == ids(opened.read(range(4)))
    iterator = iter(TFRecordReader(paths, mmap=mmap))
    data = pickle.dumps(untouched)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    copy = pickle.loads(data)
    assert copy.has_index == indexed
    for reader in (untouched, opened, copy, pickle.loads(pickle.dumps(copy))):
        assert ids(reader) == ids(reader.read(range(4))) == [0, 1, 2, 3]
        assert [int(reader[i]["id"][0]) for i in range(4)] == [0, 1, 2, 3]
    assert ids(iterator) == [0, 1, 2, 3]


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_only_says_it_has_no_bytes(mmap: bool) -> None:
    path = "/proc/self/status"
    if not os.path.exists(path):
        pytest.skip("no /proc")
    reader = TFRecordReader(path, record_type="bytes", mmap=mmap)
    for way in (lambda: list(reader), lambda: len(reader), lambda: list(tfrecord_iterator(path))):
        with pytest.raises(ChecksumError, match="looks like text") as caught:
            way()
        assert (caught.value.path, caught.value.record, caught.value.offset) == (path, 0, 0)


def test_numbers_of_files(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a", [example(0)]), write(tmp_path / "b.gz", [example(1), example(2)])]
    reader = TFRecordReader(paths)
    assert [reader.compression(number) for number in (0, 1, -1)] == ["", "gzip", "gzip"]
    assert [record for record, _ in reader.iter_file(-1)] == [0, 1]
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="there are 2 files"):
            reader.compression(wrong)
        with pytest.raises(IndexError, match="there are 2 files"):
            reader.iter_file(wrong)


@pytest.mark.parametrize(
    ("called", "name", "near"),
    [
        (TFRecordReader, "recordtype", "record_type"),
        (TFRecordReader, "feature", "features"),
        (tfrecord.tfrecord_loader, "descriptoin", "description"),
        (tfrecord.multi_tfrecord_loader, "split", "splits"),
        (tfrecord.example_loader, "compresion_type", "compression_type"),
        (tfrecord.sequence_loader, "context_descripton", "context_description"),
        (tfrecord.tfrecord_iterator, "shrad", "shard"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_near_one(called: Any, name: str, near: str) -> None:
    text = rf"^{called.__name__}\(\) got an unexpected keyword argument '{name}'; did you mean '{near}'"
    with pytest.raises(TypeError, match=text):
        called("a.tfrecord", **{name: None})
