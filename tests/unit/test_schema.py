from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.build import build_index
from indexer.errors import DecodeError, FeatureKindError, IndexFileError, MissingFeatureError
from indexer.formats import write_index
from indexer.framing import frame_record
from tfrecord._columns.decoding import decode_batch
from tfrecord.columns import BytesColumn
from tfrecord.encode import encode_sequence_example
from tfrecord.example_pb2 import Example, SequenceExample
from tfrecord.parse import parse_example
from tfrecord.reader import TFRecordReader
from tfrecord.schema import FeatureSchema, Schema, SchemaCollector, dense_plan, merge_schemas

pytestmark = pytest.mark.kernels


def example(**features: Any) -> bytes:
    message = Example()
    for key, values in features.items():
        feature = message.features.feature[key]
        if values is not None:
            kind, items = values
            getattr(feature, f"{kind}_list").SetInParent()
            getattr(feature, f"{kind}_list").value.extend(items)
    return bytes(message.SerializeToString())


def collect(records: list[bytes], collector: SchemaCollector | None = None, chunk: int = 3) -> Any:
    """What a collector makes of records that come in chunks, with other bytes between them."""
    collector = collector or SchemaCollector()
    for start in range(0, len(records), chunk):
        part = records[start : start + chunk]
        buffer = b"head" + b"".join(record + b"tail" for record in part)
        lengths = np.array([len(record) for record in part], np.uint64)
        offsets = np.cumsum(lengths + np.uint64(4), dtype=np.uint64) - lengths
        collector.update(memoryview(buffer), offsets, lengths)
    return collector.finish()


def schema_of(records: list[bytes]) -> Schema:
    metadata = collect(records)[0]
    return merge_schemas([("f", metadata)], metadata["record_type"])


def test_schema_of_examples() -> None:
    records = [
        example(label=("int64", [i]), pixels=("float", [0.5] * 4), words=("bytes", [b"x"] * (i % 3)))
        for i in range(10)
    ]
    schema = schema_of(records)
    assert (schema.record_type, schema.num_records, set(schema)) == (
        "example",
        10,
        {"label", "pixels", "words"},
    )
    assert schema["label"] == FeatureSchema("int64", 10, 10, 1, 1)
    assert schema["label"].shape == () and schema["pixels"].shape == (4,)
    assert schema["words"] == FeatureSchema("bytes", 10, 10, 0, 2) and schema["words"].shape is None


def test_missing_no_kind_and_empty() -> None:
    schema = schema_of(
        [example(), example(a=None, b=("float", [])), example(a=("int64", [1])), example(b=("float", []))]
    )
    assert schema["a"] == FeatureSchema("int64", 1, 4, 1, 1) and schema["a"].shape is None
    assert schema["b"] == FeatureSchema("float", 2, 4, 0, 0) and schema["b"].shape is None
    assert schema_of([example(a=None)])["a"] == FeatureSchema("unknown", 0, 1, 0, 0)
    assert schema_of([example(b=("float", []))])["b"].shape == (0,)


def test_schema_of_sequences() -> None:
    message = SequenceExample()
    message.context.feature["id"].int64_list.value.append(1)
    for count in (2, 0, 3):
        step = message.feature_lists.feature_list["t"].feature.add()
        step.int64_list.value.extend(range(count))
    message.feature_lists.feature_list["none"].SetInParent()
    schema = schema_of([example(), message.SerializeToString()])
    assert schema.record_type == "sequence_example"
    assert schema["id"] == FeatureSchema("int64", 1, 2, 1, 1)
    assert schema.feature_lists["t"] == FeatureSchema("int64", 1, 2, 3, 3, 0, 3)
    assert schema.feature_lists["none"] == FeatureSchema("unknown", 1, 2, 0, 0, 0, 0)
    assert schema.feature_lists["t"].shape is None


