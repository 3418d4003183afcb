from __future__ import annotations

import gzip
import io
import os
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trickling import Trickle

from indexer import streams
from indexer.errors import (
    ChecksumError,
    CompressionError,
    TFRecordError,
    TruncatedRecordError,
)
from indexer.files import open_data
from indexer.framing import FRAME_OVERHEAD, VERIFY_LENGTHS, frame_header, frame_record
from indexer.streams import iter_chunks, open_stream

PAYLOADS = [b"alpha", b"", b"x" * 5000, *(b"%d" % number * 30 for number in range(300))]
FRAMES = [frame_record(payload) for payload in PAYLOADS]
DATA = b"".join(FRAMES)


def payloads_of(chunks: Iterator[streams.Chunk]) -> list[bytes]:
    found: list[bytes] = []
    for chunk in chunks:
        assert chunk.first_record == len(found)
        for offset, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
            found.append(bytes(chunk.buffer[offset + 12 : offset + 12 + length]))
    return found


def all_until_error(source: Any, **options: Any) -> tuple[list[bytes], TFRecordError | None]:
    found: list[bytes] = []
    try:
        for chunk in iter_chunks(source, **options):
            for offset, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
                found.append(bytes(chunk.buffer[offset + 12 : offset + 12 + length]))
    except TFRecordError as error:
        return found, error
    return found, None


def member(data: bytes) -> bytes:
    return gzip.compress(data)


PIECES = [DATA[i : i + 997] for i in range(0, len(DATA), 997)]
PIECE_REST = b"".join(PIECES[2:])
STORED: dict[str, tuple[bytes, str]] = {
    "plain": (DATA, ""),
    "gzip": (member(DATA), "gzip"),
    "zlib": (zlib.compress(DATA), "zlib"),
    "gzip of members that cut records": (
        b"".join(member(DATA[i : i + 997]) for i in range(0, len(DATA), 997)),
        "gzip",
    ),
    "gzip with empty members": (
        member(b"") + member(DATA[:40]) + member(b"") * 3 + member(DATA[40:]) + member(b""),
        "gzip",
    ),
    "gzip and zeros": (member(DATA) + bytes(100_000), "gzip"),
    "zlib with flush marks": (b"", "zlib"),
}
_deflater = zlib.compressobj()
STORED["zlib with flush marks"] = (
    b"".join(_deflater.compress(frame) + _deflater.flush(zlib.Z_FULL_FLUSH) for frame in FRAMES)
    + _deflater.flush(),
    "zlib",
)


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("way", ["path", "no map", "object", "trickle", "data", "data unmapped", "stream"])
@pytest.mark.parametrize("chunk_size", [1, 64, 1 << 20])
def test_everything_is_found_however_it_is_stored(
    name: str, way: str, chunk_size: int, tmp_path: Path
) -> None:
    stored, compression = STORED[name]
    path = tmp_path / "a"
    path.write_bytes(stored)
    makers: dict[str, Callable[[], Any]] = {
        "path": lambda: path,
        "no map": lambda: path,
        "object": lambda: io.BytesIO(stored),
        "trickle": lambda: Trickle(stored),
        "data": lambda: open_data(path),
        "data unmapped": lambda: open_data(path, mmap=False),
        "stream": lambda: open_stream(path),
    }
    if compression and way.startswith("data"):
        pytest.skip("a DataFile is of plain data")
    for name_given in (None, compression.upper()):
        source = makers[way]()
        chunks = iter_chunks(source, compression_type=name_given, chunk_size=chunk_size, mmap=way != "no map")
        assert payloads_of(chunks) == PAYLOADS
        if hasattr(source, "close"):
            source.close()


def test_chunks_of_a_map_are_views_of_it_and_others_are_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    for mmap in (True, False):
        chunks = list(iter_chunks(path, chunk_size=1000, mmap=mmap))
        assert len(chunks) > 3
        place = 0
        for chunk in chunks:
            assert chunk.buffer.readonly
            assert chunk.base_offset + int(chunk.offsets[0]) == place
            place = chunk.base_offset + int(chunk.offsets[-1]) + FRAME_OVERHEAD + int(chunk.lengths[-1])
        assert place == len(DATA)
        assert payloads_of(iter(chunks)) == PAYLOADS


