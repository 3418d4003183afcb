"""Decompressing what is left of a damaged file."""

from __future__ import annotations

import gzip
import io
import zlib

import pytest

from tfrecord._repair.inflate import inflate

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB, 5 * MIB + 300])
@pytest.mark.parametrize("members", [1, 3])
def test_a_stream_that_swells_at_its_end(size: int, members: int) -> None:
    # Its last bytes give more than is taken at once, and the trailer is left as input.
    out = io.BytesIO()
    assert inflate(memoryview(gzip.compress(bytes(size)) * members), "gzip", out) == []
    assert out.getvalue() == bytes(size * members)
    out = io.BytesIO()
    assert inflate(memoryview(zlib.compress(bytes(size))), "zlib", out) == []
    assert out.getvalue() == bytes(size)


def test_after_damage_the_next_member_is_found() -> None:
    first, second = gzip.compress(bytes(5 * MIB)), gzip.compress(b"x" * 100)
    out = io.BytesIO()
    damages = inflate(memoryview(first[:-20] + second), "gzip", out)
    assert [damage.reason for damage in damages] == ["bad_stream"]
    assert out.getvalue().startswith(bytes(4 * MIB)) and out.getvalue().endswith(b"x" * 100)


def test_it_can_be_called_away() -> None:
    class Enough(Exception):
        pass

    calls = 0

    def look() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Enough

    out = io.BytesIO()
    with pytest.raises(Enough):
        inflate(memoryview(gzip.compress(bytes(20 * MIB))), "gzip", out, look)
    assert 0 < len(out.getvalue()) <= 3 * MIB


def members_of(data: bytes) -> tuple[bytes, int]:
    out = io.BytesIO()
    damages = inflate(memoryview(data), "gzip", out)
    return out.getvalue(), len(damages)


HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"
DENSE = {
    "magics": b"\x1f\x8b\x08",
    "headers": HEAD,
    "fixed codes": HEAD + b"\x03\x05",
    "a little text": HEAD + zlib.compress(b"abc")[2:5],
    "stored blocks": HEAD + b"\0\x08\0\xf7\xff12345678",
    "cut codes": HEAD + zlib.compress(b"some text, some text" * 9)[2:30],
    "endless names": b"\x1f\x8b\x08\x18aaaaaa",
}


@pytest.mark.parametrize("name", DENSE)
def test_what_is_dense_with_member_magics(name: str) -> None:
    """What is whole behind it is found, in a time that does not grow with what follows each magic."""
    good = gzip.compress(b"x" * 100)
    made, num_damages = members_of(good[:-4] + DENSE[name] * 40_000 + good)
    assert made.startswith(b"x" * 100) and made.endswith(b"x" * 100)
    assert 1 <= num_damages <= 10_000


def gzip_with(flags: int, extra: bytes) -> bytes:
    packed = gzip.compress(b"content", mtime=0)
    return packed[:3] + bytes([flags]) + packed[4:10] + extra + packed[10:]


@pytest.mark.parametrize(
    ("flags", "extra"),
    [
        (1, b""),
        (2, b"\x12\x34"),
        (4, b"\x05\x00extra"),
        (8, b"name\0"),
        (16, b"comment\0"),
        (31, b"\x03\x00abcname\0comment\0\x12\x34"),
        (8, b"n" * 5000 + b"\0"),
        (4, b"\xff\xff" + bytes(65535)),
    ],
)
def test_headers_with_fields(flags: int, extra: bytes) -> None:
    member = gzip_with(flags, extra)
    assert members_of(member) == (b"content", 0)
    assert members_of(gzip.compress(b"a") + member) == (b"acontent", 0)
    assert members_of(b"junk" + member) == (b"content", 1)
    for kept in range(1, 10):
        assert members_of(gzip.compress(b"a") + member[:kept]) == (b"a", 1)


def test_all_that_comes_before_the_damage_is_kept() -> None:
    text = b" ".join(b"%d" % (i * i * 7919) for i in range(30_000))
    packed = bytearray(gzip.compress(text))
    for place in (300, 70_000, len(packed) - 40):
        broken = bytearray(packed)
        broken[place : place + 8] = b"\xff" * 8
        made, num_damages = members_of(bytes(broken))
        inflater = zlib.decompressobj(31)
        before = inflater.decompress(bytes(broken[:place]))
        assert made.startswith(before) and num_damages >= 1


def test_zeros_after_the_last_member_are_padding() -> None:
    assert members_of(gzip.compress(b"a") + bytes(3 * MIB)) == (b"a", 0)
    assert members_of(gzip.compress(b"a") + bytes(3 * MIB) + b"x") == (b"a", 1)
