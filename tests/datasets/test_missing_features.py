"""The table of missing features in docs/reading.md: one answer in every way of reading."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import example, ints

import tfrecord
from tfrecord import FixedLenFeature, MissingFeatureError, RaggedFeature, TFRecordReader, VarLenFeature
from tfrecord.torch import TFRecordDataset, TFRecordMapDataset

MakeFile = Callable[..., Path]
# Record 2 lacks the label; `lable` is in no record.
RECORDS = [example(x=ints(i)) if i == 2 else example(label=ints(i), x=ints(i)) for i in range(4)]
SPECS: dict[str, Any] = {
    "required": FixedLenFeature((), "int"),
    "required list": FixedLenFeature((1,), "int"),
    "default": FixedLenFeature((), "int", 7),
    "default list": FixedLenFeature((1,), "int", 7),
    "short": "int",
    "name": None,
    "var": VarLenFeature("int"),
    "ragged": RaggedFeature("int"),
}


def columns(batches: Any) -> list[Any]:
    """The rows of batches."""
    found: list[Any] = []
    for batch in batches:
        (column,) = batch.values()
        for name in ("to_list", "tolist"):
            column = getattr(column, name, lambda column=column: column)()
        found += column
    return found


def records(made: Any) -> list[Any]:
    """The values of records."""
    return [None if value is None else np.asarray(value).tolist() for (value,) in (r.values() for r in made)]


def payloads(path: Path) -> list[bytes]:
    return list(TFRecordReader(path, record_type="bytes"))  # type: ignore[call-overload, no-any-return]


def of_table(path: Path, features: Any) -> list[Any]:
    pytest.importorskip("pyarrow")
    (column,) = TFRecordReader(path, features=features).to_arrow().to_pydict().values()
    return [[] if row is None else row for row in column]


def each(source: Any) -> list[Any]:
    return [source[i] for i in range(len(source))]


def parsed(path: Path, features: Any) -> list[Any]:
    return [tfrecord.parse_single_example(payload, features) for payload in payloads(path)]


# How to read, and whether that is a pass, at whose end a warning may come.
RECORD_WAYS: dict[str, tuple[Callable[[Path, Any], Any], bool]] = {
    "reader[i]": (lambda path, f: each(TFRecordReader(path, features=f)), False),
    "iteration": (lambda path, f: list(TFRecordReader(path, features=f)), True),
    "parse_single_example": (parsed, False),
    "dataset": (lambda path, f: list(TFRecordDataset(path, features=f)), True),
    "map-style": (lambda path, f: each(TFRecordMapDataset(path, features=f)), False),
    "map-style, a batch": (
        lambda path, f: TFRecordMapDataset(path, features=f).__getitems__([*range(4)]),
        False,
    ),
}
BATCH_WAYS: dict[str, tuple[Callable[[Path, Any], Any], bool]] = {
    "read": (lambda path, f: columns([TFRecordReader(path, features=f).read([0, 1, 2, 3])]), False),
    "slice": (lambda path, f: columns([TFRecordReader(path, features=f)[:]]), False),
    "batches": (lambda path, f: columns(TFRecordReader(path, features=f).batches(3)), True),
    "threads": (lambda path, f: columns(TFRecordReader(path, features=f).batches(3, num_threads=2)), True),
    "parse_example": (lambda path, f: columns([tfrecord.parse_example(payloads(path), f)]), False),
    "dataset of batches": (lambda path, f: columns(TFRecordDataset(path, features=f, batch_size=3)), True),
    "split": (lambda path, f: columns(tfrecord.make_splits(path, 1, features=f)[0].batches(4)), False),
    "table": (of_table, True),
}
WAYS = RECORD_WAYS | BATCH_WAYS
ALL = pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
EVERY_WAY = pytest.mark.parametrize("way", WAYS)
EVERY_SPEC = pytest.mark.parametrize("spec", SPECS)


def absent_row(spec: str, way: str) -> Any:
    """What a record that lacks the feature has."""
    if spec.startswith("default"):
        return 7 if spec == "default" else [7]
    # One record of any type cannot say which type an empty row would have.
    return None if spec == "name" and way in RECORD_WAYS else []


def read(make_file: MakeFile, indexed: bool, way: str, key: str, spec: str) -> tuple[Any, list[str]]:
    """The rows of a new file, or the error; and the warnings."""
    path = make_file(RECORDS)
    if indexed:
        tfrecord.build_index(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            rows = WAYS[way][0](path, {key: SPECS[spec]})
            rows = records(rows) if way in RECORD_WAYS else rows
        except MissingFeatureError as error:
            rows = error
    return rows, sorted({str(warning.message) for warning in caught})


@ALL
@EVERY_SPEC
@EVERY_WAY
def test_a_feature_that_one_record_lacks(make_file: MakeFile, way: str, spec: str, indexed: bool) -> None:
    rows, said = read(make_file, indexed, way, "label", spec)
    assert not said
    if spec.startswith("required"):
        assert isinstance(rows, MissingFeatureError) and rows.key == "label"
        assert rows.record == (0 if way == "parse_single_example" else 2)
        return
    there: list[Any] = [0, 1, None, 3] if spec == "default" else [[0], [1], None, [3]]
    there[2] = absent_row(spec, way)
    assert rows == there


@ALL
@EVERY_SPEC
@EVERY_WAY
def test_a_feature_that_no_record_has(make_file: MakeFile, way: str, spec: str, indexed: bool) -> None:
    rows, said = read(make_file, indexed, way, "lable", spec)
    parses = way.startswith("parse")
    if spec.startswith("required") or (spec in ("short", "name") and indexed and not parses):
        assert isinstance(rows, MissingFeatureError) and not said
        assert rows.key == "lable" and "did you mean 'label'?" in str(rows)
        return
    assert rows == [absent_row(spec, way)] * 4
    warned = not parses and (indexed or WAYS[way][1])
    assert len(said) == warned
    assert not warned or "has a feature 'lable'; did you mean 'label'?" in said[0]
