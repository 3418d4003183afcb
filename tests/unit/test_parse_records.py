"""Single records and sequences, and what kind a record is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from messages import example, floats, ints, sequence, strings

from indexer.errors import DecodeError, FeatureKindError
from tfrecord import parse
from tfrecord._columns.decoding import decode_batch, decode_record
from tfrecord._kernels.record_type import classify
from tfrecord.features import FixedLenFeature, RaggedFeature, VarLenFeature, compile_features
from tfrecord.parse import (
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)

pytestmark = pytest.mark.kernels

# ---- single records ----------------------------------------------------------------------------------


def test_one_record() -> None:
    record = example(
        i=ints(2**40, -1),
        f=floats(0.5),
        one=strings(b"a\0"),
        two=strings(b"a\0\0", b""),
        none=None,
        e=strings(),
    )
    got = parse_single_example(record)
    assert got["i"].tolist() == [2**40, -1] and got["i"].dtype == np.int64
    assert got["f"].tolist() == [0.5] and got["f"].dtype == np.float32
    assert got["i"].flags.owndata and got["i"].flags.writeable
    assert got["one"] == b"a\0"
    assert got["two"].dtype == object and got["two"].tolist() == [b"a\0\0", b""]
    assert got["none"] is None
    assert got["e"].dtype == object and len(got["e"]) == 0
    wanted = parse_single_example(record, {"none": "float", "absent": "bytes", "e": "byte"})
    assert wanted["none"].dtype == np.float32 and wanted["absent"].dtype == object
    assert len(wanted["none"]) == len(wanted["absent"]) == len(wanted["e"]) == 0
    assert parse_single_example(record, ["absent"]) == {"absent": None}


def test_one_record_by_specs() -> None:
    record = example(a=ints(5), v=floats(1, 2), s=strings(b"x", b"y"))
    got = parse_single_example(
        record,
        {
            "a": FixedLenFeature((), "int32"),
            "v": FixedLenFeature((2, 1), "float"),
            "s": FixedLenFeature((2,), "bytes"),
            "d": FixedLenFeature((2,), "bytes", "d"),
            "t": FixedLenFeature((), "bytes", b"t"),
            "n": FixedLenFeature((), "float64", 0.1),
            "r": RaggedFeature("uint8"),
        },
    )
    assert got["a"].shape == () and got["a"] == 5 and got["a"].dtype == np.int32
    assert got["v"].shape == (2, 1) and got["s"].tolist() == [b"x", b"y"]
    assert got["d"].tolist() == [b"d", b"d"] and got["t"] == b"t" and got["n"] == 0.1
    assert got["r"].dtype == np.uint8 and len(got["r"]) == 0


def test_missing_keys_by_the_lineage_rule() -> None:
    record = example(a=ints(1), none=None)
    plan = compile_features({"a": "int", "none": "int", "d": FixedLenFeature((), "int64", 3)})
    got: Any = decode_record(record, plan)
    assert got["d"] == 3 and len(got["none"]) == 0
    with pytest.raises(KeyError, match="feature 'b': is missing") as caught:
        decode_record(record, compile_features(["a", "b"], required=True))
    assert caught.value.record == 0  # type: ignore[attr-defined]
    with pytest.raises(KeyError, match="feature 's'"):
        decode_record(sequence({}, {}), compile_features(None), compile_features(["s"], required=True))


# ---- sequences ---------------------------------------------------------------------------------------


def test_sequences() -> None:
    records = [
        sequence({"id": ints(1)}, {"t": [ints(1, 2), ints(), None, ints(3)], "w": [strings(b"x")]}),
        sequence({"id": ints(2)}, {"t": []}),
        sequence({}, {"w": [strings(b"y", b"z"), strings()]}),
    ]
    batch = parse_sequence_example(
        records, {"id": FixedLenFeature((), "int64", 0)}, {"t": "int", "w": "bytes"}
    )
    assert batch.context["id"].tolist() == [1, 2, 0]
    assert batch.feature_lists["t"].to_list() == [[[1, 2], [], [], [3]], [], []]
    assert batch.feature_lists["w"].to_list() == [[[b"x"]], [], [[b"y", b"z"], []]]
    assert batch.feature_lists.present["t"].tolist() == [True, True, False]
    assert parse_sequence_example(records, {"id": FixedLenFeature((), "int64", 0)}).feature_lists.equals(
        batch.feature_lists
    )
    context, lists = parse_single_sequence_example(records[0])
    assert context["id"].tolist() == [1]
    assert [step.tolist() for step in lists["t"]] == [[1, 2], [], [], [3]] and lists["w"] == [b"x"]


def test_dense_steps() -> None:
    records = [
        sequence({}, {"t": [ints(1, 2), ints(3, 4)]}),
        sequence({}, {"t": []}),
        sequence({}, {"t": [ints(5, 6)]}),
    ]
    batch = parse_sequence_example(records, None, {"t": FixedLenFeature((2,), "int32")})
    steps = batch.feature_lists["t"]
    assert steps.values.shape == (3, 2) and steps.values.dtype == np.int32
    assert steps.to_list() == [[[1, 2], [3, 4]], [], [[5, 6]]]
    bad = sequence({}, {"t": [ints(1, 2), ints(1)]})
    for spec in (FixedLenFeature((2,), "int64"), FixedLenFeature((2,), "int32", 0)):
        with pytest.raises(DecodeError, match="step 1 of this feature list: has 1 values, not 2") as caught:
            parse_sequence_example([*records, bad], None, {"t": spec})
        assert (caught.value.record, caught.value.key) == (3, "t")
    with pytest.raises(DecodeError, match="does not fit int8") as caught:
        parse_sequence_example(
            [*records, sequence({}, {"t": [ints(1), ints(300)]})], None, {"t": VarLenFeature("int8")}
        )
    assert caught.value.record == 3
    one = parse_single_sequence_example(records[0], None, {"t": FixedLenFeature((2,), "int16")})[1]
    assert [step.tolist() for step in one["t"]] == [[1, 2], [3, 4]] and one["t"][0].dtype == np.int16


def test_steps_of_different_kinds() -> None:
    bad = sequence({}, {"t": [ints(1), floats(1)]})
    for features in (None, ["t"], {"t": "int"}):
        for run in (
            lambda: parse_sequence_example([sequence({}, {}), bad], None, features),  # noqa: B023
            lambda: parse_single_sequence_example(bad, None, features),  # noqa: B023
        ):
            with pytest.raises(FeatureKindError, match="of kind float") as caught:
                run()
            assert caught.value.key == "t"


def test_a_sequence_read_as_an_example() -> None:
    record = sequence({"id": ints(1)}, {"t": [ints(1)]})
    assert parse_example([record]).to_list() == [{"id": [1]}]
    assert classify(record).name == "SEQUENCE"


def test_columns_of_a_plan() -> None:
    payloads = parse.as_payloads([sequence({"id": ints(1)}, {"t": [ints(2)]})])
    plan, lists = compile_features({"id": "int"}), compile_features({"t": "int"})
    batch: Any = decode_batch(payloads, plan, sequence_plan=lists, columns=["t"])
    assert list(batch.context) == [] and batch.feature_lists["t"].to_list() == [[[2]]]
    batch = decode_batch(payloads, plan, sequence_plan=lists, columns="id")
    assert list(batch.context) == ["id"] and list(batch.feature_lists) == []
    with pytest.raises(KeyError, match="no feature 'x'"):
        decode_batch(payloads, plan, sequence_plan=lists, columns=["x"])
    batch = decode_batch(payloads, compile_features(None), columns=["id"])
    assert batch["id"].to_list() == [[1]]
