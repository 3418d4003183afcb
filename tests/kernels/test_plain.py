"""Decoders of dense numbers only, which give a dict; and the plans that parse functions remember."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from messages import example

from indexer.errors import DecodeError
from tfrecord._kernels.engine import decode_kernel, engine
from tfrecord.encode import encode_example
from tfrecord.features import FixedLenFeature
from tfrecord.parse import parse_example, parse_single_example

REQUEST = (
    ("number", 3, (), None),
    ("pair", 2, (2, 1), None),
    ("nothing", 3, (0,), None),
    ("filled", 2, (), b"\0\0\x80?"),
)


def record(draw: random.Random) -> bytes:
    features: dict[str, Any] = {
        "other": (b"x", "bytes"),
        "number": (draw.randrange(-9, 9), "int"),
        "pair": ([draw.random(), 2.0], "float"),
        "nothing": ([], "int"),
        "filled": ([draw.random()][: draw.randrange(2)], "float"),
    }
    keys = draw.sample(list(features), len(features))
    return encode_example({key: features[key] for key in keys})


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("leave_out", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 400, 9000])
def test_the_dict_holds_what_the_list_holds(count: int, leave_out: bool, threads: int) -> None:
    if engine == "reference" and count > 1000:
        pytest.skip("slow in Python")
    draw = random.Random(count)
    rows = [record(draw) + b"\x1a\x7f" + bytes(127) for _ in range(count)]
    if leave_out and count > 1:
        rows[count // 2] = b"\xff"
    found = []
    for plain in (False, True):
        bad: list[tuple[int, int]] | None = [] if leave_out else None
        decoder = decode_kernel.Decoder(REQUEST, plain=plain)
        failure, features, lists = decoder.decode(tuple(rows), None, None, None, threads, bad)
        assert failure is None and lists is None and features is not None
        found.append((features, bad))
    (present, listed), (present_again, columns) = found[0][0], found[1][0]
    assert isinstance(columns, dict) and list(columns) == [key for key, *_ in REQUEST]
    assert present.tolist() == present_again.tolist() and found[0][1] == found[1][1]
    for key, _, splits, values in listed:
        assert splits is None and columns[key].dtype == values.dtype
        assert columns[key].shape == values.shape and columns[key].tolist() == values.tolist()
        assert columns[key].flags.carray


def test_failures_are_those_of_the_list() -> None:
    rows = (example(number=None), encode_example({"number": ([1, 2], "int")}))
    for row in rows:
        both = [decode_kernel.Decoder(REQUEST[:1], plain=plain) for plain in (False, True)]
        failures = [decoder.decode((row,), None, None, None)[0] for decoder in both]
        assert failures[0] is not None and failures[0] == failures[1]


@pytest.mark.skipif(engine != "native", reason="a contract of the kernel")
@pytest.mark.parametrize(
    "columns",
    [None, (), (("a", 3, None, b""),), (("a", 1, (), None),)],
    ids=["all", "none", "ragged", "bytes"],
)
def test_other_columns_are_not_plain(columns: Any) -> None:
    with pytest.raises(ValueError, match="only dense columns of numbers"):
        decode_kernel.Decoder(columns, plain=True)


def test_arrays_of_many_dimensions() -> None:
    row = encode_example({"a": (list(range(4)), "int")})
    shape = (*(1,) * 20, 2, 1, 2)
    batch = parse_example([row] * 3, {"a": FixedLenFeature(shape, "int64")})
    assert batch["a"].shape == (3, *shape) and batch["a"].ravel().tolist() == [0, 1, 2, 3] * 3
    with pytest.raises(ValueError, match="dimension"):
        parse_example([row], {"a": FixedLenFeature((1,) * 70 + (4,), "int64")})


def test_a_request_that_was_changed_is_read_again() -> None:
    row = encode_example({"a": (1, "int"), "b": (2, "int")})
    request: dict[str, Any] = {"a": "int"}
    for _ in range(2):
        assert list(parse_example([row], request)) == ["a"]
    request["b"] = FixedLenFeature((), "int64")
    assert list(parse_example([row], request)) == ["a", "b"]
    request["b"] = FixedLenFeature((2,), "int64")
    with pytest.raises(DecodeError):
        parse_example([row], request)
    request["b"] = FixedLenFeature((), "int32")
    assert parse_example([row], request)["b"].dtype == np.int32
    del request["a"]
    assert list(parse_single_example(row, request)) == ["b"]
    request.clear()
    assert list(parse_example([row], request)) == ["a", "b"]
    request["b"] = request["a"] = None
    assert list(parse_example([row], request)) == ["b", "a"]
    request["a"] = np.dtype("S3")
    with pytest.raises(ValueError, match="unknown type"):
        parse_example([row], request | {"a": "S3"})


def test_requests_that_come_and_go_do_not_meet() -> None:
    row = encode_example({f"k{number}": (number, "int") for number in range(300)})
    for number in range(300):  # the dicts often have the same id
        batch = parse_example([row], {f"k{number}": FixedLenFeature((), "int64")})
        assert {key: values.tolist() for key, values in batch.items()} == {f"k{number}": [number]}
