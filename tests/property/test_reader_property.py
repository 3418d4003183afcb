"""Any records in any files, damaged in any way: every way of reading gives what a plain reading gives."""

from __future__ import annotations

import gzip
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import crc32c
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.errors import CorruptRecordError, TFRecordError
from indexer.framing import frame_record
from tfrecord.loaders import tfrecord_iterator
from tfrecord.reader import TFRecordReader

payloads = st.lists(st.binary(max_size=60), max_size=30)
COMPRESSIONS: list[Callable[[bytes], bytes]] = [bytes, gzip.compress, zlib.compress]


def masked(data: bytes) -> int:
    value = crc32c.crc32c(data)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def plain_reading(data: bytes) -> tuple[list[tuple[int, bytes]], list[tuple[int, int, str]]]:
    """(number, payload) of the good, (number, offset, reason) of the others, by the rules of the format."""
    good: list[tuple[int, bytes]] = []
    bad: list[tuple[int, int, str]] = []
    at = number = 0
    while at < len(data):
        if len(data) - at < 12:
            bad.append((number, at, "truncated_header"))
            break
        length, length_crc = struct.unpack_from("<QI", data, at)
        if masked(data[at : at + 8]) != length_crc:
            bad.append((number, at, "bad_length_crc"))
            break
        if length > len(data) - at - 16:
            bad.append((number, at, "truncated_record"))
            break
        payload = data[at + 12 : at + 12 + length]
        if masked(payload) != struct.unpack_from("<I", data, at + 12 + length)[0]:
            bad.append((number, at, "bad_payload_crc"))
        else:
            good.append((number, payload))
        at += 16 + length
        number += 1
    return good, bad


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """Frames with a few bytes changed, cut out or put in."""
    data = bytearray(b"".join(map(frame_record, draw(payloads))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "drop", "insert"])):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 20))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=20))
    return bytes(data)


@given(st.lists(payloads, min_size=1, max_size=4), st.sampled_from(COMPRESSIONS), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_whole_files(
    files: list[list[bytes]], compress: Callable[[bytes], bytes], mmap: bool, data: st.DataObject
) -> None:
    everything = [payload for file in files for payload in file]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(number) for number in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            path.write_bytes(compress(b"".join(map(frame_record, file))))
        reader = TFRecordReader(paths, record_type="bytes", mmap=mmap)
        assert list(reader) == everything
        assert len(reader) == len(everything)
        count = len(everything)
        asked = data.draw(st.lists(st.integers(-count, count - 1), max_size=40)) if count else []
        assert reader.read(asked).to_list() == [everything[position] for position in asked]
        assert [reader[position] for position in asked] == [everything[position] for position in asked]
        view = reader.select(asked)
        assert list(view) == [everything[position] for position in asked]
        size = data.draw(st.integers(1, 12))
        batches = [batch.to_list() for batch in reader.batches(size)]
        assert batches == [everything[at : at + size] for at in range(0, count, size)]
        shuffled = [payload for batch in reader.batches(size, shuffle=True) for payload in batch]
        assert sorted(shuffled) == sorted(everything)
        shards = data.draw(st.integers(1, 7))
        for i in range(shards):
            found = [bytes(view) for view in tfrecord_iterator(paths[0], None, (i, shards))]
            assert found == files[0][i::shards]


@given(damaged_files(), st.booleans(), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_damaged_files(content: bytes, mmap: bool, size: int, shards: int) -> None:
    good, bad = plain_reading(content)
    first = bad[0] if bad else None
    before = [payload for number, payload in good if first is None or number < first[0]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(content)
        # Which compression it is, is said: some damaged bytes look like the beginning of a zlib stream.
        reader = TFRecordReader(path, record_type="bytes", mmap=mmap, compression_type="")

        def check(error: TFRecordError) -> None:
            assert isinstance(error, CorruptRecordError)
            assert (error.path, error.record, error.offset, error.reason) == (str(path), *(first or ()))

        found: list[bytes] = []
        try:
            for record in reader:
                found.append(record)
            assert first is None
        except TFRecordError as error:
            check(error)
        assert found == before

        found = []
        try:
            for batch in reader.batches(size):
                found.extend(batch.to_list())
            assert first is None
        except TFRecordError as error:
            check(error)
        assert found == before

        kept = [payload for _, payload in good]
        skipping = TFRecordReader(path, record_type="bytes", mmap=mmap, on_error="skip", compression_type="")
        assert list(skipping) == kept
        assert [payload for batch in skipping.batches(size) for payload in batch] == kept
        assert skipping.read(np.arange(len(skipping))).to_list() == kept
        assert skipping.num_skipped == len(bad)
        parts = []
        for i in range(shards):
            parts.append(
                [bytes(view) for view in tfrecord_iterator(path, None, (i, shards), "", on_error="skip")]
            )
        assert parts == [[payload for number, payload in good if number % shards == i] for i in range(shards)]


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_at_all(content: bytes) -> None:
    """Nothing but the library's own errors comes out, whatever the content looks like."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(content)
        for verify in (True, False):
            reader = TFRecordReader(path, record_type="bytes", verify=verify)
            for way in (lambda r=reader: list(r), lambda r=reader: r.read(range(len(r)))):
                try:
                    way()
                except TFRecordError as error:
                    assert str(path) in str(error)


@given(payloads, st.sampled_from([gzip.compress, zlib.compress]), st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_streams(
    records: list[bytes], compress: Callable[[bytes], bytes], data: st.DataObject
) -> None:
    """Some of the first records, then an error; where damage is skipped, some of them in order."""
    content = bytearray(compress(b"".join(map(frame_record, records))))
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[at:]
    else:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    name = "GZIP" if compress is gzip.compress else "ZLIB"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(content)
        reader = TFRecordReader(path, record_type="bytes", compression_type=name)
        found: list[bytes] = []
        failed = False
        try:
            for record in reader:
                found.append(record)
        except TFRecordError as error:
            failed = True
            assert str(path) in str(error)
        assert found == records[: len(found)]
        # Some bits mean nothing (a time, a name, what fills the last byte); a file of no bytes is no records.
        assert failed or found == records or not content
        skipping = TFRecordReader(path, record_type="bytes", compression_type=name, on_error="skip")
        for kept in (list(iter(skipping)), skipping.read(range(len(skipping))).to_list()):
            remaining = iter(records)
            assert all(record in remaining for record in kept)
