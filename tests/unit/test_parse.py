from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from messages import example, floats, ints, sequence, strings

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from tfrecord._columns.decoding import decode_record
from tfrecord._kernels.record_type import classify
from tfrecord.columns import BytesColumn, Ragged
from tfrecord.features import FixedLenFeature, VarLenFeature, compile_features
from tfrecord.parse import (
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)

pytestmark = pytest.mark.kernels

# ---- batches -----------------------------------------------------------------------------------------


def test_column_types_follow_the_spec() -> None:
    batch = parse_example(
        [
            example(i=ints(1), f=floats(0.5), b=strings(b"x")),
            example(i=ints(2), f=floats(1.5), b=strings(b"yy")),
        ],
        {"i": "int", "f": FixedLenFeature((), "float"), "b": FixedLenFeature((), "bytes")},
    )
    assert isinstance(batch["i"], Ragged) and batch["i"].to_list() == [[1], [2]]
    assert batch["f"].dtype == np.float32 and batch["f"].tolist() == [0.5, 1.5]
    assert batch["f"].flags.owndata and batch["f"].flags.writeable
    assert isinstance(batch["b"], BytesColumn) and batch["b"].to_list() == [b"x", b"yy"]
    assert list(batch) == ["i", "f", "b"] and batch.num_rows == 2


def test_missing_no_kind_and_empty() -> None:
    batch = parse_example([example(), example(a=None), example(a=ints()), example(a=ints(7))], {"a": "int"})
    assert batch["a"].to_list() == [[], [], [], [7]]
    assert batch.present["a"].tolist() == [False, False, True, True]


def test_defaults_of_dense_columns() -> None:
    records = [
        example(a=ints(0), v=floats(1, 2), s=strings(b"s")),
        example(a=ints(), v=floats(), s=strings()),
        example(),
    ]
    batch = parse_example(
        records,
        {
            "a": FixedLenFeature((), "int64", -1),
            "v": FixedLenFeature((2,), "float", [8, 9]),
            "s": FixedLenFeature((), "bytes", b"none"),
        },
    )
    assert batch["a"].tolist() == [0, -1, -1]
    assert batch["v"].tolist() == [[1, 2], [8, 9], [8, 9]]
    assert batch["s"].to_list() == [b"s", b"none", b"none"]
    assert batch.present["a"].tolist() == [True, True, False]


def test_defaults_beyond_the_stored_types() -> None:
    records = [example(a=ints(3), b=floats(0.5)), example()]
    batch = parse_example(
        records,
        {"a": FixedLenFeature((), "uint64", 2**63), "b": FixedLenFeature((), "float64", 0.1)},
    )
    assert batch["a"].tolist() == [3, 2**63] and batch["a"].dtype == np.uint64
    assert batch["b"].tolist() == [0.5, 0.1]


@pytest.mark.parametrize("values", [None, ints()], ids=["no kind", "empty"])
def test_missing_without_a_default(values: Any) -> None:
    features = {"ok": "int", "a": FixedLenFeature((), "int64")}
    good = example(a=ints(1))
    for bad in (example(), example(a=values)):
        with pytest.raises(KeyError, match="feature 'a'") as caught:
            parse_example([good, good, bad, good, bad], features)
        assert isinstance(caught.value, MissingFeatureError)
        assert (caught.value.key, caught.value.record) == ("a", 2)


def test_wrong_counts() -> None:
    good = example(a=ints(1, 2))
    for dtype, key in (("int64", "a"), ("int8", "a")):
        for default in (None, 0):
            with pytest.raises(
                DecodeError, match=r"'a': has 3 values, not 2 \(VarLenFeature takes"
            ) as caught:
                parse_example([good, example(a=ints(1, 2, 3))], {key: FixedLenFeature((2,), dtype, default)})
            assert caught.value.record == 1


def test_wrong_kinds() -> None:
    for spec in (
        "float",
        FixedLenFeature((), "float"),
        FixedLenFeature((), "float", 0),
        FixedLenFeature((), "float64", 0),
    ):
        with pytest.raises(TypeError, match="feature 'a': is of kind int64, not float") as caught:
            parse_example([example(a=floats(1)), example(a=ints(1))], {"a": spec})
        assert isinstance(caught.value, FeatureKindError)
        assert (caught.value.key, caught.value.record) == ("a", 1)


