"""What readers, loaders, datasets and indexes take the records of a file for, and features that no record
has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from messages import example, ints, sequence, strings

import tfrecord
from indexer.errors import DecodeError, MissingFeatureError
from tfrecord import FixedLenFeature, RaggedFeature, TFRecordReader, VarLenFeature, build_index

MakeFile = Callable[..., Path]

BAD = bytes.fromhex("ffff67617262616765")
FOREIGN = [bytes.fromhex(text) for text in ("12020801", "12026869", "0a020801", "0a026869")]


@pytest.mark.parametrize(
    ("name", "record_type"),
    [
        *[(f"detext_{name}.tfrecord", "example") for name in ("dataset", "ranking", "hc")],
        *[(name, "example") for name in ("go-tfdata_single.record", "torchdata_example.tfrecord")],
        *[(name, "example") for name in ("ray_iris.tfrecords", "ray_iris.tfrecords.gz")],
        ("min_sequence_no_steps.tfrecord", "sequence_example"),
        *[(f"{name}_elwc.tfrecord", "bytes") for name in ("min", "ranking_eval")],
        *[(f"min_{name}.tfrecord", "bytes") for name in ("field1_submessage", "field2_submessage")],
        *[(f"{name}.tfrecord", "bytes") for name in ("min_string_int_messages", "grain_morris")],
        ("lingvo_en_fr.tfrecord", "bytes"),
        ("nucleus_test_sites.vcf.golden.tfrecord", "bytes"),
        ("tf_wire_vocabulary.tfrecord.gz", "bytes"),
    ],
)
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_files_of_other_software(
    shared: Path, tmp_path: Path, name: str, record_type: str, indexed: bool
) -> None:
    path = tmp_path / name
    path.write_bytes((shared / "data2" / name).read_bytes())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if indexed:
            build_index(path)
            assert tfrecord.load_index(f"{path}.tfindex").metadata["record_type"] == record_type
        with TFRecordReader(path) as reader:
            assert reader.record_type == record_type
            records = list(reader)
    assert all(isinstance(record, bytes | memoryview) for record in records) is (record_type == "bytes")
    assert any("records looked at" in str(one.message) for one in said) is (record_type == "bytes")
    assert any("parse_example_list" in str(one.message) for one in said) is ("elwc" in name)
    with TFRecordReader(path, record_type="bytes") as reader:
        assert len(list(reader)) == len(records)


@pytest.mark.parametrize("payload", FOREIGN, ids=bytes.hex)
def test_other_messages_are_not_empty_examples(make_file: MakeFile, payload: bytes) -> None:
    path = make_file([payload] * 3)
    with (
        pytest.warns(UserWarning, match="3 of the 3 records looked at are not") as said,
        TFRecordReader(path) as reader,
    ):
        assert reader.record_type == reader.schema.record_type == "bytes"
        assert [bytes(record) for record in reader] == [payload] * 3
    assert len(said) == 1


def test_one_damaged_message_among_many(make_file: MakeFile) -> None:
    """It is an error wherever it is read, and changes nothing about the others."""
    payloads = [example(x=ints(i)) for i in range(200)]
    payloads[3] = BAD
    path = make_file(payloads)
    offset = sum(len(payload) + 16 for payload in payloads[:3])
    with pytest.warns(UserWarning, match="1 of the 64 records"), TFRecordReader(path) as reader:
        assert reader.record_type == "example" == reader.schema.record_type
        assert reader.schema.num_invalid == 1 and reader.schema["x"].num_present == 199
        for read in (
            lambda: reader[3],
            lambda: reader.read([2, 3]),
            lambda: list(reader),
            lambda: reader[0:10],
        ):
            with pytest.raises(DecodeError) as caught:
                read()
            found = caught.value
            assert (found.path, found.record, found.offset) == (str(path), 3, offset)
    with pytest.warns(UserWarning, match="1 of the 64"), TFRecordReader(path, on_error="skip") as reader:
        assert sum(len(batch) for batch in reader.batches(50)) == 199
        assert len(list(reader)) == 199
    with pytest.warns(UserWarning, match="1 of 200 records is not a valid message: record 3"):
        build_index(path)
    with pytest.warns(UserWarning, match="1 of the 64"), TFRecordReader(path) as reader:
        assert len(reader) == 200 and reader.schema.num_invalid == 1


def test_features_declare_messages(make_file: MakeFile) -> None:
    warns = partial(pytest.warns, UserWarning, match="3 of the 3 records")
    path = make_file(FOREIGN[2:3] * 3)
    with (
        pytest.warns(UserWarning, match="3 of the 3 records"),
        TFRecordReader(path, features={"x": "int"}) as reader,
    ):
        assert reader.record_type == "example"
    path = make_file([sequence({"c": ints(1)}, {"s": [ints(2)]})] * 2, "s.tfrecord")
    with TFRecordReader(path, features={"c": "int"}) as reader:
        assert reader.record_type == "sequence_example"
    path = make_file([BAD] * 3, "bad.tfrecord")
    with (
        pytest.warns(UserWarning, match="3 of the 3 records"),
        TFRecordReader(path, features={"x": "int"}) as reader,
    ):
        with pytest.raises(DecodeError) as caught:
            reader[1]
        assert caught.value.record == 1
    with warns(), pytest.raises(DecodeError):
        list(tfrecord.tfrecord_loader(path, None, {"x": "int"}))


# ---- features that records, or all records, lack -----------------------------------------------------------

PARTLY = [example(x=ints(1), label=ints(7)), example(label=ints(8))]
NEVER = [example(label=ints(7)), example(label=ints(8))]
EMPTY = {"var": VarLenFeature("int"), "ragged": RaggedFeature("int"), "short": "int"}


@pytest.mark.parametrize("spec", EMPTY.values(), ids=EMPTY)
def test_absent_from_a_record_is_an_empty_row(make_file: MakeFile, spec: Any) -> None:
    with TFRecordReader(make_file(PARTLY), features={"x": spec}) as reader:
        assert reader[1]["x"].tolist() == []
        assert reader[0:2]["x"].to_list() == [[1], []]
        assert [record["x"].tolist() for record in reader] == [[1], []]


def test_the_spec_of_one_key_does_not_change_another(make_file: MakeFile) -> None:
    path = make_file(PARTLY)
    for more in ({}, {"y": VarLenFeature("int")}, {"label": FixedLenFeature((), "int")}):
        with TFRecordReader(path, features={"x": "int", **more}, allow_missing=True) as reader:
            assert reader[0:2]["x"].to_list() == [[1], []] and reader[1]["x"].tolist() == []


def test_fixed_features(make_file: MakeFile) -> None:
    path = make_file(PARTLY)
    with TFRecordReader(path, features={"x": FixedLenFeature((), "int", 5)}) as reader:
        assert reader[0:2]["x"].tolist() == [1, 5] and int(reader[1]["x"]) == 5
    with TFRecordReader(path, features={"x": FixedLenFeature((), "int")}) as reader:
        for read in (lambda: reader[1], lambda: reader[0:2], lambda: list(reader)):
            with pytest.raises(MissingFeatureError) as caught:
                read()
            assert caught.value.record == 1 and isinstance(caught.value, KeyError)


@pytest.mark.parametrize("spec", [*EMPTY.values(), FixedLenFeature((), "int", 0)], ids=[*EMPTY, "default"])
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_absent_from_every_record(make_file: MakeFile, spec: Any, indexed: bool) -> None:
    path = make_file(NEVER)
    if indexed:
        build_index(path)
    with TFRecordReader(path, features={"lable": spec}) as reader:
        if indexed and spec == "int":
            with pytest.raises(MissingFeatureError, match="did you mean 'label'?"):
                reader[0:2]
            return
        with pytest.warns(UserWarning, match="no record .*'lable'; did you mean 'label'?") as said:
            if indexed:
                reader[0:2]
            else:
                list(reader.batches(1))
        assert len(said) == 1
        list(reader.batches(1))  # once is enough
    with TFRecordReader(path, features={"lable": spec}, allow_missing=True) as reader:
        assert len(list(reader.batches(1))) == 2


def test_a_name_in_columns_that_nothing_knows(make_file: MakeFile) -> None:
    with (
        TFRecordReader(make_file(NEVER), features={"label": "int"}) as reader,
        pytest.raises(KeyError, match="did you mean 'label'?"),
    ):
        reader.read([0], columns=["lable"])


def test_feature_lists(make_file: MakeFile) -> None:
    path = make_file([sequence({}, {"s": [ints(1)]}), sequence({}, {"s": []}), sequence({"c": ints(1)}, {})])
    with TFRecordReader(path, sequence_features={"s": FixedLenFeature((), "int", 0)}) as reader:
        assert reader[0:3].feature_lists["s"].to_list() == [[1], [], []]
        assert [len(lists["s"]) for _, lists in reader] == [1, 0, 0]
    with TFRecordReader(path, sequence_features={"s": FixedLenFeature((), "int")}) as reader:
        assert reader[0:2].feature_lists["s"].to_list() == [[1], []]
        for read in (lambda: reader[2], lambda: reader[0:3]):
            with pytest.raises(MissingFeatureError) as caught:
                read()
            assert (caught.value.record, caught.value.key) == (2, "s")


def test_a_feature_without_a_kind_is_called_that(make_file: MakeFile) -> None:
    with (
        TFRecordReader(
            make_file([example(x=None, y=strings(b""))]), features={"x": FixedLenFeature((), "int")}
        ) as reader,
        pytest.raises(MissingFeatureError, match="has no kind"),
    ):
        reader[0]


def test_nothing_is_said_of_no_records(make_file: MakeFile) -> None:
    with TFRecordReader(make_file([]), features={"x": "int"}) as reader:
        assert list(reader) == list(reader.batches(5)) == []
