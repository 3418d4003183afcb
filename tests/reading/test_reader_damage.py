"""Damage: raised with its place after what is good, or skipped, alike in every way of reading."""

from __future__ import annotations

import gzip
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from damaged import (
    COUNT,
    EVERY,
    FRAMES,
    OFFSETS,
    STREAMED,
    Way,
    bad_length,
    bad_payload,
    by_batches,
    by_iteration,
    by_loader,
    by_positions,
    by_shards,
    by_view,
    cut,
    example,
    flipped,
    no_message,
    number_of,
    numbers_of,
)
from recorded import read_all

from indexer.build import build_index
from indexer.errors import (
    ChecksumError,
    CompressionError,
    CorruptRecordError,
    DecodeError,
    StaleIndexError,
    TFRecordError,
    TruncatedRecordError,
)
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, frame_record
from tfrecord.example_pb2 import Example
from tfrecord.loaders import tfrecord_iterator, tfrecord_loader
from tfrecord.reader import TFRecordReader


@pytest.fixture(params=["plain", "gzip"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], Path]:
    def put(data: bytes) -> Path:
        path = tmp_path / "data"
        path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
        return path

    return put


@pytest.mark.parametrize("way", STREAMED)
@pytest.mark.parametrize(
    ("damage", "kind", "reason"),
    [
        (bad_payload, ChecksumError, "bad_payload_crc"),
        (bad_length, ChecksumError, "bad_length_crc"),
        (cut, TruncatedRecordError, "truncated_record"),
    ],
)
@pytest.mark.parametrize("record", [0, 5, COUNT - 1])
def test_good_records_come_first(
    store: Callable[[bytes], Path],
    way: Way,
    damage: Callable[[int], bytes],
    kind: type[CorruptRecordError],
    reason: str,
    record: int,
) -> None:
    path = store(damage(record))
    found, error = read_all(way(path))
    assert found == list(range(record))
    assert isinstance(error, kind)
    assert (error.path, error.record, error.offset, error.reason) == (
        str(path),
        record,
        OFFSETS[record],
        reason,
    )
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.path, again.record, str(again)) == (kind, str(path), record, str(error))


@pytest.mark.parametrize("record", [0, 5, COUNT - 1])
def test_good_records_come_first_in_a_view_too(store: Callable[[bytes], Path], record: int) -> None:
    path = store(bad_payload(record))
    found, error = read_all(by_view(path))
    assert found == list(range(record))
    assert isinstance(error, ChecksumError)
    assert (error.path, error.record, error.offset) == (str(path), record, OFFSETS[record])
    backwards = TFRecordReader(path, record_type="example").select(range(COUNT - 1, -1, -1))
    found, error = read_all(map(number_of, backwards))
    assert found == list(range(COUNT - 1, record, -1))
    assert isinstance(error, ChecksumError)
    assert (error.path, error.record) == (str(path), record)


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("record", [0, 5, COUNT - 1])
def test_payload_damage_skips_one_record(store: Callable[[bytes], Path], way: Way, record: int) -> None:
    path = store(bad_payload(record))
    errors: list[CorruptRecordError] = []
    found, error = read_all(way(path, on_error=errors.append))
    assert error is None
    assert found == [number for number in range(COUNT) if number != record]
    assert [(e.path, e.record, e.offset) for e in errors] == [(str(path), record, OFFSETS[record])]
    assert read_all(way(path, on_error="skip")) == (found, None)


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("damage", [bad_length, cut])
def test_length_damage_gives_up_the_rest_of_the_file(
    store: Callable[[bytes], Path], way: Way, damage: Callable[[int], bytes]
) -> None:
    path = store(damage(6))
    errors: list[CorruptRecordError] = []
    found, error = read_all(way(path, on_error=errors.append))
    assert error is None
    assert found == list(range(6))
    assert {(e.path, e.record, e.offset) for e in errors} == {(str(path), 6, OFFSETS[6])}


@pytest.mark.parametrize("way", EVERY)
def test_what_is_no_message_is_damage_too(store: Callable[[bytes], Path], way: Way) -> None:
    path = store(no_message(4))
    found, error = read_all(way(path))
    if way is not by_positions:
        assert found == list(range(4))
    assert isinstance(error, DecodeError)
    assert (error.path, error.record) == (str(path), 4)
    errors: list[DecodeError] = []
    found, error = read_all(way(path, on_error=errors.append))
    assert (found, error) == ([0, 1, 2, 3, 5, 6, 7, 8, 9], None)
    assert [(e.path, e.record) for e in errors] == [(str(path), 4)]