def test_a_start_further_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    start = (len(FRAMES[0] + FRAMES[1]), 2)
    for source in (path, open_data(path, mmap=False), io.BytesIO(DATA), io.BytesIO(member(DATA))):
        chunks = list(iter_chunks(source, start=start))
        assert chunks[0].first_record == 2
        assert chunks[0].base_offset + int(chunks[0].offsets[0]) == start[0]
        assert sum(len(chunk.offsets) for chunk in chunks) == len(PAYLOADS) - 2
    with pytest.raises(ValueError, match="beyond the end"):
        list(iter_chunks(io.BytesIO(DATA), start=(len(DATA) + 1, 9)))


def test_max_records() -> None:
    chunks = list(iter_chunks(io.BytesIO(DATA), max_records=7))
    assert {len(chunk.offsets) for chunk in chunks[:-1]} == {7}
    assert payloads_of(iter(chunks)) == PAYLOADS


def test_a_pipe_is_not_waited_for_when_few_records_are_asked_for() -> None:
    reading, writing = os.pipe()
    os.write(writing, FRAMES[0])
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        chunks = iter_chunks(pipe, max_records=1)
        first = next(chunks)
        assert first.lengths.tolist() == [5]

        def more() -> None:
            os.write(writing, FRAMES[1])
            os.close(writing)

        thread = threading.Thread(target=more)
        thread.start()
        assert next(chunks).lengths.tolist() == [0]
        thread.join()
        assert list(chunks) == []


# ---- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("kind", ["payload", "length", "cut"])
def test_good_records_come_first(kind: str, mmap: bool, tmp_path: Path) -> None:
    record = 100
    offset = sum(map(len, FRAMES[:record]))
    data = bytearray(DATA)
    if kind == "cut":
        del data[offset + 20 :]
    else:
        data[offset + (14 if kind == "payload" else 3)] ^= 1
    path = tmp_path / "a"
    path.write_bytes(data)
    found, error = all_until_error(path, mmap=mmap, chunk_size=3000)
    assert found == PAYLOADS[:record]
    expected = {"payload": "bad_payload_crc", "length": "bad_length_crc", "cut": "truncated_record"}[kind]
    assert isinstance(error, TruncatedRecordError if kind == "cut" else ChecksumError)
    assert (error.path, error.record, error.offset, error.reason) == (str(path), record, offset, expected)

    errors: list[TFRecordError] = []
    found, none = all_until_error(path, mmap=mmap, chunk_size=3000, on_damage=errors.append)
    assert none is None
    assert [(e.record, e.offset, e.reason) for e in errors] == [(record, offset, expected)]  # type: ignore[attr-defined]
    assert found == PAYLOADS[:record] + (PAYLOADS[record + 1 :] if kind == "payload" else [])


@pytest.mark.parametrize("source", ["map", "stream", "gzip"])
def test_numbers_after_skipped_records(source: str, tmp_path: Path) -> None:
    data = bytearray(DATA)
    bad = [0, 1, 5, len(PAYLOADS) - 1]
    for record in bad:
        data[sum(map(len, FRAMES[: record + 1])) - 1] ^= 1
    path = tmp_path / "a"
    path.write_bytes(member(bytes(data)) if source == "gzip" else data)
    errors: list[Any] = []
    numbers: list[int] = []
    for chunk in iter_chunks(path, mmap=source == "map", on_damage=errors.append):
        for number, length in enumerate(chunk.lengths.tolist(), chunk.first_record):
            assert length == len(PAYLOADS[number])
            numbers.append(number)
    assert [error.record for error in errors] == bad
    assert numbers == [number for number in range(len(PAYLOADS)) if number not in bad]
    found, error = all_until_error(path, mmap=source == "map", verify=VERIFY_LENGTHS)
    assert error is None and len(found) == len(PAYLOADS)


