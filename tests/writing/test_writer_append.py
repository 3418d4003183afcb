"""Appending to a file: what is there stays, and only a cut tail goes."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import pytest
from written import records

from indexer import framing
from indexer.errors import CompressionError, CorruptRecordError, TruncatedRecordError
from tfrecord.writer import TFRecordWriter


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("existing", [None, 0, 3])
def test_appending(tmp_path: Path, compression: str | None, existing: int | None) -> None:
    path = tmp_path / "a"
    if existing is not None:
        with TFRecordWriter(path, compression_type=compression) as writer:
            for i in range(existing):
                writer.write_bytes(bytes([i]))
            size = writer.tell()
    with TFRecordWriter(path, mode="a", compression_type=compression) as writer:
        assert writer.num_records == (existing or 0)
        assert writer.tell() == (size if existing else 0)
        writer.write_bytes(b"new")
        assert writer.num_records == (existing or 0) + 1
    assert records(str(path)) == [bytes([i]) for i in range(existing or 0)] + [b"new"]


@pytest.mark.parametrize("left", [1, 11, 12, 15, 20, 27])
def test_an_incomplete_last_record_is_cut_off(tmp_path: Path, left: int) -> None:
    path = tmp_path / "a"
    whole = framing.frame_record(b"one") + framing.frame_record(b"two")
    path.write_bytes(whole + framing.frame_record(b"x" * 12)[:left])
    with pytest.warns(
        RuntimeWarning, match=rf"a: record 2 at offset {len(whole)} is incomplete; its {left} bytes"
    ):
        writer = TFRecordWriter(path, mode="a")
    assert (writer.num_records, writer.tell()) == (2, len(whole))
    writer.write_bytes(b"three")
    writer.close()
    assert records(str(path)) == [b"one", b"two", b"three"]


def test_where_the_warning_is_an_error_nothing_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = framing.frame_record(b"one") + b"\0"
    path.write_bytes(data)
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning):
        warnings.simplefilter("error")
        TFRecordWriter(path, mode="a")
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "error", "reason", "record", "offset"),
    [
        (b"short", TruncatedRecordError, "truncated_header", 0, 0),
        (b"some other file that is long enough", CorruptRecordError, "bad_length_crc", 0, 0),
        (framing.frame_record(b"a") + bytes(40), CorruptRecordError, "bad_length_crc", 1, 17),
        (
            framing.frame_record(b"a") + framing.frame_record(b"bb")[:-1] + b"\0",
            CorruptRecordError,
            "bad_payload_crc",
            1,
            17,
        ),
    ],
)
def test_nothing_is_appended_to_a_damaged_file(
    tmp_path: Path, data: bytes, error: type[CorruptRecordError], reason: str, record: int, offset: int
) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        TFRecordWriter(path, mode="a")
    found = caught.value
    assert (found.path, found.reason, found.record, found.offset) == (str(path), reason, record, offset)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("stored", "asked", "says"),
    [
        ("gzip", None, "'GZIP'"),
        ("zlib", "gzip", "'ZLIB'"),
        (None, "gzip", "compression_type=None"),
        ("gzip", "zlib", "'GZIP'"),
        ("zlib", "zlib", "cannot append to a zlib file"),
    ],
)
def test_appending_in_another_compression(
    tmp_path: Path, stored: str | None, asked: str | None, says: str
) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, compression_type=stored) as writer:
        writer.write_bytes(b"x")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=says):
        TFRecordWriter(path, mode="a", compression_type=asked)
    assert path.read_bytes() == before


def test_a_gzip_file_that_is_cut_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = gzip.compress(framing.frame_record(b"x" * 100))
    for bad, error in [(data[:-5], CompressionError), (data + b"junk", CompressionError)]:
        path.write_bytes(bad)
        with pytest.raises(error) as caught:
            TFRecordWriter(path, mode="a", compression_type="gzip")
        assert caught.value.path == str(path)
        assert path.read_bytes() == bad
    path.write_bytes(gzip.compress(framing.frame_record(b"x" * 100)[:50]))
    with pytest.raises(TruncatedRecordError) as cut:
        TFRecordWriter(path, mode="a", compression_type="gzip")
    assert (cut.value.record, cut.value.offset, cut.value.reason) == (0, 0, "truncated_record")


@pytest.mark.parametrize("zeros", [0, 1, 7, 8, 512, 40_000])
@pytest.mark.parametrize(
    "content", [b"", framing.frame_record(b"x" * 100), framing.frame_record(bytes(100_000))]
)
def test_zeros_after_the_last_gzip_member_make_room(tmp_path: Path, content: bytes, zeros: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content) + gzip.compress(b"") + gzip.compress(content) + bytes(zeros))
    before = records(str(path))
    with TFRecordWriter(path, mode="a", compression_type="gzip") as writer:
        writer.write_bytes(b"new")
    assert records(str(path)) == [*before, b"new"]


def test_the_warning_of_a_cut_tail_points_at_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(framing.frame_record(b"x") + b"cut")
    with pytest.warns(RuntimeWarning, match="record 1 at offset 17") as caught:
        TFRecordWriter(path, mode="a").close()
    assert caught[0].filename == __file__