def test_conflicting_kinds_without_a_request() -> None:
    records = [example(a=ints(1)), example(b=ints(1)), example(a=strings(b"x"))]
    for features in (None, ["a"]):
        with pytest.raises(FeatureKindError, match="of kind bytes, but of kind int64 before") as caught:
            parse_example(records, features)
        assert (caught.value.key, caught.value.record) == ("a", 2)


def test_every_feature_found() -> None:
    batch = parse_example(
        [example(), example(a=ints(1)), example(b=strings(b"x", b""), a=None), example(c=None)]
    )
    assert set(batch) == {"a", "b", "c"}
    assert batch["a"].to_list() == [[], [1], [], []]
    assert batch["b"].to_list() == [[], [], [b"x", b""], []]
    assert batch["c"].to_list() == [[], [], [], []]
    assert batch["c"].values.dtype == object
    assert batch.present["c"].tolist() == [False] * 4


def test_an_empty_batch() -> None:
    features = {
        "r": "int",
        "d": FixedLenFeature((2,), "float32"),
        "b": FixedLenFeature((3,), "bytes"),
        "raw": FixedLenFeature((2, -1), "uint16", raw=True),
        "cast": FixedLenFeature((), "uint8", 3),
    }
    batch = parse_example([], features)
    assert batch.num_rows == 0
    assert batch["d"].shape == (0, 2) and batch["b"].shape == (0, 3)
    assert batch["raw"].shape == (0, 2, 0) and batch["raw"].dtype == np.uint16
    assert batch["cast"].shape == (0,) and len(batch["r"]) == 0
    assert list(parse_example([])) == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64", "bool"])
def test_integers_are_exact_or_refused(dtype: str) -> None:
    most = 1 if dtype == "bool" else min(np.iinfo(dtype).max, 2**63 - 1)
    good = example(a=ints(0, most))
    for spec in (VarLenFeature(dtype), FixedLenFeature((2,), dtype)):
        batch = parse_example([good], {"a": spec})
        assert np.asarray(
            batch["a"].values if isinstance(batch["a"], Ragged) else batch["a"]
        ).ravel().tolist() == [0, most]
        assert parse_single_example(good, {"a": spec})["a"].dtype == dtype
        value = -1 if dtype[0] == "u" else 2**40
        bad = example(a=ints(0, value))
        with pytest.raises(DecodeError, match=f"the value {value} does not fit {dtype}") as caught:
            parse_example([good, good, bad], {"a": spec})
        assert (caught.value.key, caught.value.record) == ("a", 2)
        with pytest.raises(DecodeError, match=f"the value {value} does not fit {dtype}") as caught:
            parse_single_example(bad, {"a": spec})
        assert (caught.value.key, caught.value.record) == ("a", 0)


def test_float16_rounds_and_overflows() -> None:
    batch = parse_example([example(a=floats(0.1, float("inf")))], {"a": VarLenFeature("float16")})
    assert batch["a"].values.tolist() == [np.float16(0.1), np.inf]
    with pytest.raises(DecodeError, match="70000"):
        parse_example([example(a=floats(70000))], {"a": VarLenFeature("float16")})


