"""Payloads that are not valid messages are left out of a batch where that is wanted; the others stay."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.errors import DecodeError
from tfrecord._columns.decoding import as_payloads, decode_batch
from tfrecord._kernels.engine import decode_kernel
from tfrecord._writing.encoder import encode_example, encode_sequence_example
from tfrecord.columns import BytesColumn
from tfrecord.features import FixedLenFeature, compile_features
from tfrecord.reader import TFRecordReader
from tfrecord.writer import TFRecordWriter

SPECS: dict[str, Any] = {
    "every feature": None,
    "ragged": {"a": "int", "b": "float", "c": "byte"},
    "dense": {
        "a": FixedLenFeature((), "int64"),
        "b": FixedLenFeature((2,), "float32"),
        "c": FixedLenFeature((), "bytes"),
    },
}


def good(number: int) -> bytes:
    return encode_example(
        {"a": (number, "int"), "b": ([number, 0.5], "float"), "c": (b"%d" % number, "byte")}
    )


def bad(draw: random.Random) -> bytes:
    """What is not a message: cut, with a key that nothing else has, or with rubbish at its end."""
    whole = encode_example({"a": (7, "int"), f"own{draw.randrange(9)}": (7, "int"), "c": (b"x", "byte")})
    return draw.choice([whole[:-1], whole + b"\xff", b"\x00", whole + b"\x0a\x05\x0a\x02\xff\xff\x12"])


def check(rows: list[bytes], damaged: list[int], spec: Any, threads: int, lists: bool = False) -> None:
    plan = compile_features(spec)
    others = [row for place, row in enumerate(rows) if place not in damaged]
    lengths = np.array([len(row) for row in rows], np.int64)
    for payloads in (as_payloads(rows), BytesColumn([b"".join(rows)], np.cumsum(lengths) - lengths, lengths)):
        found: list[DecodeError] = []
        sequence_plan = compile_features(None) if lists else None
        batch = decode_batch(payloads, plan, sequence_plan=sequence_plan, num_threads=threads, bad=found)
        assert [error.record for error in found] == damaged
        assert batch.num_rows == len(others)
        expected = decode_batch(as_payloads(others), plan, sequence_plan=sequence_plan)
        assert batch.to_list() == expected.to_list()


@given(st.integers(0, 2**32), st.sampled_from(sorted(SPECS)), st.sampled_from([0.0, 0.05, 0.5, 1.0]))
def test_all_others_are_decoded(seed: int, spec: str, share: float) -> None:
    draw = random.Random(seed)
    damaged = [place for place in range(40) if draw.random() < share]
    rows = [bad(draw) if place in damaged else good(place) for place in range(40)]
    check(rows, damaged, SPECS[spec], 1)


@pytest.mark.parametrize("spec", SPECS)
def test_in_batches_for_several_threads(spec: str) -> None:
    rows = [good(number) + b"\x1a\xd8\x36" + bytes(7000) for number in range(300)]
    rows[17] = rows[299] = b"\xff"
    check(rows, [17, 299], SPECS[spec], 3)


def test_of_sequence_examples() -> None:
    rows = [
        encode_sequence_example({"a": (number, "int")}, {"l": ([[number], [1, 2]][: number % 3], "int")})
        for number in range(30)
    ]
    rows[3] = rows[3][:-1]
    rows[20] = rows[20] + rows[21] + b"\x12\x05\x0a\x03\x0a\x01z\x00"
    check(rows, [3, 20], None, 1, lists=True)


def test_rows_of_failures_count_what_was_left_out() -> None:
    rows = [b"\xff", good(1), b"\xff", encode_example({"a": ([1, 2], "int")})]
    decoder = decode_kernel.Decoder((("a", 3, (), None),))
    failure, *_ = decoder.decode((*rows,), None, None, None, 1, [])
    assert failure is not None and failure[:3] == (22, 3, "a")


@pytest.mark.parametrize(
    "last", [b"\xff", b"\n\x11\n\x0f\n\x01a\x12\n\x1a\x08\n\x06\xff\xff\xff\xff\xff\xff"]
)
def test_a_reader_that_skips(tmp_path: Any, last: bytes) -> None:
    path = tmp_path / "some.tfrecord"
    with TFRecordWriter(path) as writer:
        for number in range(100):
            writer.write_bytes(last if number in (0, 50, 99) else good(number))
    reader = TFRecordReader(path, record_type="example", on_error="skip", features={"a": "int"})
    expected = [number for number in range(100) if number not in (0, 50, 99)]
    assert [row["a"].tolist() for row in reader] == [[number] for number in expected]
    assert reader.read(range(100))["a"].to_list() == [[number] for number in expected]
    assert sum(len(batch["a"]) for batch in reader.batches(33)) == 97
    assert reader.num_skipped == 3
