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