def test_raw_arrays() -> None:
    stored = np.arange(6, dtype="<u2").reshape(2, 3)
    records = [example(a=strings(stored.tobytes())), example(a=strings((stored + 1).tobytes()))]
    batch = parse_example(records, {"a": FixedLenFeature((2, 3), "uint16", raw=True)})
    assert batch["a"].shape == (2, 2, 3) and batch["a"][1].tolist() == (stored + 1).tolist()
    assert batch["a"].flags.writeable
    batch = parse_example(records, {"a": FixedLenFeature((2, -1), "uint16", raw=True)})
    assert batch["a"].shape == (2, 2, 3)
    with pytest.raises(DecodeError, match="holds 8 bytes, but 12 in the records before") as caught:
        parse_example(
            [*records, example(a=strings(bytes(8)))], {"a": FixedLenFeature((2, -1), "uint16", raw=True)}
        )
    assert (caught.value.key, caught.value.record) == ("a", 2)
    one = parse_single_example(records[0], {"a": FixedLenFeature((-1, 3), np.uint16, raw=True)})
    assert one["a"].tolist() == stored.tolist() and one["a"].flags.writeable
    default = {"a": FixedLenFeature((3,), "uint16", 7, raw=True)}
    assert parse_example([example()], default)["a"].tolist() == [[7, 7, 7]]
    assert parse_single_example(example(), default)["a"].tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("values", "shape", "dtype", "match"),
    [
        (strings(b"abc"), (2,), "uint8", "holds 3 bytes"),
        (strings(b"abc"), (-1,), "uint16", "holds 3 bytes"),
        (strings(b"ab", b"cd"), (2,), "uint8", "has 2 values, not 1"),
        (strings(b"\0\2"), (2,), "bool", "no bool"),
        (ints(1), (2,), "uint8", "is of kind int64"),
    ],
)
def test_bad_raw_arrays(values: Any, shape: Any, dtype: str, match: str) -> None:
    good = example(a=strings(b"\0\1"))
    spec = {"a": FixedLenFeature(shape, dtype, raw=True)}
    with pytest.raises((DecodeError, FeatureKindError), match=match) as caught:
        parse_example([good, example(a=values)], spec)
    assert (caught.value.key, caught.value.record) == ("a", 1)
    with pytest.raises((DecodeError, FeatureKindError), match=match):
        parse_single_example(example(a=values), spec)


def test_several_byte_strings_a_record() -> None:
    records = [example(a=strings(b"x\0", b"")), example(a=strings(b"y", b"zz"))]
    batch = parse_example(records, {"a": FixedLenFeature((2,), "bytes")})
    assert batch["a"].shape == (2, 2) and batch["a"][1].to_list() == [b"y", b"zz"]
    batch = parse_example([*records, example()], {"a": FixedLenFeature((2,), "bytes", [b"p", b"q"])})
    assert batch["a"].to_list()[2] == [b"p", b"q"]


def test_byte_strings_point_into_the_payloads() -> None:
    payload = example(a=strings(b"needle"))
    batch = parse_example([payload, bytearray(payload)], {"a": "bytes"})
    assert batch["a"].values.buffers[0] is payload
    joined = BytesColumn((memoryview(payload + payload),), [0, len(payload)], [len(payload)] * 2)
    batch = parse_example(joined, {"a": FixedLenFeature((), "bytes")})
    assert batch["a"].buffers is joined.buffers and batch["a"].to_list() == [b"needle"] * 2
    assert parse_example(joined[::-1], {"a": "bytes"})["a"].to_list() == [[b"needle"]] * 2


def test_what_is_no_batch() -> None:
    for wrong in (b"abc", "abc", memoryview(b""), None, 3):
        with pytest.raises(TypeError, match="sequence of bytes-likes"):
            parse_example(wrong)
    for wrong_item in ("text", None, 3, memoryview(b"abcd")[::2]):
        with pytest.raises(TypeError, match="item 1 of the batch"):
            parse_example([b"", wrong_item])
    with pytest.raises(TypeError, match="bytes, not str"):
        parse_single_example("text")


def test_the_first_bad_record_is_reported() -> None:
    good, damaged, missing = example(a=ints(1)), example(a=ints(1))[:-1], example()
    features = {"a": FixedLenFeature((), "int64")}
    for order, row in (
        ([good, missing, damaged], 1),
        ([good, damaged, missing], 1),
        ([good] * 99 + [damaged], 99),
    ):
        for threads in (1, 3):
            with pytest.raises((DecodeError, MissingFeatureError)) as caught:
                parse_example(order, features, num_threads=threads)
            assert caught.value.record == row
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.record, error.key) == (99, None)
    assert str(error.at("f.tfrecord", 7)).startswith("f.tfrecord: record 7: ")


def test_threads_give_the_same() -> None:
    records = [example(a=ints(*range(i % 5)), **{f"k{i % 7}": strings(bytes(i))}) for i in range(300)]
    assert parse_example(records, num_threads=4).equals(parse_example(records))
    assert list(parse_example(records, num_threads=4)) == list(parse_example(records))


