"""The rule that decides what the records of a file are, and its two classifiers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import example, floats, ints, sequence, strings

from tfrecord._kernels import decode_reference
from tfrecord._kernels.codes import RecordClass
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord._kernels.record_type import (
    MESSAGES,
    SAMPLE,
    check_record_type,
    classify,
    has_lists,
    is_valid,
    payload_looks_like,
    sample_places,
    settle,
)

EXAMPLE = example(x=ints(1))
SEQUENCE = sequence({"c": ints(1)}, {"s": [ints(1)]})
FOREIGN = bytes.fromhex("12020801")
INVALID = bytes.fromhex("ffff67617262616765")
NEUTRAL = b""
NEUTRAL_LISTS = sequence({}, {"s": []})


def entry(key: bytes, feature: bytes, extra: bytes = b"") -> bytes:
    """An Example of one entry with any key."""
    inner = b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(feature)]) + feature + extra
    features = b"\x0a" + bytes([len(inner)]) + inner
    return b"\x0a" + bytes([len(features)]) + features


ONE_INT = b"\x1a\x03\x0a\x01\x07"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (EXAMPLE, RecordClass.EXAMPLE),
        (example(x=floats()), RecordClass.EXAMPLE),
        (example(x=strings(b"\xff\0")), RecordClass.EXAMPLE),
        (example(x=None, y=ints(1)), RecordClass.EXAMPLE),
        (entry("größer".encode(), ONE_INT), RecordClass.EXAMPLE),
        (entry(b"", ONE_INT), RecordClass.EXAMPLE),
        (EXAMPLE + b"\x18\x05", RecordClass.EXAMPLE),  # one clean feature outweighs an unknown field
        (SEQUENCE, RecordClass.SEQUENCE),
        (sequence({}, {"s": [ints()]}), RecordClass.SEQUENCE),
        (sequence({"c": ints(1)}, {"s": []}), RecordClass.SEQUENCE),
        (NEUTRAL, RecordClass.NEUTRAL),
        (b"\x0a\x00", RecordClass.NEUTRAL),
        (b"\x12\x00", RecordClass.NEUTRAL),
        (example(x=None), RecordClass.NEUTRAL),
        (NEUTRAL_LISTS, RecordClass.NEUTRAL_LISTS),
        (sequence({}, {"s": [None]}), RecordClass.NEUTRAL_LISTS),
        (b"\x12\x02\x08\x01", RecordClass.FOREIGN),
        (b"\x12\x02hi", RecordClass.FOREIGN),
        (b"\x0a\x02\x08\x01", RecordClass.FOREIGN),
        (b"\x18\x05", RecordClass.FOREIGN),
        (b"\x1a\x05hello", RecordClass.FOREIGN),
        (entry(b"a\x1f", ONE_INT), RecordClass.FOREIGN),
        (entry(b"a\x1f", b""), RecordClass.FOREIGN),
        (entry(b"a", b"\x20\x01"), RecordClass.FOREIGN),
        (INVALID, RecordClass.INVALID),
        (entry(b"\xff", ONE_INT), RecordClass.INVALID),
        (EXAMPLE[:-1], RecordClass.INVALID),
    ],
    ids=str,
)
def test_what_one_payload_says(payload: bytes, expected: RecordClass) -> None:
    assert classify(payload) is expected
    assert classify(memoryview(payload)) is expected
    assert is_valid(payload) is (expected is not RecordClass.INVALID)
    assert has_lists(payload) is (expected in (RecordClass.SEQUENCE, RecordClass.NEUTRAL_LISTS))


pieces = st.sampled_from(
    [EXAMPLE, SEQUENCE, FOREIGN, INVALID, NEUTRAL_LISTS, entry(b"\x01", ONE_INT), entry(b"a", b"\x08\x01")]
    + [example(x=None), example(x=floats(1.0), y=strings(b""))]
    + [b"\x0a\x00", b"\x13\x14", b"\x18\x05", b"\x0d\0\0\0\0"]
)


@given(st.lists(pieces, max_size=4).map(b"".join), st.data())
def test_the_kernel_agrees_with_plain_python(payload: bytes, data: st.DataObject) -> None:
    if payload and data.draw(st.booleans()):
        at, byte = data.draw(st.integers(0, len(payload) - 1)), data.draw(st.integers(0, 255))
        payload = payload[:at] + bytes([byte]) + payload[at + 1 :]
    assert kernel.record_class(payload) == decode_reference.record_class(payload)


@given(st.binary(max_size=40))
def test_the_kernel_agrees_on_any_bytes(payload: bytes) -> None:
    assert kernel.record_class(payload) == decode_reference.record_class(payload)


@pytest.mark.parametrize(
    ("num_for", "num_against", "name"),
    [
        *[(1, 0, "example"), (1, 1, "example"), (1, 2, "bytes"), (0, 1, "bytes"), (0, 2, "bytes")],
        *[(7, 1, "example"), (13, 2, "bytes"), (14, 2, "example"), (15, 2, "example")],
        *[(56, 8, "example"), (55, 9, "bytes"), (63, 1, "example"), (1, 63, "bytes")],
    ],
)
@pytest.mark.parametrize("against", [FOREIGN, INVALID], ids=["foreign", "invalid"])
def test_how_many_may_speak_against(num_for: int, num_against: int, name: str, against: bytes) -> None:
    forwards = [EXAMPLE] * num_for + [against] * num_against
    for payloads in (forwards, forwards[::-1]):
        found = settle(payloads)
        assert (found.name, found.num_for, found.num_against) == (name, num_for, num_against)
        if not num_against:
            assert found.warning == ""
            continue
        words = "is not a" if num_against == 1 else "are not"
        many = f"{num_against} of the {num_for + num_against} records looked at {words} tf.train.Example"
        assert many in found.warning
        assert ("given as bytes" in found.warning) is (name == "bytes")


def test_neutral_payloads_count_for_nobody() -> None:
    assert settle([]) == settle([NEUTRAL] * 5) == ("example", 0, 0, "")
    assert settle([NEUTRAL, NEUTRAL_LISTS]).name == "sequence_example"
    assert settle([NEUTRAL] * 60 + [FOREIGN]).name == "bytes"
    assert settle([NEUTRAL_LISTS, EXAMPLE]).name == "sequence_example"
    found = settle([NEUTRAL] * 20 + [EXAMPLE, FOREIGN, FOREIGN])
    assert found.name == "bytes" and "2 of the 3 records" in found.warning


def test_one_record_with_feature_lists_makes_them_sequences() -> None:
    assert settle([EXAMPLE] * 10 + [SEQUENCE]).name == "sequence_example"
    assert "tf.train.SequenceExample" in settle([SEQUENCE] * 10 + [FOREIGN]).warning


def test_at_most_64_are_looked_at() -> None:
    looked = []

    def payloads() -> Any:
        for number in range(1000):
            looked.append(number)
            yield EXAMPLE

    assert settle(payloads()).num_for == len(looked) == SAMPLE == 64


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 66, 100, 10_000])
def test_places_of_the_sample(count: int) -> None:
    places = sample_places(count)
    assert places == sorted(set(places)) and len(places) == min(count, 64)
    if count:
        assert places[0] == 0 and places[-1] == count - 1
        assert any(count / 3 <= place <= 2 * count / 3 for place in places) or count < 3


def test_declared_types() -> None:
    assert settle([FOREIGN] * 3, "example") == settle([], "example")
    assert settle([EXAMPLE], "bytes").name == "bytes" and settle([EXAMPLE], "bytes").warning == ""
    assert settle([EXAMPLE], MESSAGES).name == "example"
    assert settle([SEQUENCE, EXAMPLE], MESSAGES).name == "sequence_example"
    found = settle([FOREIGN] * 3 + [EXAMPLE], MESSAGES)
    assert found.name == "example" and "3 of the 4 records" in found.warning
    assert settle([EXAMPLE] * 3 + [INVALID], MESSAGES).warning == ""  # that one will be an error


@pytest.mark.parametrize("name", ["exmaple", "Bytes", None, 3, "messages"])
def test_unknown_types(name: Any) -> None:
    with pytest.raises(ValueError, match="it is one of auto, example, sequence_example, bytes"):
        check_record_type(name)


def elwc(*parts: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2, len(data)]) + data for number, data in parts)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (elwc((1, EXAMPLE), (1, EXAMPLE), (2, EXAMPLE)), "ExampleListWithContext"),
        (elwc((2, EXAMPLE), (1, EXAMPLE)), "ExampleListWithContext"),
        (elwc((1, EXAMPLE)), "ExampleListWithContext"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x02\x22\x08" + bytes(8), "TensorProto"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "JPEG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "PNG"),
        (b'{"a": 1}', "JSON"),
        (b"a few words", "text"),
        (b"\xfe\xfd\xfc", ""),
        (b"", ""),
    ],
)
def test_other_messages_are_named(payload: bytes, text: str) -> None:
    found = payload_looks_like(payload)
    assert text in found and bool(found) is bool(text)
