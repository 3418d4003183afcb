from __future__ import annotations

import functools
import gzip
import io
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from compressed import PACKERS, framed, payloads

from indexer.errors import CompressionError
from indexer.framing import frame_record
from indexer.inputstream import open_stream

DATA = b"".join(frame_record(b"%d" % number * 30) for number in range(300))


def test_a_stream_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(DATA))
    with open_stream(path) as stream:
        assert (stream.path, stream.compression) == (str(path), "gzip")
        assert stream.read(30) + stream.read() == DATA
        assert stream.read(5) == b"" and stream.position == len(DATA)
    with pytest.raises(FileNotFoundError):
        open_stream(tmp_path / "absent")
    with pytest.raises(TypeError, match="path or a binary file"):
        open_stream(3)
    with pytest.raises(TypeError, match="binary mode"):
        open_stream(io.StringIO("text")).read(1)


def test_an_object_of_the_caller_stays_open() -> None:
    source = io.BytesIO(DATA)
    with open_stream(source) as stream:
        stream.read(10)
    assert not source.closed


def ends(stored: bytes, kind: str, limit: int) -> tuple[bytes, Any]:
    """What a stream gives, and its error."""
    found = bytearray()
    with open_stream(io.BytesIO(stored), kind) as stream:
        try:
            while piece := stream.read_some(limit):
                found += piece
        except CompressionError as error:
            return bytes(found), (error.reason, error.offset, error.detail)
    return bytes(found), None


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("limit", [77, 1 << 20])
def test_isal_and_zlib_agree(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On good streams, cut ones, and ones with reserved header flags or a wrong trailer."""
    pytest.importorskip("isal")
    rng = random.Random(name)
    stored, kind = PACKERS[name](framed(payloads(rng, 300_000)), rng), "zlib" if name == "zlib" else "gzip"
    trailer, flags = bytearray(stored), bytearray(stored)
    trailer[-1] ^= 1
    flags[3 if kind == "gzip" else 1] ^= 0x80 if kind == "gzip" else 1
    cuts = [stored[: rng.randrange(len(stored))] for _ in range(20)]
    cases = [stored, bytes(trailer), bytes(flags), stored + b"x", *cuts]
    fast = [ends(case, kind, limit) for case in cases]
    monkeypatch.setattr("indexer.inputstream.fast_zlib", lambda: None)
    assert fast == [ends(case, kind, limit) for case in cases]


def member(data: bytes, flags: int, long: int = 3, wrong: int = 0) -> bytes:
    """A gzip member whose header has the parts that the flags name (RFC 1952), of ``long`` bytes each."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    if flags & 4:
        head += struct.pack("<H", long) + b"x" * long
    head += (b"n" * long + b"\0") * (flags >> 3 & 1) + (b"c" * long + b"\0") * (flags >> 4 & 1)
    if flags & 2:
        head += struct.pack("<H", (zlib.crc32(head) & 0xFFFF) ^ wrong)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


@functools.cache
def filler(size: int) -> bytes:
    """A member of this size."""
    data = random.Random(size).randbytes(size)
    made = member(data[: 2 * size - len(member(data, 0))], 0)
    assert len(made) == size
    return made


@pytest.mark.parametrize("flags", range(0, 32, 2))
@pytest.mark.parametrize("long", [0, 3, 300, 600, 3000])
def test_headers_of_members(flags: int, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a piece that was read ends: isal misreads some headers that come in pieces."""
    stored = member(DATA, flags, long) * 3
    assert ends(stored, "gzip", 1 << 20) == (DATA * 3, None)
    for inside in (5, 12, 15, 20):
        found, error = ends(filler((256 << 10) - inside) + stored, "gzip", 1 << 20)
        assert error is None and found.endswith(DATA * 3)
    damaged = member(DATA, flags, long, wrong=1)
    fast = ends(stored + damaged, "gzip", 1 << 20)
    monkeypatch.setattr("indexer.inputstream.fast_zlib", lambda: None)
    assert fast == ends(stored + damaged, "gzip", 1 << 20)
    assert (fast[1] is not None) is bool(flags & 2)
