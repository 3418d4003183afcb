"""Values become the kinds that readers see, or are refused: feature, what came, what was expected."""

from __future__ import annotations

import array
import collections
import decimal
import fractions
import sys
import types
from typing import Any

import numpy as np
import pytest

from tfrecord import example_pb2
from tfrecord._writing import encoder
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.writer import TFRecordWriter

FIELDS = {"bytes": "bytes_list", "float": "float_list", "int": "int64_list"}


def stored(value: Any, typename: str) -> tuple[str | None, list[Any]]:
    feature = example_pb2.Example.FromString(encode_example({"x": (value, typename)})).features.feature["x"]
    kind = feature.WhichOneof("kind")
    return kind, list(getattr(feature, kind).value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, [3]),
        (-1, [-1]),
        (True, [1]),
        (2**63 - 1, [2**63 - 1]),
        (-(2**63), [-(2**63)]),
        ([], []),
        ((), []),
        ([2**40, -1, 2**63 - 1, -(2**63)], [2**40, -1, 2**63 - 1, -(2**63)]),
        (list(range(300)), list(range(300))),
        ([True, 2, np.int8(3), np.uint64(4), np.bool_(True)], [1, 2, 3, 4, 1]),
        ([[1, 2], [3, 4]], [1, 2, 3, 4]),
        ([(1,), [2]], [1, 2]),
        ([[], []], []),
        (np.array([], np.float64), []),
        (np.int16(-5), [-5]),
        (np.uint64(7), [7]),
        (np.bool_(False), [0]),
        (np.array(9), [9]),
        (np.array([True, False]), [1, 0]),
        (np.arange(6).reshape(2, 3).T, [0, 3, 1, 4, 2, 5]),
        (np.arange(10)[::-3], [9, 6, 3, 0]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.array([1, 2], "<u2"), [1, 2]),
        (np.array([1, -2], ">i8"), [1, -2]),
        (np.array([1, 2**40], object), [1, 2**40]),
        ([np.arange(2), np.arange(2)], [0, 1, 0, 1]),
        (range(3), [0, 1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        (array.array("h", [1, -2]), [1, -2]),
        (np.ma.array([1, 2], mask=[False, False]), [1, 2]),
        (np.zeros((2, 0), np.int64), []),
    ],
)
def test_integers(value: Any, expected: list[int]) -> None:
    assert stored(value, "int") == ("int64_list", expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, [1.5]),
        (3, [3.0]),
        (True, [1.0]),
        (0.1, [float(np.float32(0.1))]),
        ([], []),
        (
            [1.5, 2, True, np.float16(0.5), np.float32(2.5), np.float64(3.5), np.int32(4)],
            [1.5, 2, 1, 0.5, 2.5, 3.5, 4],
        ),
        ([[1.0, 2.0], [3.0, 4.0]], [1, 2, 3, 4]),
        (np.float32(1.25), [1.25]),
        (np.array([1.5, 2.5], ">f8"), [1.5, 2.5]),
        (np.array([1.5, 2.5], ">f4"), [1.5, 2.5]),
        (np.array([1.5, 2.5], np.float16), [1.5, 2.5]),
        (np.array([1, 2], np.uint8), [1, 2]),
        (np.arange(6, dtype=np.float32).reshape(2, 3).T, [0, 3, 1, 4, 2, 5]),
        (np.array(2.5), [2.5]),
        (decimal.Decimal("1.5"), [1.5]),
        (fractions.Fraction(1, 4), [0.25]),
        (array.array("d", [0.5]), [0.5]),
        (1e-60, [0.0]),
        (3.4028235e38, [float(np.finfo(np.float32).max)]),
        ([float("inf"), float("-inf")], [float("inf"), float("-inf")]),
        (np.array([np.inf], np.float64), [float("inf")]),
        (np.longdouble("1.5"), [1.5]),
    ],
)
def test_floats(value: Any, expected: list[float]) -> None:
    assert stored(value, "float") == ("float_list", expected)


