"""A small compressed file may claim, and hold, a huge record: it costs no more memory than is allowed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import tfrecord
from indexer.build import check_index
from indexer.errors import CorruptRecordError, TruncatedRecordError
from indexer.framing import crc32c, frame_header, frame_record, mask_crc32c
from indexer.scanning import scan_index
from indexer.streams import iter_chunks
from tfrecord._reading.spool import SpoolFullError
from tfrecord.reader import TFRecordReader
from tfrecord.writer import TFRecordWriter

HUGE = 300 << 20


@pytest.fixture(params=["gzip", "zlib"])
def bomb(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two good records, one of 300 MB of zeros, one more; its payload checksum is never looked at."""
    path = tmp_path / "bomb"
    packer = zlib.compressobj(9, wbits=31 if request.param == "gzip" else 15)
    with path.open("wb") as file:
        file.write(packer.compress(frame_record(b"one") + frame_record(b"two") + frame_header(HUGE)))
        for _ in range(HUGE >> 20):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.compress(bytes(4) + frame_record(b"four")) + packer.flush())
    assert path.stat().st_size < 1 << 20
    return path


def test_lengths_are_found_in_little_memory(bomb: Path) -> None:
    code = """
import resource, sys
from tfrecord.reader import TFRecordReader
from indexer.scanning import scan_index
import numpy
resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))
reader = TFRecordReader(sys.argv[1], max_spool_bytes=1 << 20, record_type="bytes")
assert len(reader) == 4
assert scan_index(sys.argv[1]).lengths.tolist() == [3, 3, 300 << 20, 4]
records = iter(TFRecordReader(sys.argv[1], max_record_bytes=1 << 20, record_type="bytes"))
assert [next(records), next(records)] == [b"one", b"two"]
try:
    next(records)
except Exception as error:
    print(type(error).__name__, error.record, error.offset, error.reason)
"""
    done = subprocess.run([sys.executable, "-c", code, str(bomb)], capture_output=True, text=True)
    assert done.stdout == "CorruptRecordError 2 38 record_too_long\n", done.stderr


def test_a_record_beyond_the_limit(bomb: Path) -> None:
    reader = TFRecordReader(bomb, max_record_bytes=1000, record_type="bytes", max_spool_bytes=1 << 20)
    found = []
    with pytest.raises(CorruptRecordError, match="max_record_bytes is 1000") as caught:
        for record in reader:
            found.append(record)
    assert found == [b"one", b"two"]
    assert (caught.value.path, caught.value.record, caught.value.offset) == (str(bomb), 2, 38)
    with pytest.raises(SpoolFullError):
        reader[0]
    skipping = TFRecordReader(bomb, max_record_bytes=1000, record_type="bytes", on_error="skip")
    assert [bytes(record) for record in iter(skipping)] == [b"one", b"two"] and skipping.num_skipped == 1


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_limit_is_exact(more: int, tmp_path: Path) -> None:
    limit = 3 << 20
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frame_record(bytes(limit + more)) + frame_record(b"y")))
    reader = TFRecordReader(path, max_record_bytes=limit, record_type="bytes")
    records = (len(record) for record in iter(reader))
    if more > 0:
        with pytest.raises(CorruptRecordError, match="record_too_long"):
            next(records)
    else:
        assert [next(records), next(records)] == [limit + more, 1]


def test_a_claim_without_the_bytes_is_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frame_record(b"x") + frame_header(1 << 60) + b"few"))
    for way in (lambda: list(TFRecordReader(path, record_type="bytes")), lambda: scan_index(path)):
        with pytest.raises(TruncatedRecordError) as caught:
            way()
        assert (caught.value.record, caught.value.offset) == (1, 17)


def test_a_length_with_a_wrong_checksum_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    header = bytearray(frame_header(1 << 40))
    header[9] ^= 1
    path.write_bytes(gzip.compress(frame_record(b"x") + bytes(header) + bytes(100 << 20)))
    with pytest.raises(CorruptRecordError, match="bad_length_crc"):
        list(TFRecordReader(path, record_type="bytes"))