def test_nothing_leaks_from_an_earlier_record() -> None:
    full = example(a=ints(1), b=floats(2), c=strings(b"x"))
    batch = parse_example(
        [full, example(), full, example(b=floats(3))], {"a": "int", "b": "float", "c": "bytes"}
    )
    assert batch["a"].to_list() == [[1], [], [1], []]
    assert batch["b"].to_list() == [[2], [], [2], [3]]
    assert batch["c"].to_list() == [[b"x"], [], [b"x"], []]


def test_many_features_in_changing_order() -> None:
    rng = np.random.default_rng(0)
    names = [f"feature_{i}" for i in range(200)]
    records, expected = [], []
    for _ in range(20):
        chosen = rng.permutation(200)[: rng.integers(1, 200)]
        # Concatenated messages are one map, which keeps the order of the entries.
        records.append(b"".join(example(**{names[i]: ints(int(i))}) for i in chosen))
        expected.append({names[i]: [int(i)] for i in chosen})
    assert parse_example(records).to_list() == expected
    some = parse_example(records, {names[3]: "int", names[150]: FixedLenFeature((), "int64", -1)})
    assert some[names[3]].to_list() == [row.get(names[3], []) for row in expected]
    assert some[names[150]].tolist() == [row.get(names[150], [-1])[0] for row in expected]


# ---- the same in every path ----------------------------------------------------------------------------


def test_one_raw_scalar_is_an_array_as_other_scalars_are() -> None:
    spec = {"x": FixedLenFeature((), "float32", 2, raw=True)}
    for payload, expected in ((example(x=strings(b"\0\0\x80?")), 1.0), (example(), 2.0)):
        value = parse_single_example(payload, spec)["x"]
        assert isinstance(value, np.ndarray) and value.shape == ()
        assert value == expected


@pytest.mark.parametrize("payload", [example(), example(x=None)])
def test_a_dense_feature_of_no_values_may_be_missing_in_no_path(payload: bytes) -> None:
    spec = {"x": FixedLenFeature((0,), "int64")}
    assert parse_single_example(example(x=ints()), spec)["x"].shape == (0,)
    for parse_it in (lambda: parse_example([payload], spec), lambda: parse_single_example(payload, spec)):
        with pytest.raises(MissingFeatureError, match="'x': (is missing|has no kind)") as failure:
            parse_it()
        assert failure.value.record == 0
    steps = sequence({}, {"x": [ints(), None]})
    for parse_it in (
        lambda: parse_sequence_example([steps], None, spec),
        lambda: parse_single_sequence_example(steps, None, spec),
    ):
        with pytest.raises(
            MissingFeatureError, match="'x': step 1 of this feature list: has no kind"
        ) as failure:
            parse_it()
        assert failure.value.record == 0


def test_damage_is_told_before_a_wrong_kind() -> None:
    cut = b"\x0a\x0c\x0a\x0a\x0a\x01b\x12\x05\x1a\x03\x0a\x01\x80"  # b: a packed run that ends within a value
    payload = example(a=floats(1.0)) + cut
    spec = {"a": "int", "b": "int", "c": FixedLenFeature((), "int64")}
    batches = [example(a=ints(1), b=ints(1), c=ints(1)), payload]
    with pytest.raises(DecodeError, match="cut short") as failure:
        parse_example(batches, spec)
    assert failure.value.record == 1
    with pytest.raises(DecodeError, match="cut short") as failure:
        parse_single_example(payload, spec)
    assert failure.value.record == 0
    with pytest.raises(DecodeError, match="cut short"):
        parse_example([example(a=ints(1)), payload])
    with pytest.raises(DecodeError, match="cut short"):
        decode_record(payload, compile_features({"z": None, "b": None}, required=True))


@pytest.mark.parametrize("payload", [None, 5, [0, 1], "abc", memoryview(example(a=ints(1)))[::2]])
def test_what_is_no_message(payload: Any) -> None:
    for parse_it in (parse_single_example, parse_single_sequence_example, classify):
        with pytest.raises((TypeError, BufferError)):
            parse_it(payload)


@pytest.mark.parametrize("kind", ["S8", np.uint8, np.int64, "U3"])
def test_arrays_that_are_no_batch(kind: Any) -> None:
    """An array of type S has lost the zero bytes at the end; one of numbers is one message by mistake."""
    with pytest.raises(TypeError, match="sequence of bytes-likes, not an array of"):
        parse_example(np.zeros(3, kind))