def test_nan_is_a_value_and_its_bits_are_kept() -> None:
    assert np.isnan(stored(float("nan"), "float")[1]).all()
    bits = np.array([0x7FC12345, 0xFFC00001], np.uint32)
    assert bits.astype("<u4").tobytes() in encode_example({"x": (bits.view(np.float32), "float")})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a\0\0", [b"a\0\0"]),
        (b"", [b""]),
        ("h\u00e9\U0001f600", ["h\u00e9\U0001f600".encode()]),
        (bytearray(b"x\0"), [b"x\0"]),
        (memoryview(b"abcd")[::2], [b"ac"]),
        (np.bytes_(b"a"), [b"a"]),
        (np.str_("a"), [b"a"]),
        ([], []),
        ([b"a\0\0", "b", bytearray(b"c"), memoryview(b"d")], [b"a\0\0", b"b", b"c", b"d"]),
        (["a", "b"], [b"a", b"b"]),
        (["a", "\u00fc"] * 100, [b"a", "\u00fc".encode()] * 100),
        (np.array(["a", "b\u00fc"]), [b"a", "b\u00fc".encode()]),
        (np.array([b"a", b"bcd"]), [b"a", b"bcd"]),
        (np.array([b"a\0", "s"], object), [b"a\0", b"s"]),
        (np.array("s"), [b"s"]),
        (np.array([]), []),
        ([["a"], ["b"]], [b"a", b"b"]),
    ],
)
def test_byte_strings(value: Any, expected: list[bytes]) -> None:
    assert stored(value, "byte") == ("bytes_list", expected)


@pytest.mark.parametrize("name", ["byte", "bytes", " bytes\t", "int", "int ", "int64", "float", "float32"])
def test_type_names(name: str) -> None:
    kind, _ = stored([], name)
    assert (
        kind == FIELDS[{"byte": "bytes", "int64": "int", "float32": "float"}.get(name.strip(), name.strip())]
    )


class Opaque:
    pass


class Scalar:
    def __index__(self) -> int:
        return 7


def test_objects_with_index_or_items_are_taken() -> None:
    message = example_pb2.Int64List(value=[4, 5])
    assert stored(Scalar(), "int") == ("int64_list", [7])
    assert stored([Scalar(), 1], "int") == ("int64_list", [7, 1])
    assert stored(message.value, "int") == ("int64_list", [4, 5])
    assert stored([np.array(1), 2], "int") == ("int64_list", [1, 2])


def test_an_array_of_another_library_is_taken_by_its_protocol() -> None:
    class Foreign:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.arange(3)

    class Refusing:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            raise RuntimeError("it lives elsewhere")

    assert stored(Foreign(), "int") == ("int64_list", [0, 1, 2])
    with pytest.raises(
        TypeError, match=r"feature 'x': got .*it lives elsewhere.*, expected an array in CPU memory"
    ):
        stored(Refusing(), "int")