@pytest.mark.parametrize("way", [by_loader, by_iteration, by_batches, by_positions, by_view])
def test_the_cap_on_skips(store: Callable[[bytes], Path], way: Way) -> None:
    data = bad_payload(2)
    for record in (4, 6):
        data = flipped(data, OFFSETS[record] + HEADER_SIZE + 5)
    path = store(data)
    assert read_all(way(path, on_error="skip", max_skips=3)) == ([0, 1, 3, 5, 7, 8, 9], None)
    found, error = read_all(way(path, on_error="skip", max_skips=2))
    assert isinstance(error, ChecksumError)
    assert (error.path, error.record) == (str(path), 6)
    assert read_all(way(path, on_error="skip", max_skips=0))[1].record == 2  # type: ignore[union-attr]


def test_skips_are_counted_once_however_a_record_is_met(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bad_payload(2))
    build_index_of_undamaged(path)
    for index in ("auto", False):
        reader = TFRecordReader(path, on_error="skip", max_skips=1, index=index)
        assert reader.num_skipped == 0
        for _ in range(3):
            assert len(list(reader)) == COUNT - 1
        assert len(reader) == COUNT
        assert numbers_of(reader.read([1, 2, 3, 2])) == [1, 3]
        assert [numbers_of(batch) for batch in reader.batches(5)] == [[0, 1, 3, 4, 5], [6, 7, 8, 9]]
        assert reader.num_skipped == 1
        assert pickle.loads(pickle.dumps(reader)).num_skipped == 0
        with pytest.raises(ChecksumError) as caught:
            reader.raw(2)  # one record that is asked for by name cannot be left out
        assert (caught.value.path, caught.value.record) == (str(path), 2)


def build_index_of_undamaged(path: Path) -> None:
    """The index as it was before the damage: the fingerprint sees only parts of a file, here it sees all."""
    damaged = path.read_bytes()
    path.write_bytes(b"".join(FRAMES))
    index = build_index(path)
    path.write_bytes(damaged)
    from indexer.formats import write_index

    with open(str(path) + ".tfindex", "wb") as file:
        write_index(file, index.replace(fingerprint=None))


def test_with_an_index_what_follows_a_damaged_length_is_reached_by_position(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bad_length(6))
    build_index_of_undamaged(path)
    reader = TFRecordReader(path, on_error="skip")
    assert len(reader) == COUNT
    assert numbers_of(reader.read(range(COUNT))) == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert numbers_of(reader.read([9, 6, 8])) == [9, 8]
    assert [number_of(record) for record in reader] == [0, 1, 2, 3, 4, 5]  # stored order needs the length
    assert reader.num_skipped == 1
    with pytest.raises(ChecksumError) as caught:
        TFRecordReader(path).read([6])
    assert (caught.value.path, caught.value.record, caught.value.offset) == (str(path), 6, OFFSETS[6])


