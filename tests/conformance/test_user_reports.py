"""What users of TFRecord readers ran into: one test a report that concerns reading, its smallest input."""

from __future__ import annotations

import gzip
import io
import itertools
import multiprocessing
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer import build as index_build
from indexer.errors import (
    ChecksumError,
    CorruptRecordError,
    TFRecordError,
    TruncatedRecordError,
)
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, frame_record
from tfrecord.columns import BytesColumn, Ragged
from tfrecord.example_pb2 import Example, SequenceExample
from tfrecord.features import FixedLenFeature, VarLenFeature
from tfrecord.loaders import multi_tfrecord_loader, tfrecord_iterator, tfrecord_loader
from tfrecord.reader import TFRecordReader, build_index


def example(**features: Any) -> bytes:
    """Values by type; a pair (kind, values) where there are none to tell."""
    message = Example()
    for key, given in features.items():
        kind, values = given if isinstance(given, tuple) else (None, given)
        if kind is None:
            kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        field = getattr(message.features.feature[key], kind)
        field.SetInParent()
        field.value.extend(values)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def write(path: Path, payloads: list[bytes], compress: Callable[[bytes], bytes] = bytes) -> Path:
    path.write_bytes(compress(b"".join(map(frame_record, payloads))))
    return path


def numbered(path: Path, numbers: range, compress: Callable[[bytes], bytes] = bytes) -> Path:
    return write(path, [example(id=[number]) for number in numbers], compress)


def ids(records: Any) -> list[int]:
    return [int(record["id"][0]) for record in records]


def test_002_an_empty_bytes_list_keeps_the_type(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(x=[b"a"]), example(x=("bytes_list", [])), example(x=[b"b"])])
    records = list(tfrecord_loader(str(path), None, {"x": "byte"}))
    assert [records[0]["x"], records[2]["x"]] == [b"a", b"b"]
    assert (records[1]["x"].dtype, records[1]["x"].shape) == (object, (0,))
    column = TFRecordReader(path)[:]["x"]
    assert isinstance(column, Ragged)
    assert column.to_list() == [[b"a"], [], [b"b"]]


def test_004_lengths_that_differ(tmp_path: Path) -> None:
    strings = [[b"s"] * count for count in (1, 2, 5)]
    numbers = [[7] * count for count in (0, 3, 1)]
    path = write(
        tmp_path / "a", [example(s=s, n=("int64_list", n)) for s, n in zip(strings, numbers, strict=True)]
    )
    batch = TFRecordReader(path, features={"s": VarLenFeature("bytes"), "n": VarLenFeature("int64")})[:]
    assert batch["s"].to_list() == strings
    assert batch["n"].to_list() == numbers
    assert batch["n"].row_splits.tolist() == [0, 0, 3, 4]
    assert batch["n"].to_padded(-1).tolist() == [[-1, -1, -1], [7, 7, 7], [7, -1, -1]]


def test_006_a_default_for_what_is_missing_or_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(x=[0]), example(x=("int64_list", [])), example(y=[1])])
    scalar = TFRecordReader(path, features={"x": FixedLenFeature((), "int64", -1)})
    assert scalar[:]["x"].tolist() == [0, -1, -1]
    assert [int(record["x"]) for record in scalar] == [0, -1, -1]
    vector = TFRecordReader(path, features={"x": FixedLenFeature((1,), "int64", -1)})
    assert vector[:]["x"].shape == (3, 1)


def test_008_a_column_of_empty_lists_has_its_kind(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(x=("float_list", []))] * 10)
    column = TFRecordReader(path)[:]["x"]
    assert column.values.dtype == np.float32
    assert column.to_list() == [[]] * 10


def test_010_a_batch_does_not_decide_a_shape(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(x=[1]), example(x=[2]), example(x=[3, 4])])
    first, second = TFRecordReader(path).batches(2)
    assert type(first["x"]) is type(second["x"]) is Ragged
    assert first["x"].to_list() + second["x"].to_list() == [[1], [2], [3, 4]]
    build_index(path)  # the schema of all records knows that they differ
    assert all(type(batch["x"]) is Ragged for batch in TFRecordReader(path).batches(2))


