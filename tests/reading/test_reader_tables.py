"""Whole files as tables of Arrow, pandas and polars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfrecord
from tfrecord import DecodeError, FeatureKindError, TFRecordReader, TFRecordWriter

pa = pytest.importorskip("pyarrow")


def make(path: Path, count: int = 5000) -> Path:
    with TFRecordWriter(path) as writer:
        for i in range(count):
            record: dict[str, Any] = {"pair": ([i, -i], "int"), "name": (f"n{i}", "bytes")}
            if i % 3:
                record["once"] = (i, "int")
            if i >= count // 2:  # not among the first records
                record["many"] = ([0.5] * (i % 4), "float")
            writer.write(record)
    return path


@pytest.mark.parametrize("indexed", [False, True])
def test_all_records_are_one_table(tmp_path: Path, indexed: bool) -> None:
    path = make(tmp_path / "a.tfrecord")
    if indexed:
        tfrecord.build_index(path)
    with TFRecordReader(path) as reader:
        table = reader.to_arrow()
        assert table.column_names == ["many", "name", "once", "pair"] == list(reader.feature_names)
        assert [str(kind) for kind in table.schema.types] == [
            "large_list<item: float>",
            "large_binary",
            "large_list<item: int64>",
            "fixed_size_list<item: int64>[2]",
        ]
        assert table.num_rows == 5000 and table.column("many").null_count == 2500
        assert pa.table(reader).equals(table)
        few = reader.select([4, 3]).to_arrow(["once", "name"], text=["name"], nullable=True)
        assert few.to_pylist() == [{"once": 4, "name": "n4"}, {"once": None, "name": "n3"}]
        assert few.schema == reader.to_arrow(["once", "name"], text=True, nullable=True).schema


def test_pandas_and_polars(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    with TFRecordReader(make(tmp_path / "a.tfrecord", 10)) as reader:
        frame = reader.to_pandas(text=True, nullable=True)
        assert (
            str(frame["once"].dtype) == "Int64" and frame["once"][0] is pandas.NA and frame["name"][2] == "n2"
        )
        assert reader.to_polars(["name"], text=True)["name"].to_list()[:2] == ["n0", "n1"]
        assert polars.DataFrame(reader).shape == (10, 4)


def test_sequences_bytes_and_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path) as writer:
        writer.write({"id": (1, "int")}, {"steps": ([[1], [2, 3]], "int")})
        writer.write({}, {"steps": ([], "int")})
    with TFRecordReader(path) as reader:
        table = reader.to_arrow(nullable=True)
        assert table.to_pylist() == [
            {"context/id": 1, "feature_lists/steps": [[1], [2, 3]]},
            {"context/id": None, "feature_lists/steps": []},
        ]
        assert reader.feature_names == ("id", "steps")
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"\xffraw")
    with TFRecordReader(path, record_type="bytes") as reader:
        assert reader.to_arrow().to_pylist() == [{"record": b"\xffraw"}] and reader.feature_names == ()
    TFRecordWriter(path).close()
    with TFRecordReader(path) as reader:
        assert reader.to_arrow().num_rows == 0


def test_features_decide_the_types(tmp_path: Path) -> None:
    features = {"once": tfrecord.FixedLenFeature((), "int32", -1), "many": "float"}
    with TFRecordReader(make(tmp_path / "a.tfrecord", 10), features=features) as reader:
        table = reader.to_arrow()
        assert table.column("once").to_pylist()[:2] == [-1, 1] and str(table.schema.types[0]) == "int32"
        assert reader.feature_names == ("once", "many")


def test_errors_say_where(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path) as writer:
        for i in range(10):
            writer.write({"x": (b"\xff" if i == 7 else b"a", "bytes")})
    with TFRecordReader(path) as reader:
        with pytest.raises(DecodeError, match="record 7: feature 'x': is not UTF-8") as caught:
            reader.to_arrow(text=True)
        assert caught.value.path == reader.paths[0]
        with pytest.raises(KeyError, match="did you mean 'x'"):
            reader.to_arrow(text=["X"])
    with TFRecordWriter(path, mode="a") as writer:
        writer.write({"x": (1, "int")})
    with TFRecordReader(path) as reader, pytest.raises(FeatureKindError, match="'x'"):
        reader.to_arrow()


def test_names_alone_take_the_types_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    tfrecord.write(path, {"a": [1, 2], "b": [b"x", b"y"], "c": [[0.5], []]})
    for index in (False, "build"):
        for features in (["a", "c", "b"], {"a": "int", "c": None, "b": None}):
            reader = tfrecord.TFRecordReader(path, features=features, index=index)
            assert reader.to_arrow().to_pydict() == {"a": [[1], [2]], "c": [[0.5], []], "b": [[b"x"], [b"y"]]}
            assert reader.to_arrow(nullable=True, columns=["b"]).to_pydict() == {"b": [b"x", b"y"]}