REFUSED = [
    (None, "int", TypeError, "None"),
    (1.5, "int", TypeError, "float 1.5"),
    (1.0, "int", TypeError, "float 1.0"),
    (np.float32(1), "int", TypeError, "float32 1.0"),
    ([1, 1.0], "int", TypeError, "float 1.0 at position 1"),
    (np.array([1.0]), "int", TypeError, "an array of float64, shape (1,)"),
    ("3", "int", TypeError, "str of length 1"),
    (b"ab", "int", TypeError, "bytes of length 2"),
    (bytearray(b"ab"), "float", TypeError, "bytearray of length 2"),
    ("1.5", "float", TypeError, "str of length 3"),
    ([1, None], "int", TypeError, "None at position 1"),
    ([1.0, None], "float", TypeError, "None at position 1"),
    (1j, "float", TypeError, "complex 1j"),
    (np.complex64(1), "float", TypeError, "complex64"),
    (np.datetime64("2020-01-01"), "float", TypeError, "datetime64"),
    (np.array(["2020-01-01"], "M8[D]"), "int", TypeError, "an array of datetime64[D]"),
    (3, "byte", TypeError, "int 3"),
    (None, "byte", TypeError, "None"),
    (["a", None], "byte", TypeError, "None at position 1"),
    (np.zeros(3, np.uint8), "byte", TypeError, "an array of uint8, shape (3,)"),
    ({1, 2}, "int", TypeError, "set of length 2"),
    ({"a": 1}, "int", TypeError, "dict of length 1"),
    (iter([1]), "int", TypeError, "list_iterator"),
    (Opaque(), "byte", TypeError, "Opaque"),
    (Opaque, "float", TypeError, "type"),
    (2**63, "int", ValueError, "int 9223372036854775808"),
    (-(2**63) - 1, "int", ValueError, "int -9223372036854775809"),
    ([0, 2**63], "int", ValueError, "int 9223372036854775808 at position 1"),
    ([10**5000], "int", ValueError, "an int of 16610 bits at position 0"),
    (np.array([1, 2**63], np.uint64), "int", ValueError, "int 9223372036854775808 at position 1"),
    (np.uint64(2**63), "int", ValueError, "int 9223372036854775808"),
    (1e39, "float", ValueError, "float 1e+39"),
    ([0.0, -1e39], "float", ValueError, "float -1e+39 at position 1"),
    (np.array([[0.0], [1e300]]), "float", ValueError, "float 1e+300 at position 1"),
    (10**400, "float", ValueError, "an int of 1329 bits"),
    (decimal.Decimal("1e400"), "float", ValueError, "Decimal"),
    (np.longdouble("1e400"), "float", ValueError, f"{np.longdouble.__name__} 1e+400"),
    ([[1], [2, 3]], "int", ValueError, "a ragged nested list"),
    ([1, [2]], "int", ValueError, "a ragged nested list"),
    ([np.arange(2), np.arange(3)], "int", ValueError, "a ragged nested list"),
    ([["a"], ["b", "c"]], "byte", ValueError, "a ragged nested list"),
    ("\ud800", "byte", ValueError, "str with a lone surrogate"),
    (["a", "\udc80"], "byte", ValueError, "str with a lone surrogate at position 1"),
    (np.ma.array([1, 2], mask=[False, True]), "int", ValueError, "an array with masked values"),
    (3, "int32x", ValueError, "the type name 'int32x'"),
    (3, "", ValueError, "the type name ''"),
    (3, int, TypeError, "type as the type name"),
    (3, None, TypeError, "None as the type name"),
]


@pytest.mark.parametrize(("value", "name", "error", "got"), REFUSED)
def test_one_message_for_what_is_refused(value: Any, name: Any, error: type[Exception], got: str) -> None:
    if isinstance(value, np.longdouble) and np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long double is double here")
    with pytest.raises(error) as caught:
        encode_example({"good": (1, "int"), "x\u00fc": (value, name)})
    text = str(caught.value)
    assert text.startswith(f"feature 'x\\xfc': got {got}"), text
    assert ", expected " in text