def test_012_bytes_are_exact_and_arrays_on_request(tmp_path: Path) -> None:
    array = np.arange(12, dtype="<u2").reshape(3, 4)
    path = write(tmp_path / "a", [example(a=[array.tobytes()], jpeg=[b"\xff\xd8\xff\x00\x00"])] * 2)
    assert TFRecordReader(path)[0]["jpeg"] == b"\xff\xd8\xff\x00\x00"
    batch = TFRecordReader(path, features={"a": FixedLenFeature((3, 4), "uint16", raw=True)})[:]
    assert batch["a"].dtype == np.uint16
    assert batch["a"].tolist() == [array.tolist()] * 2


def test_016_integers_have_64_bits(tmp_path: Path) -> None:
    values = [2**40, -1, 2**63 - 1, -(2**63)]
    path = write(tmp_path / "a", [example(x=values)])
    assert TFRecordReader(path)[0]["x"].tolist() == values
    assert next(tfrecord_loader(str(path), None, {"x": "int"}))["x"].tolist() == values


def test_020_a_sequence_is_not_read_as_an_example_silently(tmp_path: Path) -> None:
    message = SequenceExample()
    message.context.feature["id"].int64_list.value.append(5)
    for steps in ([1], [2, 3], []):
        message.feature_lists.feature_list["tokens"].feature.add().int64_list.value.extend(steps)
    path = write(tmp_path / "a", [message.SerializeToString()])
    context, lists = TFRecordReader(path)[0]
    assert context["id"].tolist() == [5]
    assert [step.tolist() for step in lists["tokens"]] == [[1], [2, 3], []]
    assert TFRecordReader(path)[:].feature_lists["tokens"].to_list() == [[[1], [2, 3], []]]
    with pytest.warns(UserWarning, match="feature lists are left out"):
        list(tfrecord_loader(str(path), None))
    for way in (lambda r: r[0], lambda r: r[:], list):
        with pytest.warns(UserWarning, match="feature lists are left out"):
            way(TFRecordReader(path, record_type="example"))


def test_022_several_blobs_in_one_feature(tmp_path: Path) -> None:
    blobs = [b"RIFF" + bytes(count) for count in (3, 0, 700)]
    path = write(tmp_path / "a", [example(wav=blobs)])
    assert TFRecordReader(path)[0]["wav"].tolist() == blobs
    assert TFRecordReader(path)[:]["wav"].to_list() == [blobs]