def test_appending_behind_a_long_record(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frame_record(bytes(5 << 20))))
    with TFRecordWriter(path, mode="a", compression_type="GZIP") as writer:
        writer.write_bytes(b"x")
    assert [len(record) for record in TFRecordReader(path, record_type="bytes")] == [5 << 20, 1]


@pytest.mark.parametrize("value", [0, -1, 1.5, "1"])
def test_limits_that_are_none(value: object, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match="max_record_bytes"):
        TFRecordReader(tmp_path / "a", max_record_bytes=value)  # type: ignore[arg-type]


LONG = 160 << 20


def good_bomb(path: Path, size: int, last: bytes = b"") -> None:
    """A good record of zeros between two small ones; ``last`` replaces its checksum."""
    crc = 0
    for _ in range(size >> 20):
        crc = crc32c(bytes(1 << 20), crc)
    packer = zlib.compressobj(1, wbits=31)
    with path.open("wb") as file:
        file.write(packer.compress(frame_record(b"one") + frame_header(size)))
        for _ in range(size >> 20):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.compress((last or mask_crc32c(crc).to_bytes(4, "little")) + frame_record(b"three")))
        file.write(packer.flush())


LIMITED = """
import resource, sys
import tfrecord
from tfrecord.cli import main
resource.setrlimit(resource.RLIMIT_DATA, (150 << 20, 150 << 20))
"""


def limited(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code with the path in ``sys.argv[1]`` in a process that has little memory."""
    return subprocess.run([sys.executable, "-c", LIMITED + code, str(path)], capture_output=True, text=True)


@pytest.mark.skipif(tfrecord.engine != "native", reason="the reference engine copies what it looks at")
@pytest.mark.parametrize("damaged", [False, True])
def test_long_records_are_checked_as_they_pass(damaged: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    good_bomb(path, LONG, b"abcd" if damaged else b"")
    built = limited("print(len(tfrecord.build_index(sys.argv[1], record_type='bytes')))", path)
    checked = limited("print([d.record for d in tfrecord.verify(sys.argv[1]).damages])", path)
    if damaged:
        assert "record 1 at offset 19: the checksum of the payload does not match" in built.stderr
        assert checked.stdout == "[1]\n", checked.stderr
        chunks = iter_chunks(path, payloads=False, on_damage=lambda error: None)
        assert [length for chunk in chunks for length in chunk.lengths.tolist()] == [3, 5]
    else:
        assert built.stdout == "3\n", built.stderr
        assert checked.stdout == "[]\n", checked.stderr
        assert check_index(path).lengths.tolist() == [3, LONG, 5]


def test_info_does_not_look_at_long_records(tmp_path: Path) -> None:
    pytest.importorskip("click")
    path = tmp_path / "a.tfrecord.gz"
    good_bomb(path, LONG)
    done = limited("sys.exit(main(['info', '--json', sys.argv[1]]))", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == 3 and found["files"][0]["problem"] is None


def test_a_long_record_in_a_temporary_file_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.streams._SPILLED", 1 << 20)
    payloads = [b"one", bytes(range(256)) * 10_000, b"three", b"\1" * (2 << 20)]
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"".join(map(frame_record, payloads))))
    found = []
    for chunk in iter_chunks(path, spill=True):
        for offset, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
            found.append(bytes(chunk.buffer[offset + 12 : offset + 12 + length]))
    assert found == payloads
    with pytest.raises(CorruptRecordError, match="record 1 .*record_too_long"):
        list(iter_chunks(path, spill=True, max_record_bytes=1 << 20))
    path.write_bytes(gzip.compress(b"".join(map(frame_record, payloads))[:-10]))
    with pytest.raises(TruncatedRecordError, match="record 3 "):
        list(iter_chunks(path, spill=True))