@pytest.mark.parametrize("spec", [5, "text", b"xx", None, (1,), (1, "int", 2), [], {"a": 1}, ["a", "b"]])
def test_a_value_without_a_type_name(spec: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^feature 'x': got .*, expected .*'int'"):
        encode_example({"x": spec})


def test_a_pair_may_be_a_list() -> None:
    assert encode_example({"x": [[1, 2], "int"]}) == encode_example({"x": ([1, 2], "int")})


@pytest.mark.parametrize(
    ("key", "error"), [(1, TypeError), (b"x", TypeError), (None, TypeError), ("a\ud800", ValueError)]
)
def test_names_are_text(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^feature .*: got .* name.*, expected "):
        encode_example({key: (1, "int")})


@pytest.mark.parametrize("datum", [None, [("x", (1, "int"))], "x", 3])
def test_a_datum_is_a_mapping(datum: Any) -> None:
    with pytest.raises(TypeError, match=r"^the record: got .*, expected a dict"):
        encode_example(datum)
    with pytest.raises(TypeError, match=r"^the feature lists: got .*, expected a dict"):
        encode_sequence_example({}, datum)


def test_any_mapping_will_do() -> None:
    datum = types.MappingProxyType({"b": (1, "int"), "a": (2, "int")})
    assert encode_example(datum) == encode_example(dict(datum))


def test_no_message_quotes_bytes() -> None:
    with pytest.raises(TypeError) as caught:
        encode_example({"x": (b"secret" * 100, "int")})
    assert "secret" not in str(caught.value)


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match=r"^feature 'x': got a list nested more than 64 deep"):
        encode_example({"x": (loop, "int")})


def test_bytes_are_minimal_and_in_dict_order() -> None:
    assert encode_example({}) == b"\x0a\x00"
    assert encode_example({"": ([], "int")}).hex(" ") == "0a 08 0a 06 0a 00 12 02 1a 00"
    assert encode_example({"b": (300, "int"), "a": (b"\xff", "byte")}).hex(" ") == (
        "0a 19 0a 0b 0a 01 62 12 06 1a 04 0a 02 ac 02 0a 0a 0a 01 61 12 05 0a 03 0a 01 ff"
    )
    assert (
        encode_example({"f": (1.0, "float")}).hex(" ") == "0a 0f 0a 0d 0a 01 66 12 08 12 06 0a 04 00 00 80 3f"
    )
    assert encode_sequence_example({}, {}) == b"\x0a\x00\x12\x00"


def test_bytes_are_as_long_as_protobufs() -> None:
    datum = {
        "a" * 200: (list(range(-5, 3000, 7)), "int"),
        "b": (np.arange(3000.0), "float"),
        "c": (["x" * 127, "y" * 128, ""], "byte"),
        "d": ([], "byte"),
    }
    encoded = encode_example(datum)
    message = example_pb2.Example.FromString(encoded)
    assert len(message.SerializeToString()) == len(encoded)


def test_sequences_keep_steps_and_empty_ones() -> None:
    encoded = encode_sequence_example(
        {"length": (3, "int")},
        {
            "tokens": ([[0, 1], [], (2,), 5, np.arange(2)], "int"),
            "labels": ([0, 1, 1], "int "),
            "rows": (np.arange(6.0).reshape(3, 2), "float"),
            "words": ([["a", b"b\0"], "c", []], "byte"),
            "none": ([], "float"),
            "empty": (np.zeros((2, 0)), "float"),
            "flat": (np.array([1, 2], np.int32), "int"),
            "objects": (np.array([[1], [2, 3]], dtype=object), "int"),
        },
    )
    message = example_pb2.SequenceExample.FromString(encoded)
    assert len(message.SerializeToString()) == len(encoded)
    assert list(message.context.feature["length"].int64_list.value) == [3]
    lists = message.feature_lists.feature_list

    def steps(key: str, field: str) -> list[list[Any]]:
        assert all(step.WhichOneof("kind") == field for step in lists[key].feature)
        return [list(getattr(step, field).value) for step in lists[key].feature]

    assert steps("tokens", "int64_list") == [[0, 1], [], [2], [5], [0, 1]]
    assert steps("labels", "int64_list") == [[0], [1], [1]]
    assert steps("rows", "float_list") == [[0, 1], [2, 3], [4, 5]]
    assert steps("words", "bytes_list") == [[b"a", b"b\0"], [b"c"], []]
    assert steps("none", "float_list") == []
    assert steps("empty", "float_list") == [[], []]
    assert steps("flat", "int64_list") == [[1], [2]]
    assert steps("objects", "int64_list") == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("value", "name", "error", "text"),
    [
        (3, "int", TypeError, "feature 'x': got int 3, expected a list of steps"),
        ("abc", "byte", TypeError, "feature 'x': got str of length 3, expected a list of steps"),
        (b"abc", "byte", TypeError, "feature 'x': got bytes of length 3, expected a list of steps"),
        (
            np.array(1),
            "int",
            TypeError,
            "feature 'x': got an array of int64, shape (), expected a list of steps",
        ),
        (None, "int", TypeError, "feature 'x': got None, expected a list of steps"),
        ([[1], None], "int", TypeError, "feature 'x', step 1: got None, expected an integer"),
        ([[1], [2, 2.5]], "int", TypeError, "feature 'x', step 1: got float 2.5 at position 1, expected"),
        ([[1], [2**63]], "int", ValueError, "feature 'x', step 1: got int 9223372036854775808 at position 0"),
        ([[[1], [2, 3]]], "int", ValueError, "feature 'x', step 0: got a ragged nested list"),
        (
            np.ma.array([1, 2], mask=[True, False]),
            "int",
            ValueError,
            "feature 'x': got an array with masked values",
        ),
    ],
)
def test_steps_that_are_refused(value: Any, name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        encode_sequence_example({}, {"x": (value, name)})
    assert str(caught.value).startswith(text)


def test_an_example_of_two_gibibytes_is_refused() -> None:
    huge = bytes(2**31)  # zero pages that nothing touches
    with pytest.raises(
        ValueError,
        match=r"^feature 'x': got a record of at least 214748\d+ bytes, expected at most 2147483647",
    ):
        encode_example({"a": (1, "int"), "x": (huge, "byte")})
    with pytest.raises(ValueError, match=r"^feature 'x': got a record of at least"):
        encode_sequence_example({}, {"x": ([huge], "byte")})


def test_the_limit_is_on_the_whole_record(monkeypatch: pytest.MonkeyPatch) -> None:
    datum = {"a": (b"x" * 50, "byte"), "b": (b"y" * 50, "byte")}
    size = len(encode_example(datum))
    monkeypatch.setattr(encoder, "MAX_EXAMPLE_BYTES", size)
    assert len(encode_example(datum)) == size
    monkeypatch.setattr(encoder, "MAX_EXAMPLE_BYTES", size - 1)
    with pytest.raises(ValueError, match=f"got a record of {size} bytes, expected at most"):
        encode_example(datum)
    monkeypatch.setattr(encoder, "MAX_EXAMPLE_BYTES", 100)
    with pytest.raises(ValueError, match="^feature 'b': got a record of at least"):
        encode_example(datum)


def test_the_same_rules_behind_the_lineages_helpers() -> None:
    datum = {"x": ([1, 2], "int")}
    assert TFRecordWriter.serialize_tf_example(datum) == encode_example(datum)
    assert TFRecordWriter.serialize_tf_sequence_example(datum, datum) == encode_sequence_example(datum, datum)
    assert TFRecordWriter.masked_crc(b"") == (0xA282EAD8).to_bytes(4, "little")


def test_a_value_may_write_while_it_is_converted() -> None:
    inner: list[bytes] = []

    class Nested:
        def __index__(self) -> int:
            inner.append(encode_example({"y": ([1] * 1000, "int")}))
            return 5

    outer = example_pb2.Example.FromString(encode_example({"x": ([Nested()] * 3, "int")}))
    assert list(outer.features.feature["x"].int64_list.value) == [5, 5, 5]
    assert len(inner) == 3


def test_nothing_is_leaked() -> None:
    value, text = 1 << 40, "some text that is long enough to count"
    numbers = [value] * 10
    datum = {"i": (numbers, "int"), "s": ([text, b"x"], "byte"), "f": (np.arange(4.0), "float")}
    before = [sys.getrefcount(item) for item in (value, text, numbers)]
    for _ in range(100):
        encode_example(datum)
        with pytest.raises(TypeError):
            encode_example({**datum, "bad": (None, "int")})
    assert [sys.getrefcount(item) for item in (value, text, numbers)] == before
