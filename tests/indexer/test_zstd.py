from __future__ import annotations

import io
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from compressed import framed, payloads
from trickling import Trickle

from indexer.compression import detect
from indexer.errors import CompressionError, TFRecordError
from indexer.inputstream import open_stream
from indexer.streams import iter_chunks

zstandard = pytest.importorskip("zstandard")

RECORDS = payloads(random.Random(1), 2 << 20)
DATA = framed(RECORDS)


def frame(data: bytes, **options: Any) -> bytes:
    made: bytes = zstandard.ZstdCompressor(**options).compress(data)
    return made


def skippable(size: int, number: int = 3) -> bytes:
    return (0x184D2A50 + number).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)


def without_size(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + packer.flush()


STORED = {
    "frame": frame(DATA),
    "checksum": frame(DATA, write_checksum=True),
    "high level": frame(DATA, level=19),
    "no size": without_size(DATA),
    "frames that cut records": b"".join(frame(DATA[at : at + 70_001]) for at in range(0, len(DATA), 70_001)),
    "empty frames": frame(b"") + frame(DATA) + frame(b"") * 2,
    "frames to skip": frame(DATA[:100])
    + skippable(0)
    + skippable(100_000, 15)
    + frame(DATA[100:])
    + skippable(5),
}


@pytest.mark.parametrize("name", STORED)
def test_content(name: str) -> None:
    stored = STORED[name]
    assert detect(stored) == "zstd"
    for source in (io.BytesIO(stored), Trickle(stored, 977)):
        with open_stream(source) as stream:
            assert stream.compression == "zstd"
            assert stream.read(100_000) + stream.read() == DATA
    with open_stream(io.BytesIO(skippable(9) + stored), "ZSTD") as stream:
        assert stream.read() == DATA


@pytest.mark.parametrize("name", ["checksum", "no size", "frames to skip"])
def test_every_cut_is_an_error(name: str) -> None:
    small = framed([b"abc", b"d" * 500])
    stored = {
        "checksum": frame(small, write_checksum=True),
        "no size": without_size(small),
        "frames to skip": frame(small) + skippable(20),
    }[name]
    whole = {0, len(stored), *([len(frame(small))] if name == "frames to skip" else [])}
    for cut in range(len(stored)):
        with open_stream(io.BytesIO(stored[:cut]), "zstd") as stream:
            if cut in whole:
                stream.read()
                continue
            with pytest.raises(CompressionError) as caught:
                stream.read()
            # The magic of another frame may itself be cut.
            assert caught.value.reason in ("truncated_stream", "trailing_garbage", "bad_stream")


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (frame(DATA) + b"garbage", "trailing_garbage"),
        (frame(DATA) + bytes(8), "trailing_garbage"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "truncated_stream"),
        (b"not zstd at all, at least it does not look like it", "bad_stream"),
        (b"\x28\xb5\x2f\xfd\x00\xff" + b"\x03\x00\x00" * 9, "bad_stream"),  # a window that is too large
        (b"\x28\xb5\x2f\xfd\x20\x02\x01\0\0", "bad_stream"),  # two bytes of content, and an empty block
    ],
    ids=["garbage", "zeros", "no blocks", "text", "a huge window", "too little content"],
)
def test_what_is_no_stream(stored: bytes, reason: str) -> None:
    with open_stream(io.BytesIO(stored), "zstd") as stream, pytest.raises(CompressionError) as caught:
        stream.read()
    assert caught.value.reason == reason


def test_records_before_damage_are_delivered() -> None:
    stored = bytearray(frame(DATA, write_checksum=True))
    stored[len(stored) * 3 // 4] ^= 0xFF
    found: list[bytes] = []
    with pytest.raises(TFRecordError):
        for chunk in iter_chunks(io.BytesIO(bytes(stored))):
            for offset, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
                found.append(bytes(chunk.buffer[offset + 12 : offset + 12 + length]))
    assert len(found) > len(RECORDS) // 4
    assert found == RECORDS[: len(found)]


def test_a_stream_that_swells_takes_little_memory() -> None:
    # 1 GB in 32 KB: blocks of four bytes that repeat a byte 128 Ki times.
    block = ((131072 << 3) | (1 << 1)).to_bytes(3, "little") + b"\0"
    stored = b"\x28\xb5\x2f\xfd\x00\x58" + block * 2000 + ((1 << 3) | 3).to_bytes(3, "little") + b"\0"
    tracemalloc.start()
    size = 0
    with open_stream(io.BytesIO(stored)) as stream:
        while piece := stream.read_some(1 << 20):
            assert len(piece) <= 1 << 20
            size += len(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 2000 * 131072 + 1
    assert peak < 4 << 20


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install 'tfrecord\[zstd\]'"):
        open_stream(io.BytesIO(frame(DATA))).read()
