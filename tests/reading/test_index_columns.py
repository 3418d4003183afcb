"""Columns of an index: served only if they are of this data, kept by every rebuild, masked where missing."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from recorded import example, write

import tfrecord
from indexer.errors import DecodeError, FeatureKindError, IndexFileError, MissingFeatureError, StaleIndexError
from indexer.formats import load_index
from indexer.framing import crc32c, frame_record
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.reader import TFRecordReader, build_index
from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.writer import ShardedTFRecordWriter, TFRecordWriter


def labelled(labels: list[int]) -> list[bytes]:
    return [encode_example({"label": (label, "int"), "x": ([0.5] * 3, "float")}) for label in labels]


def of_other_labels(path: Path, *, same_time: bool = False) -> None:
    """Write the file anew, of the same sizes; records that a fingerprint samples stay as they are."""
    status = path.stat()
    labels = [number % 7 for number in range(1000)]
    for number in range(1000):
        if number not in {place * 999 // 7 for place in range(8)}:
            labels[number] = (labels[number] + 1) % 7
    write(path, labelled(labels))
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + (0 if same_time else 1)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.tfrecord", labelled([number % 7 for number in range(1000)]))


def settle(path: Path) -> None:
    """Make the file old enough for its time to be trusted."""
    os.utime(path, (1_000_000_000, 1_000_000_000))


def unsettle(path: Path) -> None:
    """Make the file so new that an index built now does not trust its time, however long the build takes."""
    now = time.time_ns()
    os.utime(path, ns=(now, now + 3600 * 10**9))


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("same_time", [False, True])
def test_columns_of_other_data_are_refused(path: Path, mmap: bool, same_time: bool) -> None:
    unsettle(path)
    build_index(path, columns=["label"])
    assert TFRecordReader(path).where(label=3).tolist() == list(range(3, 1000, 7))
    of_other_labels(path, same_time=same_time)
    reader = TFRecordReader(path, mmap=mmap)
    with pytest.raises(StaleIndexError, match="checksums of records differ.*tfrecord index"):
        reader.where(label=3)
    with pytest.raises(StaleIndexError):
        load_index(f"{path}.tfindex", path).columns["label"]
    assert TFRecordReader(path, index=False)[1]["label"].tolist() == [2]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zz"])
def test_columns_of_a_copy_are_served(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.tfrecord{suffix}", labelled([number % 7 for number in range(1000)]))
    settle(path)
    build_index(path, columns=["label"])
    there = tmp_path / "there"
    there.mkdir()
    for name in (path.name, f"{path.name}.tfindex"):
        shutil.copyfile(tmp_path / name, there / name)
    assert len(TFRecordReader(there / path.name).where(label=3)) == 143
    assert len(TFRecordReader(path).where(label=3)) == 143


def test_a_time_that_is_settled_is_trusted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(path)
    index = build_index(path, columns=["label"])
    assert index.settled and index.mtime_ns == path.stat().st_mtime_ns and len(index.digest) == 16

    def never(*args: object) -> None:
        raise AssertionError("the data is read")

    monkeypatch.setattr("indexer.fingerprint.digest", never)
    assert len(TFRecordReader(path).where(label=3)) == 143


def test_the_digest_is_compared_once_in_a_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_index(path, columns=["label"])
    settle(path)
    assert len(TFRecordReader(path).where(label=3)) == 143
    monkeypatch.setattr("indexer.fingerprint.digest", lambda *args: b"another")
    assert len(TFRecordReader(path).where(label=3)) == 143


def test_every_flipped_bit_of_a_column_is_found(path: Path) -> None:
    settle(path)
    build_index(path, columns=["label", "len(x)"])
    sidecar = Path(f"{path}.tfindex")
    good = sidecar.read_bytes()
    values = np.arange(1000).astype("<i8") % 7
    start = good.index(values.tobytes())
    for at in range(start, start + 8000, 777):
        sidecar.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        reader = TFRecordReader(path)
        assert len(reader) == 1000 and reader[3]["label"].tolist() == [3]
        with pytest.raises(IndexFileError, match="checksum of its column 'label'"):
            reader.where(label=3)
        assert reader.index.columns["len(x)"].tolist() == [3] * 1000
        with pytest.raises(IndexFileError, match="column 'label'"):
            build_indexes_status(path)


def build_indexes_status(path: Path) -> None:
    """What `tfrecord index` finds is built again, not called fresh."""
    (result,) = tfrecord.build_indexes(path)
    assert result.status == "built"
    load = load_index(f"{path}.tfindex", path)
    assert load.columns["label"].tolist() == (np.arange(1000) % 7).tolist()
    raise IndexFileError(None, None, "column 'label' was damaged, and is good again")


def test_a_flipped_bit_of_the_data_is_not_fresh(path: Path) -> None:
    unsettle(path)
    build_index(path, columns=["label"])
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    before = Path(f"{path}.tfindex").read_bytes()
    (result,) = tfrecord.build_indexes(path)
    assert result.status == "failed" and Path(f"{path}.tfindex").read_bytes() == before


def test_a_column_lives_on_when_the_index_file_is_gone(path: Path) -> None:
    build_index(path, columns=["label"])
    reader = TFRecordReader(path)
    column = reader.index.columns["label"]
    Path(f"{path}.tfindex").write_bytes(b"")
    assert column.sum() == sum(number % 7 for number in range(1000))
    assert not column.flags.writeable


# ---- every way to rebuild ----------------------------------------------------------------------------


def append(path: Path) -> None:
    with TFRecordWriter(path, mode="a", index=True) as writer:
        writer.write_bytes(labelled([3])[0])


def rebuild_stale(path: Path) -> None:
    with path.open("ab") as file:
        file.write(frame_record(labelled([3])[0]))


def by_option(path: Path) -> None:
    rebuild_stale(path)
    TFRecordReader(path, index="build")


def by_function(path: Path) -> None:
    rebuild_stale(path)
    build_index(path)


def by_list(path: Path) -> None:
    rebuild_stale(path)
    build_index([path])


def by_folder(path: Path) -> None:
    rebuild_stale(path)
    (result,) = tfrecord.build_indexes(path.parent)
    assert result.status == "built"


def by_command(path: Path) -> None:
    pytest.importorskip("click")
    rebuild_stale(path)
    subprocess.run([sys.executable, "-m", "tfrecord", "index", str(path)], check=True)


def by_writing_anew(path: Path) -> None:
    with TFRecordWriter(path, index=True) as writer:
        for record in labelled([number % 7 for number in range(1000)] + [3]):
            writer.write_bytes(record)


def by_writing_without_a_word(path: Path) -> None:
    with TFRecordWriter(path) as writer:
        writer.write_batch({"label": np.array([n % 7 for n in range(1000)] + [3]), "x": np.ones((1001, 3))})


WAYS = [
    append,
    by_option,
    by_function,
    by_list,
    by_folder,
    by_command,
    by_writing_anew,
    by_writing_without_a_word,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_rebuild_keeps_schema_and_columns(way: Any, path: Path) -> None:
    build_index(path, columns=["label", "len(x)"])
    way(path)
    reader = TFRecordReader(path)
    assert len(reader) == 1001 and reader.has_index
    assert reader.where(label=3).tolist()[-1] == 1000
    assert reader.index.columns["len(x)"].tolist() == [3] * 1001
    batch = reader.read([1000, 0])
    assert isinstance(batch["x"], np.ndarray) and batch["x"].shape == (2, 3)
    build_index(path, columns=[])
    assert not load_index(f"{path}.tfindex").columns
    assert "schema" in load_index(f"{path}.tfindex").metadata


def test_a_value_of_another_kind_names_its_column(path: Path) -> None:
    build_index(path, columns=["label"])
    before = Path(f"{path}.tfindex").read_bytes()
    with path.open("ab") as file:
        file.write(frame_record(encode_example({"label": (2.5, "float")})))
    with pytest.raises(
        FeatureKindError, match="record 1000: feature 'label': has a different kind than before"
    ):
        build_index(path)
    assert Path(f"{path}.tfindex").read_bytes() == before


def test_the_repr_of_an_index(path: Path) -> None:
    assert repr(TFRecordReader(path, index=None).index) == "<MergedIndex: 0 of 1 files have an index file>"
    build_index(path, columns=["label"])
    assert repr(TFRecordReader(path).index) == "<MergedIndex: 1,000 records, columns: 'label'>"


@pytest.mark.parametrize("way", [append, by_option, by_function, by_list], ids=lambda way: way.__name__)
def test_a_column_that_no_longer_fits_is_named_and_nothing_is_replaced(way: Any, path: Path) -> None:
    build_index(path, columns=["label"])
    before = Path(f"{path}.tfindex").read_bytes()
    with path.open("ab") as file:
        file.write(frame_record(encode_example({"label": ([1, 2], "int")})))
    with pytest.raises(DecodeError, match="record 1000: feature 'label': has 2 values") as caught:
        way(path)
    assert caught.value.path == str(path)
    assert Path(f"{path}.tfindex").read_bytes() == before


def test_sharded_writers_keep_columns(tmp_path: Path) -> None:
    for index in (True, None):
        with ShardedTFRecordWriter(tmp_path / "t", 2, index=index, columns=["label"] if index else None) as w:
            for record in labelled([1, 2, 3, 4]):
                w.write_bytes(record)
        assert TFRecordReader([tmp_path / f"t-{number:05d}-of-00002" for number in range(2)]).where(
            label=3
        ).tolist() == [1]


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_file_written_without_an_index_leaves_no_stale_one(mode: str, path: Path) -> None:
    build_index(path, columns=["label"])
    with TFRecordWriter(path, mode=mode, index=False) as writer:
        writer.write({"label": (1, "int")})
    assert not Path(f"{path}.tfindex").exists()
    assert len(TFRecordReader(path)) == (1 if mode == "w" else 1001)


def test_a_file_of_other_features_written_anew(path: Path) -> None:
    build_index(path, columns=["label"])
    with pytest.warns(UserWarning, match="'label': no record has it.*old index is removed"):
        with TFRecordWriter(path) as writer:
            writer.write({"y": (1, "int")})
    assert len(TFRecordReader(path)) == 1
    build_index(path, columns=["y"])
    with pytest.raises(ZeroDivisionError), TFRecordWriter(path) as writer:
        raise ZeroDivisionError
    assert len(TFRecordReader(path)) == 0


def test_text_indexes_are_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"x")
    create_index(path, tmp_path / "a.tfindex")
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"other")
    assert len(TFRecordReader(path)) == 1
    assert not list(tmp_path.glob("*index")) or (tmp_path / "a.tfindex").read_text() == "0 21\n"


# ---- values that are missing, and lengths ------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_missing_values_are_masked(tmp_path: Path, suffix: str) -> None:
    records = [encode_example({"a": (number, "int")} if number % 3 else {}) for number in range(9)]
    paths = [write(tmp_path / f"{name}.tfrecord{suffix}", records) for name in "xy"]
    paths.append(write(tmp_path / f"z.tfrecord{suffix}", records[1:2]))
    build_index(paths, columns=["a"])
    reader = TFRecordReader(paths)
    column = reader.index.columns["a"]
    assert isinstance(column, np.ma.MaskedArray)
    assert column.mask.tolist() == ([True, False, False] * 6 + [False])
    assert reader.where(a=0).tolist() == []  # what is missing is not 0
    assert reader.where(a=4).tolist() == [4, 13]
    assert reader.where(a=lambda values: values < 3).tolist() == [1, 2, 10, 11, 18]
    assert reader.select([0, 1, 2]).where(a=1).tolist() == [1]
    again = pickle.loads(pickle.dumps(reader))
    assert again.where(a=4).tolist() == [4, 13]
    index = load_index(f"{paths[0]}.tfindex", paths[0])
    assert pickle.loads(pickle.dumps(index)).columns["a"].mask.tolist() == [True, False, False] * 3
    build_index(paths[0])
    assert TFRecordReader(paths[0]).where(a=4).tolist() == [4]


def test_lengths(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(8)])
    build_index(path, columns=["len(list)", "id"])
    reader = TFRecordReader(path)
    assert reader.index.columns["len(list)"].tolist() == [0, 1, 2, 3] * 2
    assert reader.where({"len(list)": 3}).tolist() == [3, 7]
    assert reader.where({"len(list)": lambda n: n > 1}, id=[2, 3, 4]).tolist() == [2, 3]
    steps = [encode_sequence_example({}, {"t": ([[1, 2]] * count, "int")}) for count in range(3)]
    sequences = write(tmp_path / "s.tfrecord", steps)
    assert build_index(sequences, columns="len(t)").columns["len(t)"].tolist() == [0, 1, 2]


def test_names_that_are_nearly_right(path: Path) -> None:
    with pytest.raises(MissingFeatureError, match="did you mean 'label'"):
        build_index(path, columns=["lable"])
    build_index(path, columns=["label"])
    with pytest.raises(KeyError, match="did you mean 'label'"):
        TFRecordReader(path).where(lable=3)


def test_a_missing_column_says_how_to_store_it(path: Path) -> None:
    with pytest.raises(KeyError, match=r"a\.tfrecord.*, columns=\['label'\]\), then open the reader again"):
        TFRecordReader(path).where(label=3)
    with pytest.raises(KeyError, match=r"tfrecord\.build_index\(reader\.paths, columns=\['label'\]\)"):
        TFRecordReader([path, path]).where(label=3)


def test_masks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [encode_example({"a": (1, "int")}), encode_example({})])
    build_index(path, columns=["a"])
    sidecar = Path(f"{path}.tfindex")
    good = sidecar.read_bytes()
    (length,) = struct.unpack_from("<I", good, 12)
    fields = msgpack.unpackb(good[24 : 24 + length])
    assert fields["masked"] == [["a", 2, 3]]
    for masked in (
        [["a", 3, 2]],
        [["a", 2, 2]],
        [["a", 0, 3]],
        [["a", 2, 9]],
        [["a", True, 3]],
        [[1, 2, 3]],
        [["a", 2, 3], ["b", 2, 3]],
        7,
        [["a"]],
    ):
        header = msgpack.packb({**fields, "masked": masked})
        body = struct.pack("<8s4I", b"TFRINDEX", 1, len(header), crc32c(header), 0) + header
        sidecar.write_bytes(body + good[len(body) :])
        with pytest.raises(IndexFileError):
            TFRecordReader(path)