@pytest.mark.parametrize("way", EVERY)
def test_other_files_go_on_after_a_damaged_one(
    store: Callable[[bytes], Path], tmp_path: Path, way: Way
) -> None:
    if way in (by_loader, by_shards):
        pytest.skip("one file only")
    good = tmp_path / "good"
    good.write_bytes(b"".join(FRAMES))
    damaged = store(bad_length(3))
    errors: list[CorruptRecordError] = []
    found, error = read_all(way([good, damaged, good], on_error=errors.append))  # type: ignore[arg-type]
    assert error is None
    assert found == [*range(COUNT), *range(3), *range(COUNT)]
    assert {(e.path, e.record) for e in errors} == {(str(damaged), 3)}


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("record_boundary", [True, False])
def test_a_cut_gzip_stream(tmp_path: Path, way: Way, record_boundary: bool) -> None:
    """Incompressible, so that the cut falls among the records and not in one block of them all."""
    rng = np.random.default_rng(0)
    message = Example()
    message.features.feature["id"].int64_list.value.append(0)
    frames = []
    for number in range(40):
        message.features.feature["id"].int64_list.value[0] = number
        message.features.feature["pad"].bytes_list.value[:] = [rng.bytes(20_000)]
        frames.append(frame_record(message.SerializeToString()))
    path = tmp_path / "data.gz"
    data = gzip.compress(b"".join(frames))
    path.write_bytes(data[:-8] if record_boundary else data[: len(data) // 2])
    if way is by_shards:
        pytest.skip("made for few records")
    found, error = read_all(way(path))
    assert isinstance(error, CompressionError)
    assert error.reason == "truncated_stream"
    assert error.path == str(path)
    if way in STREAMED:
        assert found == list(range(error.record or 0))
        assert len(found) >= 15
    errors: list[CompressionError] = []
    skipped, error = read_all(way(path, on_error=errors.append))
    assert error is None
    assert {e.reason for e in errors} == {"truncated_stream"}
    assert skipped == list(range(40 if record_boundary else errors[0].record or 0))


def test_a_callable_that_raises_stops(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bad_payload(2))

    def stop(error: TFRecordError) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(TFRecordReader(path, on_error=stop))


def test_missing_files_and_stale_indexes_are_never_skipped(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"".join(FRAMES))
    build_index(path)
    path.write_bytes(b"".join(FRAMES[:-1]))
    with pytest.raises(StaleIndexError) as caught:
        TFRecordReader(path, on_error="skip")
    assert caught.value.path == str(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        TFRecordReader(path, on_error="skip")


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_shrinks_under_an_open_reader_raises(tmp_path: Path, mmap: bool) -> None:
    path = tmp_path / "data"
    payloads = [bytes([number]) * 50_000 for number in range(60)]
    path.write_bytes(b"".join(map(frame_record, payloads)))
    reader = TFRecordReader(path, record_type="bytes", mmap=mmap)
    assert reader[59] == payloads[59]
    running = iter(reader)
    assert next(running) == payloads[0]
    os.truncate(path, 10 * (50_000 + FRAME_OVERHEAD))
    for way in (
        lambda: reader[59],
        lambda: reader.read([3, 59]),
        lambda: list(running),
        lambda: reader.raw(59),
    ):
        with pytest.raises(TFRecordError) as caught:
            way()
        assert str(path) in str(caught.value)
    with pytest.raises(TFRecordError):
        list(reader.batches(7))


@pytest.mark.parametrize("records_of", ["bytes", "example"])
def test_a_file_that_shrinks_in_the_middle_of_a_pass_says_where(
    tmp_path: Path, records_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a map, which must not be touched beyond the new end; the place is that of the next record."""
    monkeypatch.setattr("indexer.localfile._MOST_PYTHON_MAPS", 1000)  # earlier tests may hold some
    path = tmp_path / "data"
    size = len(frame_record(example(0)))
    count = 3 * (1 << 20) // size  # several chunks
    data = frame_record(example(0)) * count
    batch = 1000
    passes: dict[str, Callable[[TFRecordReader], Iterator[int]]] = {
        "records": lambda reader: (1 for _ in reader),
        "batches": lambda reader: (batch for _ in reader.batches(batch)),
        "raw": lambda reader: (1 for _ in reader.iter_file(0)),
        "every third": lambda reader: (3 for _ in reader.iter_file(0, step=3)),
        "loader": lambda reader: (1 for _ in tfrecord_loader(str(path), None)),
        "payloads": lambda reader: (1 for _ in tfrecord_iterator(str(path))),
    }
    for name, start in passes.items():
        path.write_bytes(data)
        running = start(TFRecordReader(path, record_type=records_of))
        done = next(running)
        os.truncate(path, 10 * size)
        with pytest.raises(TruncatedRecordError, match="shrank") as caught:
            for step in running:
                done += step
        error = caught.value
        assert (error.path, error.record, error.offset) == (str(path), done, done * size), name
        assert done < count


def test_damage_in_the_first_records_is_left_to_the_reading(tmp_path: Path) -> None:
    """Looking at the first records to tell their kind neither raises nor counts."""
    path = tmp_path / "data"
    path.write_bytes(bad_payload(0))
    reader = TFRecordReader(path, on_error="skip")
    assert reader.record_type == "example"
    assert reader.num_skipped == 0
    found, error = read_all(map(number_of, TFRecordReader(path)))
    assert found == []
    assert isinstance(error, ChecksumError)
    assert (error.path, error.record, error.offset) == (str(path), 0, 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b'{"id": 1, "name": "x"}\n', "JSON"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML"),
        (b"id,name\n1,a\n2,b\n", "text"),
        (bytes(4096), "zeros"),
        (b"PK\x03\x04" + bytes(60), "zip"),
    ],
)
@pytest.mark.parametrize("way", EVERY)
def test_what_is_no_tfrecord_file_is_named(tmp_path: Path, content: bytes, words: str, way: Way) -> None:
    path = tmp_path / "data"
    path.write_bytes(content)
    found, error = read_all(way(path))
    assert found == []
    assert isinstance(error, CorruptRecordError)
    assert (error.path, error.record, error.offset) == (str(path), 0, 0)
    assert words in str(error)


def test_gzip_bytes_read_as_plain_say_gzip(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(b"".join(FRAMES)))
    for way in (
        lambda: list(tfrecord_iterator(path, compression_type="")),
        lambda: TFRecordReader(path, compression_type="NONE")[0],
    ):
        with pytest.raises(CorruptRecordError, match="gzip") as caught:
            way()
        assert (caught.value.path, caught.value.offset) == (str(path), 0)


def test_a_callable_that_raises_has_skipped_nothing(tmp_path: Path) -> None:
    """Another pass meets the record again, and does not leave it out in silence."""

    class Stop(Exception):
        pass

    def stop(error: TFRecordError) -> None:
        raise Stop(error.record)  # type: ignore[attr-defined]

    path = tmp_path / "data"
    path.write_bytes(bad_payload(3))
    reader = TFRecordReader(path, on_error=stop)
    ways: list[Callable[[], object]] = [lambda: list(reader), lambda: reader.read(range(COUNT))]
    for way in ways * 2:
        with pytest.raises(Stop, match="3"):
            way()
        assert reader.num_skipped == 0
