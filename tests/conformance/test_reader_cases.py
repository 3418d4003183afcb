"""Every file of ``cases/framing-cases.json`` through every way of reading records."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import read_all

from indexer.errors import CompressionError, CorruptRecordError
from tfrecord.loaders import tfrecord_iterator
from tfrecord.reader import TFRecordReader

Case = dict[str, Any]
PAYLOADS = [b"alpha", b"", b"xyz"]


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[Case]:
    found: list[Case] = json.loads((shared / "cases" / "framing-cases.json").read_text())["cases"]
    assert len(found) > 30
    return found


class Unseekable(io.RawIOBase):
    """A stream that gives at most seven bytes at a time and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, 7) if size >= 0 else 7)


def by_iterator(path: Path, compression: str | None) -> Iterator[bytes]:
    return map(bytes, tfrecord_iterator(str(path), compression_type=compression))


def by_stream(path: Path, compression: str | None) -> Iterator[bytes]:
    return map(bytes, tfrecord_iterator(Unseekable(path.read_bytes()), compression_type=compression))


def by_reader(path: Path, compression: str | None, **options: Any) -> Iterator[bytes]:
    yield from TFRecordReader(path, record_type="bytes", compression_type=compression, **options)


def by_pread(path: Path, compression: str | None) -> Iterator[bytes]:
    return by_reader(path, compression, mmap=False)


def by_batches(path: Path, compression: str | None) -> Iterator[bytes]:
    reader = TFRecordReader(path, record_type="bytes", compression_type=compression)
    for batch in reader.batches(2):
        yield from batch.to_list()


def by_shards(path: Path, compression: str | None) -> Iterator[bytes]:
    """All records of two shards in turn, as far as both go."""
    shards = [tfrecord_iterator(str(path), None, (i, 2), compression) for i in (0, 1)]
    while True:
        for shard in shards:
            try:
                yield bytes(next(shard))
            except StopIteration:
                return


WAYS: list[Callable[[Path, str | None], Iterator[bytes]]] = [
    by_iterator,
    by_stream,
    by_reader,
    by_pread,
    by_batches,
    by_shards,
]


@pytest.mark.parametrize("way", WAYS)
def test_records_then_the_error(
    cases: list[Case], tmp_path: Path, way: Callable[..., Iterator[bytes]]
) -> None:
    for case in cases:
        path = tmp_path / "case"
        path.write_bytes(bytes.fromhex(case["hex"]))
        expected = case["expected"]
        if expected["error"] == "unsupported_compression":
            with pytest.raises(ValueError, match="SNAPPY"):
                way(path, case["compression"]).__next__()
            continue
        for compression in {case["compression"], None} if case["compression"] else {"", None}:
            if compression is None and expected["error"] in (
                "bad_stream",
                "truncated_stream",
                "trailing_garbage",
            ):
                continue  # without the name these may be something else
            records, error = read_all(way(path, compression))
            assert (error is None) == (expected["error"] is None), (case["name"], error)
            if not case["compression"]:
                assert len(records) == expected["records"], case["name"]
            elif error is None:
                assert len(records) == expected["records"], case["name"]
            else:
                assert len(records) <= max(expected["records"], 3), case["name"]
            for number, record in enumerate(records):
                assert record == PAYLOADS[number % 3] or case["name"] == "crc_zero", case["name"]
            if error is not None:
                assert isinstance(error, CorruptRecordError | CompressionError)
                # Of a damaged stream read in small pieces the damaged content may be seen before the damage.
                allowed = {expected["error"]} | ({"bad_payload_crc"} if way is by_stream else set())
                assert error.reason in allowed, case["name"]
                if way is not by_stream:
                    assert error.path == str(path), case["name"]
                if not case["compression"]:
                    assert error.record == expected["records"], case["name"]
                    assert error.offset == expected["record_offset"], case["name"]


def test_positions_of_a_damaged_file(cases: list[Case], tmp_path: Path) -> None:
    """Without an index: damage of a length shows when positions are needed, of a payload when it is read."""
    for case in cases:
        expected = case["expected"]
        if case["compression"] or expected["error"] is None:
            continue
        path = tmp_path / "case"
        path.write_bytes(bytes.fromhex(case["hex"]))
        reader = TFRecordReader(path, record_type="bytes")
        with pytest.raises(CorruptRecordError) as caught:
            len(reader)
            reader.read(range(len(reader)))
        assert (caught.value.reason, caught.value.record) == (expected["error"], expected["records"]), case[
            "name"
        ]
        assert (caught.value.path, caught.value.offset) == (str(path), expected["record_offset"])


def test_unverified_reading_checks_bounds_only(cases: list[Case], tmp_path: Path) -> None:
    path = tmp_path / "case"
    for case in cases:
        if case["name"] in ("bad_payload_crc_first", "bad_payload_crc_last"):
            path.write_bytes(bytes.fromhex(case["hex"]))
            assert list(tfrecord_iterator(path, verify=False)) == PAYLOADS
            assert list(TFRecordReader(path, verify=False, record_type="bytes")) == PAYLOADS
            assert TFRecordReader(path, verify=False, record_type="bytes").read([2, 0]).to_list() == [
                b"xyz",
                b"alpha",
            ]
        if case["name"].startswith("huge_length"):
            path.write_bytes(bytes.fromhex(case["hex"]))
            with pytest.raises(CorruptRecordError) as caught:
                list(TFRecordReader(path, verify=False, record_type="bytes"))
            assert (caught.value.record, caught.value.offset, caught.value.path) == (1, 21, str(path))