def test_024_an_index_of_one_line(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a.tfrecord", range(1))
    index_build.build_index(path, tmp_path / "a.index", format="text")
    assert ids(TFRecordReader(path, index=tmp_path / "a.index")) == [0]
    assert ids(tfrecord_loader(str(path), str(tmp_path / "a.index"))) == [0]


def test_028_a_text_file_is_no_length(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1800000000\n")
    for way in (lambda: len(TFRecordReader(path)), lambda: list(tfrecord_iterator(path))):
        with pytest.raises(CorruptRecordError, match="git lfs pull") as caught:
            way()
        assert (caught.value.path, caught.value.record, caught.value.offset) == (str(path), 0, 0)


def test_032_an_index_is_built_when_asked_for(tmp_path: Path) -> None:
    for number in range(5):
        numbered(tmp_path / f"{number}.tfrecord", range(number, number + 2))
    assert len(TFRecordReader(tmp_path)) == 10
    assert len(list(tmp_path.iterdir())) == 5
    assert len(TFRecordReader(tmp_path, index="build")) == 10
    assert len(list(tmp_path.iterdir())) == 10
    assert TFRecordReader(tmp_path).has_index


def open_and_build(path: str) -> list[int]:
    return ids(TFRecordReader(path, index="build"))


def test_036_eight_processes_build_the_same_index(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a.tfrecord", range(500))
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert pool.map(open_and_build, [str(path)] * 8) == [list(range(500))] * 8
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tfrecord", "a.tfrecord.tfindex"]
    assert len(TFRecordReader(path)) == 500


def test_038_the_last_record_of_every_file(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGESIZE")
    paths = [
        write(tmp_path / str(number), [b"a", b"b" * (page - 2 * FRAME_OVERHEAD - 1)]) for number in range(3)
    ]
    assert all(path.stat().st_size == page for path in paths)
    for index in (False, "build"):
        reader = TFRecordReader(paths, record_type="bytes", index=index)
        assert [len(reader[position]) for position in range(6)] == [1, page - 2 * FRAME_OVERHEAD - 1] * 3
        assert reader[-1] == reader[len(reader) - 1] == reader[1]
        with pytest.raises(IndexError, match="position 6 is out of range: there are 6 records"):
            reader[6]


def test_046_a_file_is_split_by_records(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a", range(101))
    sizes = [len(list(tfrecord_iterator(path, None, (i, 8)))) for i in range(8)]
    assert sum(sizes) == 101
    assert max(sizes) - min(sizes) <= 1


def test_050_readers_pickle_before_and_after_use(tmp_path: Path) -> None:
    reader = TFRecordReader(numbered(tmp_path / "a", range(9)), features={"id": "int"})
    before = pickle.loads(pickle.dumps(reader))
    running = iter(reader)
    next(running)
    after = pickle.loads(pickle.dumps(reader))
    assert ids(before) == ids(after) == list(range(9))


def test_058_stored_order_with_an_index_too(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a.tfrecord", range(50))
    index_build.build_index(path, tmp_path / "a.tfindex", format="text")
    assert ids(TFRecordReader(path)) == list(range(50))
    for _ in range(3):
        assert ids(tfrecord_loader(str(path), str(tmp_path / "a.tfindex"))) == list(range(50))


def test_066_an_empty_source_does_not_hang_a_mix(tmp_path: Path) -> None:
    numbered(tmp_path / "a", range(2))
    write(tmp_path / "b", [])
    mixed = multi_tfrecord_loader(f"{tmp_path}/{{}}", None, {"a": 0.1, "b": 0.9})
    assert ids(itertools.islice(mixed, 5)) == [0, 1, 0, 1, 0]
    assert list(multi_tfrecord_loader(f"{tmp_path}/{{}}", None, {"b": 1.0})) == []


def test_068_a_given_order_and_a_subset(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a", range(10))
    assert ids(TFRecordReader(path).select([5, 3, 3, 9])) == [5, 3, 3, 9]
    build_index(path, columns=["id"])
    reader = TFRecordReader(path)
    assert ids(reader.select(reader.where(id=lambda column: column >= 8))) == [8, 9]


def test_080_a_batch_of_random_positions_at_once(tmp_path: Path) -> None:
    reader = TFRecordReader(
        numbered(tmp_path / "a", range(5000)), features={"id": FixedLenFeature((), "int64")}
    )
    order = np.random.default_rng(0).permutation(5000)
    assert reader.read(order)["id"].tolist() == order.tolist()


def test_082_a_file_cut_under_a_map_raises(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [b"x" * 100_000] * 20)
    reader = TFRecordReader(path, record_type="bytes")
    assert len(reader[19]) == 100_000
    os.truncate(path, 150_000)
    with pytest.raises(TFRecordError) as caught:
        reader[19]
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "zlib"])
def test_088_090_compressed_files_are_found_by_content(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    path = numbered(tmp_path / "named.anything", range(20), compress)
    reader = TFRecordReader(path)
    assert ids(reader) == list(range(20))
    assert (reader[-1]["id"].tolist(), len(reader)) == ([19], 20)


def test_090_zlib_with_flush_markers(tmp_path: Path) -> None:
    deflater = zlib.compressobj()
    data = b""
    for number in range(5):
        data += deflater.compress(frame_record(example(id=[number]))) + deflater.flush(zlib.Z_FULL_FLUSH)
    (tmp_path / "a.zz").write_bytes(data + deflater.flush())
    assert ids(TFRecordReader(tmp_path / "a.zz")) == list(range(5))
    assert ids(TFRecordReader(tmp_path / "a.zz", compression_type="ZLIB")) == list(range(5))


def test_092_spellings_of_compression(tmp_path: Path) -> None:
    plain, packed = numbered(tmp_path / "a", range(3)), numbered(tmp_path / "b", range(3), gzip.compress)
    for name in ("", None, "NONE"):
        assert ids(TFRecordReader(plain, compression_type=name)) == [0, 1, 2]
    for name in ("GZIP", "gzip", None):
        assert ids(TFRecordReader(packed, compression_type=name)) == [0, 1, 2]
    with pytest.raises(ValueError, match="GZIP.*ZLIB"):
        TFRecordReader(plain, compression_type="lz4")


def test_094_one_gzip_file_for_four_workers(tmp_path: Path) -> None:
    path = numbered(tmp_path / "a.gz", range(200), gzip.compress)
    parts = [ids(tfrecord_loader(str(path), None, shard=(i, 4))) for i in range(4)]
    assert sorted(sum(parts, [])) == list(range(200))


def test_096_a_compressed_folder_has_the_same_schema_and_count(tmp_path: Path) -> None:
    for kind, compress in (("plain", bytes), ("packed", gzip.compress)):
        (tmp_path / kind).mkdir()
        for number in range(3):
            suffix = ".gz" if kind == "packed" else ""
            numbered(tmp_path / kind / f"{number}.tfrecord{suffix}", range(4), compress)
    plain, packed = TFRecordReader(tmp_path / "plain"), TFRecordReader(tmp_path / "packed")
    assert len(plain) == len(packed) == 12
    assert dict(plain.schema) == dict(packed.schema)
    assert plain.schema["id"].kind == "int64"


def test_112_shards_by_list_glob_and_folder_in_natural_order(tmp_path: Path) -> None:
    folder = tmp_path / "set {b} [x]"
    folder.mkdir()
    names = [f"train.tfrecord-{number:05d}-of-00012" for number in range(12)]
    for number, name in enumerate(names):
        numbered(folder / name, range(number, number + 1))
    (folder / "_SUCCESS").touch()
    build_index(folder / names[3])
    for paths in (folder, [folder / name for name in names], [str(folder / name) for name in names]):
        assert ids(TFRecordReader(paths)) == list(range(12))
    plain = tmp_path / "p"
    plain.mkdir()
    for number in range(12):
        numbered(plain / f"s{number}.tfrecord", range(number, number + 1))
    assert ids(TFRecordReader(plain / "s*.tfrecord")) == list(range(12))
    assert ids(TFRecordReader([plain / "s7.tfrecord", plain / "s2.tfrecord"])) == [7, 2]


@pytest.mark.filterwarnings("ignore:.*has no index")
def test_114_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = "memory://reader/a.tfrecord"
    data = b"".join(frame_record(example(id=[number])) for number in range(30))
    with fsspec.open(url, "wb") as file:
        file.write(data)
    with fsspec.open(url + ".gz", "wb") as file:
        file.write(gzip.compress(data))
    for name in (url, url + ".gz"):
        reader = TFRecordReader(name)
        assert ids(reader) == list(range(30))
        assert (len(reader), reader[29]["id"].tolist()) == (30, [29])
        assert reader.read([4, 1, 4])["id"].to_list() == [[4], [1], [4]]
        assert ids(tfrecord_loader(name, None, shard=(1, 2))) == list(range(1, 30, 2))
    assert ids(TFRecordReader(url, index="build")) == list(range(30))
    assert TFRecordReader(url).has_index
    local = numbered(tmp_path / "a.tfrecord", range(3))
    assert ids(TFRecordReader(f"file://{local}")) == [0, 1, 2]
    with pytest.raises(FileNotFoundError):
        list(TFRecordReader("memory://reader/nothing"))


def test_116_short_reads(tmp_path: Path) -> None:
    class SevenAtATime(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(7 if size is None or size < 0 else min(size, 7))

        def seekable(self) -> bool:
            return False

    data = b"".join(frame_record(example(id=[number])) for number in range(30))
    for content in (data, gzip.compress(data)):
        assert ids(tfrecord_loader(SevenAtATime(content), None)) == list(range(30))


def test_118_an_empty_part_file_in_the_middle(tmp_path: Path) -> None:
    paths = [
        numbered(tmp_path / "a.tfrecord", range(2)),
        tmp_path / "b.tfrecord",
        numbered(tmp_path / "c.tfrecord", range(2, 5)),
    ]
    paths[1].touch()
    for index in (False, "build"):
        reader = TFRecordReader(paths, index=index)
        assert ids(reader) == list(range(5))
        assert [reader[position]["id"].tolist() for position in range(5)] == [[0], [1], [2], [3], [4]]
        assert reader.locate(2) == (str(paths[2]), 0)


def test_120_the_file_is_named_in_an_error_from_a_worker(tmp_path: Path) -> None:
    paths = [numbered(tmp_path / f"{number}.tfrecord", range(4)) for number in range(5)]
    data = bytearray(paths[3].read_bytes())
    data[HEADER_SIZE + 2] ^= 1
    paths[3].write_bytes(data)
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(ChecksumError) as caught:
        pool.map(list, [TFRecordReader(paths)])
    assert (caught.value.path, caught.value.record, caught.value.offset) == (str(paths[3]), 0, 0)
    assert str(paths[3]) in str(caught.value)


def test_122_bad_records_are_skipped_up_to_a_cap(tmp_path: Path) -> None:
    payloads = [example(id=[number]) for number in range(100)]
    frame = len(frame_record(payloads[0]))
    first, second = write(tmp_path / "a", payloads), write(tmp_path / "b", payloads)
    for path, at in ((first, 50 * frame + HEADER_SIZE), (second, 50 * frame)):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    seen: list[TFRecordError] = []
    reader = TFRecordReader([first, second], on_error=seen.append)
    assert ids(reader) == [*range(50), *range(51, 100), *range(50)]
    assert reader.num_skipped == len(seen) == 2
    assert [(e.path, e.record) for e in seen] == [(str(first), 50), (str(second), 50)]  # type: ignore[attr-defined]
    with pytest.raises(ChecksumError) as caught:
        ids(TFRecordReader([first, second], on_error="skip", max_skips=1))
    assert (caught.value.path, caught.value.record) == (str(second), 50)


def test_124_a_cut_and_a_bad_checksum_are_two_things(tmp_path: Path) -> None:
    whole = frame_record(b"first") + frame_record(b"second")
    start = len(frame_record(b"first"))
    path = tmp_path / "a"
    for end, reason in (
        (start + 5, "truncated_header"),
        (start + 14, "truncated_record"),
        (len(whole) - 2, "truncated_record"),
    ):
        path.write_bytes(whole[:end])
        with pytest.raises(TruncatedRecordError) as caught:
            list(TFRecordReader(path, record_type="bytes"))
        assert (caught.value.reason, caught.value.record, caught.value.offset) == (reason, 1, start)
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(ChecksumError) as wrong:
        list(TFRecordReader(path, record_type="bytes"))
    assert (wrong.value.path, wrong.value.record, wrong.value.offset) == (str(path), 1, start)


@pytest.mark.parametrize("name", ["float32", "float", " float ", np.float32], ids=repr)
def test_126_names_of_types(tmp_path: Path, name: Any) -> None:
    path = write(tmp_path / "a", [example(x=[0.5])])
    assert next(tfrecord_loader(str(path), None, {"x": name}))["x"].tolist() == [0.5]
    with pytest.raises(ValueError, match="'float32'"):
        tfrecord_loader(str(path), None, {"x": "single"})
    with pytest.raises(TypeError, match="record 0"):
        next(tfrecord_loader(str(path), None, {"x": "int"}))


def test_128_one_record_of_a_large_index_reads_no_more_than_its_pages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [b""] * 300_000)
    build_index(path)
    reader = TFRecordReader(path, record_type="bytes")
    offsets = reader._view.store.index(0).offsets
    assert not offsets.flags.owndata  # a view of the map, not a copy
    assert reader[299_999] == b""
    assert isinstance(reader.read([0, 299_999]), BytesColumn)
    assert reader._view.store.index(0).offsets is offsets
