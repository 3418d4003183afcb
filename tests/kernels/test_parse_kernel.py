"""What only the compiled decoder promises: its bounds, its vectors, its threads."""

from __future__ import annotations

import random

import numpy as np
import pytest
from messages import example, floats, ints

from indexer.errors import DecodeError, FeatureKindError
from tfrecord._kernels.engine import engine
from tfrecord.parse import parse_example


@pytest.mark.skipif(engine != "native", reason="the reference has no SIMD")
@pytest.mark.parametrize(
    "sizes", [[1], [2], [3], [8], [9], [10], [1, 2], [1, 9, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]
)
def test_varints_at_every_simd_level(sizes: list[int]) -> None:
    from tfrecord._kernels import decode, wire_reference

    choices = random.Random(sum(sizes))
    for count in [*range(30), 63, 64, 65, 71, 72, 73, 79, 80, 81, 200, 1000]:
        chosen = [choices.choice(sizes) for _ in range(count)]
        values = [
            choices.randrange(1 << 7 * (n - 1) if n > 1 else 0, min(1 << 7 * n, 1 << 64)) for n in chosen
        ]
        run = b"".join(_varint(value) for value in values)
        expected = np.array(values, np.uint64).view(np.int64)
        assert (
            wire_reference._values(
                b"\x0a" + _varint(len(run)) + run, 3, [(0, len(run) + 1 + len(_varint(len(run))))], 4
            ).tolist()
            == expected.tolist()
        )
        for level in range(decode.BEST_LEVEL + 1):
            got = decode.decode_varints(run, level)
            assert isinstance(got, np.ndarray) and got.tolist() == expected.tolist()
            for bad in (run + b"\x80", run + b"\x80" * 10 + b"\1" + bytes(80), b"\xff" * 11 + run):
                status = decode.decode_varints(bad, level)
                assert isinstance(status, int) and status in (1, 6)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.skipif(engine != "native", reason="a contract of the kernel")
def test_payloads_outside_their_buffers_are_refused() -> None:
    from tfrecord._kernels import decode

    decoder = decode.Decoder(None)
    zero, ids = np.zeros(1, np.int64), np.zeros(1, np.int32)
    for offset, length, number in [
        (0, 5, 0),
        (-1, 1, 0),
        (5, 0, 0),
        (2**62, 2**62, 0),
        (0, -1, 0),
        (0, 1, 1),
        (0, 1, -1),
    ]:
        with pytest.raises(ValueError, match="payload 0 lies outside its buffer"):
            decoder.decode((b"abcd",), zero + offset, zero + length, ids + np.int32(number))
    with pytest.raises(ValueError, match="an array of 1 is needed"):
        decoder.decode((b"",), zero, np.zeros(2, np.int64), None)
    with pytest.raises(ValueError, match="SIMD level"):
        decode.Decoder(None, False, 99)


@pytest.mark.skipif(engine != "native", reason="the reference holds one record at a time")
def test_a_flood_of_keys_is_refused_before_it_fills_the_memory() -> None:
    flood = b"".join(example(**{f"{i:x}": None}) for i in range(40))
    records = [flood] + [b""] * (2**24 // 39)
    with pytest.raises(DecodeError, match="too many different features") as caught:
        parse_example(records)
    assert caught.value.record == 0


def test_threads_report_the_same_of_two_conflicts_in_one_record() -> None:
    rows = [example(a=ints(1))] * 32 + [example(b=ints(1))] * 40  # the second thread meets no int in a
    rows.append(example(a=floats(1.0), b=floats(1.0)))
    told = set()
    for threads in (1, 2):
        with pytest.raises(FeatureKindError, match="before") as failure:
            parse_example(rows, num_threads=threads)
        assert failure.value.record == 72
        told.add(str(failure.value))
    assert len(told) == 1