@pytest.mark.parametrize("other", [b"plain text", example(a=("int64", [1]))[:-1], b"\x18\x05"])
def test_other_bytes(other: bytes) -> None:
    metadata, columns = collect([example(), other, example()])
    assert metadata["record_type"] == "bytes" and "schema" not in metadata and not columns
    assert metadata["looked_at"][:2] == [0, 1]
    assert collect([b""] * 4)[0]["record_type"] == "example"
    schema = {"num_records": 0, "features": {}, "feature_lists": {}, "num_invalid": 0, "invalid": []}
    assert collect([])[0] == {"record_type": "example", "looked_at": [0, 0, ""], "schema": schema}
    assert merge_schemas([("f", {"record_type": "bytes"})], "bytes").record_type == "bytes"


def test_columns_are_kept() -> None:
    records = [
        example(label=("int64", [i]), w=("float", [i / 2]), name=("bytes", [b"n%d" % i])) for i in range(2500)
    ]
    _, columns = collect(records, SchemaCollector(["label", "w", "name"]), 1200)
    assert columns["label"].dtype == np.int64 and columns["label"].tolist() == list(range(2500))
    assert columns["w"].dtype == np.float32 and columns["w"][7] == 3.5
    assert columns["name"].dtype == np.dtype("S5") and columns["name"][2499] == b"n2499"


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (example(label=("int64", [1, 2])), "has 2 values"),
        (example(label=("bytes", [b"a\0"])), "ends in NUL"),
        (example(label=("bytes", [b"a" * 300])), "has 300 bytes"),
    ],
)
def test_columns_that_cannot_be_kept(bad: bytes, match: str) -> None:
    good = example(label=("bytes", [b"x"]))
    kept = SchemaCollector("label")
    with pytest.raises(DecodeError, match=match) as caught:
        collect([good] * 7 + [bad], kept, 7)
    assert caught.value.record == 7


def test_records_without_a_value_are_masked() -> None:
    records = [example(a=("int64", [7])), example(), example(a=None), b"\xff", example(a=("int64", [8]))]
    for size in (1, 2, 5):
        column = collect(records, SchemaCollector(["a"]), size)[1]["a"]
        assert column.mask.tolist() == [False, True, True, True, False]
        assert column.compressed().tolist() == [7, 8] and column.dtype == np.int64
    names = [example(n=("bytes", [b"x"])), example(), example(n=("bytes", [b"longer"]))]
    column = collect(names, SchemaCollector(["n"]), 1)[1]["n"]
    assert column.tolist() == [b"x", None, b"longer"] and column.dtype == "S6"


def test_lengths_are_kept() -> None:
    records = [example(t=("int64", [1] * count)) for count in (3, 0, 1)] + [example(), b"\xff"]
    columns = collect(records, SchemaCollector(["len(t)", "len(t)"]), 2)[1]
    assert list(columns) == ["len(t)"]
    assert columns["len(t)"].tolist() == [3, 0, 1, 0, 0] and columns["len(t)"].dtype == np.int64
    steps = [
        encode_sequence_example({"c": ([1, 2], "int")}, {"t": ([[1]] * count, "int")}) for count in (2, 0)
    ]
    columns = collect(steps, SchemaCollector(["len(t)", "len(c)"]), 1)[1]
    assert columns["len(t)"].tolist() == [2, 0] and columns["len(c)"].tolist() == [2, 2]


def test_a_column_that_no_record_has_is_refused_with_near_names() -> None:
    for name in ("lable", "len(lable)"):
        with pytest.raises(MissingFeatureError, match="'lable': no record has it; did you mean 'label'"):
            collect([example(label=("int64", [1]))], SchemaCollector([name]))
    assert collect([], SchemaCollector(["a"]))[1]["a"].tolist() == []


def test_a_column_of_two_kinds() -> None:
    with pytest.raises(FeatureKindError) as caught:
        collect([example(a=("int64", [1])), example(a=("float", [1]))], SchemaCollector(["a"]), 1)
    assert (caught.value.key, caught.value.record) == ("a", 1)


