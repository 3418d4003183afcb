"""`write` of values as a reader gives them, without type names."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from tfrecord import TFRecordReader, TFRecordWriter

EXAMPLE = {
    "b": (b"x\0", "bytes"),
    "bb": ([b"a", b""], "bytes"),
    "e": ([], "int"),
    "f": ([0.5, 1.5], "float"),
    "i": ([1, -2], "int"),
}
LISTS = {
    "i": ([[1], [], [2, 3]], "int"),
    "none": ([], "int"),
    "s": ([b"a", b"b"], "bytes"),
    "t": ([[b"a", b"c"], b"b"], "bytes"),
}


def encode_example(datum: Any) -> bytes:
    return written(datum)


def encode_sequence_example(context: Any, lists: Any) -> bytes:
    return written(context, lists)


def written(*datum: Any) -> bytes:
    """The payload that `write` makes."""
    target = io.BytesIO()
    TFRecordWriter(target).write(*datum)
    return target.getvalue()[12:-4]


def test_records_of_a_reader_are_written_as_they_were(tmp_path: Path) -> None:
    paths = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    for path, sequence in zip(paths, (None, LISTS), strict=True):
        with TFRecordWriter(path) as writer:
            writer.write(EXAMPLE, sequence)
        with TFRecordReader(path) as reader, TFRecordWriter(tmp_path / "copy") as writer:
            writer.write(reader[0])
            writer.write_batch(reader[0:1])
        if sequence is None:
            with TFRecordReader(tmp_path / "copy") as copy:
                assert [bytes(copy.raw(i)) for i in range(2)] == [encode_example(EXAMPLE)] * 2
        else:
            with TFRecordReader(tmp_path / "copy") as copy:
                assert bytes(copy.raw(0)) == encode_sequence_example(EXAMPLE, LISTS)


def test_rows_of_a_batch_and_scalars() -> None:
    record = encode_example(EXAMPLE)
    assert encode_example(tfrecord.parse_example([record]).row(0)) == record
    assert encode_example({"a": np.int8(3), "b": np.float64(0.5), "c": np.bool_(True), "d": None}) == (
        encode_example({"a": (3, "int"), "b": (0.5, "float"), "c": (1, "int")})
    )
    sequence = encode_sequence_example(EXAMPLE, LISTS)
    assert encode_sequence_example(*tfrecord.parse_sequence_example([sequence]).row(0)) == sequence
    assert encode_sequence_example({}, {"x": [None, None]}) == bytes.fromhex("0a00120b0a090a017812040a000a00")


@pytest.mark.parametrize(
    "value", [1, 1.5, "x", [1, 2], [], (1,), np.array(["2020"], "M8[Y]"), ("x", None), {}]
)
def test_what_does_not_say_its_kind_needs_a_type_name(value: Any) -> None:
    with pytest.raises(TypeError, match="feature 'x'"):
        encode_example({"x": value})


@pytest.mark.parametrize(
    "value", [1, [1, 2], b"xx", "yy", np.array(3), [np.array([1]), np.array([0.5])], None, {"a": 1}]
)
def test_lists_of_no_one_kind_need_a_type_name(value: Any) -> None:
    with pytest.raises(TypeError, match="feature 'x'"):
        encode_sequence_example({}, {"x": value})