def test_what_the_callback_raises_comes_out(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(error: TFRecordError) -> None:
        raise Enough from error

    with pytest.raises(Enough):
        list(iter_chunks(io.BytesIO(DATA[:-1]), on_damage=stop))


def test_every_cut_of_a_gzip_stream_is_an_error() -> None:
    stored = member(b"".join(FRAMES[:2])) + member(b"".join(FRAMES[2:5]))
    whole = {0, len(member(b"".join(FRAMES[:2]))), len(stored)}
    for cut in range(len(stored) + 1):
        found, error = all_until_error(io.BytesIO(stored[:cut]), compression_type="GZIP")
        assert found == PAYLOADS[: len(found)]
        if cut in whole:
            assert error is None
            continue
        assert isinstance(error, CompressionError), cut
        # One byte of the next member's magic may be anything.
        assert error.reason in ("truncated_stream", "trailing_garbage")
        assert (error.record, error.offset) == (len(found), sum(map(len, FRAMES[: len(found)])))


@pytest.mark.parametrize(
    ("stored", "compression", "reason"),
    [
        (member(DATA) + b"garbage", "GZIP", "trailing_garbage"),
        (member(DATA) + b"\0\0\0x", "GZIP", "trailing_garbage"),
        (member(DATA) + b"\0" * 9 + member(DATA), "GZIP", "trailing_garbage"),
        (member(DATA) + b"\x1f", "GZIP", "trailing_garbage"),
        (zlib.compress(DATA) * 2, "ZLIB", "trailing_garbage"),
        (zlib.compress(DATA) + b"\0", "ZLIB", "trailing_garbage"),
        (zlib.compress(DATA)[:-1], "ZLIB", "truncated_stream"),
        (zlib.compress(DATA)[2:-4], "ZLIB", "bad_stream"),
        (zlib.compress(DATA), "GZIP", "bad_stream"),
        (DATA, "GZIP", "bad_stream"),
        (DATA, "ZLIB", "bad_stream"),
        (b"\x1f\x8b\x08\0\0", "GZIP", "truncated_stream"),
        (b"\x1f", "GZIP", "truncated_stream"),
        (b'{"not": "records"}' * 4, "GZIP", "bad_stream"),
    ],
)
def test_streams_that_are_not_what_they_should_be(stored: bytes, compression: str, reason: str) -> None:
    for source in (io.BytesIO(stored), Trickle(stored)):
        found, error = all_until_error(source, compression_type=compression)
        assert found == PAYLOADS[: len(found)]
        assert isinstance(error, CompressionError)
        assert error.reason == reason
        assert error.record == len(found)
        if reason == "trailing_garbage":
            assert found == PAYLOADS
    errors: list[TFRecordError] = []
    all_until_error(io.BytesIO(stored), compression_type=compression, on_damage=errors.append)
    assert [error.reason for error in errors] == [reason]  # type: ignore[attr-defined]


def test_hints() -> None:
    _, error = all_until_error(io.BytesIO(DATA), compression_type="GZIP")
    assert "is not compressed" in str(error)
    _, error = all_until_error(io.BytesIO(zlib.compress(DATA)), compression_type="GZIP")
    assert "zlib" in str(error)
    _, error = all_until_error(io.BytesIO(member(DATA)), compression_type="NONE")
    assert error is not None and error.reason == "bad_length_crc" and "gzip" in str(error)  # type: ignore[attr-defined]
    _, error = all_until_error(io.BytesIO(member(b'{"a": 1, "b": 2}')))
    assert error is not None and "JSON" in str(error)
    _, error = all_until_error(io.BytesIO(b"version https://git-lfs.github.com/spec/v1\n"))
    assert error is not None and "git lfs pull" in str(error)


@pytest.mark.parametrize("compression", [None, "", "GZIP", "ZLIB"])
def test_nothing_is_no_records(compression: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert list(iter_chunks(tmp_path / "a", compression_type=compression)) == []
    assert list(iter_chunks(io.BytesIO(), compression_type=compression)) == []


def test_a_bomb_takes_little_memory() -> None:
    bomb = gzip.compress(bytes(200 << 20))
    tracemalloc.start()
    found, error = all_until_error(io.BytesIO(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [] and error is not None and error.reason == "bad_length_crc"  # type: ignore[attr-defined]
    assert peak < 8 << 20


def test_a_huge_length_takes_little_memory() -> None:
    data = frame_record(b"ok") + frame_header(1 << 40) + bytes(1000)
    for stored in (data, member(data)):
        tracemalloc.start()
        found, error = all_until_error(Trickle(stored))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == [b"ok"]
        assert error is not None and (error.record, error.reason) == (1, "truncated_record")  # type: ignore[attr-defined]
        assert peak < 2 << 20


def test_urls() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/streams-test/a.gz", member(DATA))
    assert payloads_of(iter_chunks("memory://streams-test/a.gz")) == PAYLOADS


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_a_file_that_shrinks_on_the_way(mmap: bool, skip: bool, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    errors: list[Any] = []
    records = end = 0
    with open_data(path, mmap=mmap) as data:
        try:
            for chunk in iter_chunks(data, chunk_size=3000, on_damage=errors.append if skip else None):
                records += len(chunk.offsets)
                end = chunk.base_offset + int(chunk.offsets[-1] + chunk.lengths[-1]) + FRAME_OVERHEAD
                os.truncate(path, 4000)
        except TruncatedRecordError as error:
            errors.append(error)
    assert [error.reason for error in errors] == ["truncated_record"]
    assert "shrank" in errors[0].detail
    assert (errors[0].record, errors[0].offset, errors[0].path) == (records, end, str(path))


@pytest.mark.parametrize("name", ["gzip", "zlib"])
@pytest.mark.parametrize("limit", [1, 700, 1 << 20])
def test_what_comes_before_a_bad_trailer_is_delivered(name: str, limit: int) -> None:
    """zlib gives nothing of the call in which it finds the damage."""
    stored = bytearray(gzip.compress(DATA) if name == "gzip" else zlib.compress(DATA))
    stored[-1] ^= 1
    for source in (io.BytesIO(stored), Trickle(stored)):
        stream = open_stream(source)
        found = bytearray()
        with pytest.raises(CompressionError) as caught:
            while piece := stream.read_some(limit):
                assert len(piece) <= limit
                found += piece
        assert found == DATA
        assert (caught.value.reason, caught.value.offset) == ("bad_stream", len(DATA))
        with pytest.raises(CompressionError, match="bad_stream"):  # it stays so
            stream.read_some(limit)
    for source in (io.BytesIO(stored), Trickle(stored)):
        payloads, error = all_until_error(source)
        assert payloads == PAYLOADS
        assert isinstance(error, CompressionError)
        assert (error.reason, error.record, error.offset) == ("bad_stream", len(PAYLOADS), len(DATA))


def test_records_before_damage_in_the_second_member() -> None:
    half = len(DATA) // 2
    second = bytearray(member(DATA[half:]))
    second[-5] ^= 1
    payloads, error = all_until_error(io.BytesIO(member(DATA[:half]) + second))
    assert payloads == PAYLOADS and isinstance(error, CompressionError)
    assert (error.reason, error.record, error.offset) == ("bad_stream", len(PAYLOADS), len(DATA))


@pytest.mark.parametrize("options", [{"max_records": 0}, {"max_records": -1}, {"start": (-1, 0)}])
def test_options_that_would_never_end(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    for source in (path, io.BytesIO(DATA)):
        with pytest.raises(ValueError, match="max_records must be at least 1"):
            next(iter_chunks(source, **options))


@pytest.mark.parametrize("on_damage", [None, lambda error: None])
def test_a_start_beyond_the_end(on_damage: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(DATA))

    def sources() -> list[Any]:
        return [path, packed, io.BytesIO(DATA), open_data(path), open_data(path, mmap=False)]

    for source in sources():
        with pytest.raises(ValueError, match=f"the start, offset {len(DATA) + 1}, is beyond the end"):
            list(iter_chunks(source, start=(len(DATA) + 1, 9), on_damage=on_damage))
    for source in sources():
        assert list(iter_chunks(source, start=(len(DATA), 9), on_damage=on_damage)) == []
    for mmap in (True, False):
        with pytest.raises(ValueError, match="beyond the end"):
            list(iter_chunks(path, start=(len(DATA) + 1, 9), mmap=mmap))