def test_merging() -> None:
    first = collect([example(a=("int64", [1]), u=None)])[0]
    second = collect([example(a=("int64", [1, 2]), u=("bytes", [b"x"])), example()])[0]
    merged = merge_schemas([("one", first), ("two", second)], "example")
    assert merged.num_records == 3
    assert merged["a"] == FeatureSchema("int64", 2, 3, 1, 2)
    assert merged["u"] == FeatureSchema("bytes", 1, 3, 1, 1)
    third = collect([example(a=("float", [1]))])[0]
    with pytest.raises(FeatureKindError, match="'a': is of different kinds: float in three, int64 in one"):
        merge_schemas([("one", first), ("two", second), ("three", third)], "example")
    conflict = collect([example(a=("float", [1])), example(a=("int64", [1]))])[0]
    with pytest.raises(FeatureKindError, match="kinds: float and int64 in different records of f"):
        merge_schemas([("f", conflict)], "example")
    assert dict(merge_schemas([], "example")) == {}


def test_plans_keep_the_columns_of_all_batches() -> None:
    records = [
        example(a=("int64", [1]), b=("float", [1, 2]), c=("bytes", [b"x"] * i), d=None) for i in range(4)
    ]
    plan = dense_plan(schema_of(records))
    for part in (records[:1], records[1:]):
        payloads = BytesColumn.from_list(part)
        batch: Any = decode_batch(payloads, plan)
        assert set(batch) == {"a", "b", "c", "d"}
        assert batch["a"].shape == (len(part),) and batch["b"].shape == (len(part), 2)
        assert batch["c"].to_list() == parse_example(part)["c"].to_list()
        assert batch["d"].to_list() == [[]] * len(part)
    assert dense_plan({}).columns == ()


ENTRY = [8, 2, 1, 1, 2**63 - 1, -1]
GOOD = {"num_records": 2, "features": {"a": ENTRY}, "feature_lists": {}}


@pytest.mark.parametrize(
    "metadata",
    [
        {"record_type": []},
        {"record_type": {"a": 1}},
        {"schema": 5},
        {"schema": []},
        {"schema": {**GOOD, "num_records": 3}},
        {"schema": {**GOOD, "num_records": None}},
        {"schema": {"num_records": 2, "features": {}}},
        {"schema": {**GOOD, "features": []}},
        {"schema": {**GOOD, "features": {b"a": ENTRY}}},
        *(
            {"schema": {**GOOD, "feature_lists": {"a": entry}}}
            for entry in (None, 5, [], ENTRY[:5], "abcdef")
        ),
        *(
            {"schema": {**GOOD, "features": {"a": [*ENTRY[:place], value, *ENTRY[place + 1 :]]}}}
            for place in range(6)
            for value in (None, "x", 1.0, True, -2, 2**63)
        ),
        # More values than the data has bytes, in one record or in all.
        {"schema": {**GOOD, "features": {"a": [8, 2, 0, 2**31 - 1, 2**63 - 1, -1]}}},
        {"schema": {**GOOD, "features": {"a": [8, 2, 40, 40, 2**63 - 1, -1]}}},
    ],
)
def test_a_schema_that_no_collector_made_is_refused(metadata: dict[str, Any], tmp_path: Path) -> None:
    data, index = tmp_path / "a.tfrecord", tmp_path / "a.tfindex"
    data.write_bytes(frame_record(example(a=("int64", [1]))) * 2)
    built = build_index(data)
    for changed, fits in (({"schema": GOOD, "record_type": "example"}, True), (metadata, False)):
        with open(index, "wb") as file:
            write_index(file, built.replace(metadata=changed))
        if fits:
            assert TFRecordReader(data, index=index)[0:2]["a"].tolist() == [1, 1]
            continue
        with pytest.raises(IndexFileError, match="schema of the records is not valid") as caught:
            TFRecordReader(data, index=index)
        assert (caught.value.path, caught.value.index_path) == (str(data), str(index))


def test_names_that_are_too_long_together_are_no_schema() -> None:
    long = [example(**{f"{number}{'x' * 500_000}": ("int64", [1])}) for number in range(10)]
    collector = SchemaCollector()
    for number in range(10):
        collect(long[number : number + 1], collector)
    assert collector.finish()[0] == {"record_type": "example", "looked_at": [10, 0, ""]}
