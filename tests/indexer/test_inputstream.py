from __future__ import annotations

import gzip
import io
import random
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
