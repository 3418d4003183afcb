"""Mistakes of people who are new to the library: each gets a message that says what to write instead."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import tfrecord
from tfrecord import FixedLenFeature, VarLenFeature


@pytest.fixture(params=[False, True], ids=["no index", "index"])
def sequences(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = str(tmp_path / "sequences.tfrecord")
    with tfrecord.TFRecordWriter(path, index=request.param) as writer:
        for i in range(3):
            writer.write({"label": (i, "int")}, {"tokens": ([[1, 2]], "int")})
    return path


@pytest.fixture
def reader(tmp_path: Path) -> tfrecord.TFRecordReader:
    with tfrecord.ShardedTFRecordWriter(str(tmp_path / "train"), 2, index=True) as writer:
        for i in range(4):
            writer.write({"label": (i, "int")})
    return tfrecord.TFRecordReader(tmp_path)


LIST = "'tokens' is a feature list: ask for it in sequence_features"
CONTEXT = "'label' is in the context: ask for it in features"


def test_a_feature_list_asked_for_in_the_context(sequences: str) -> None:
    required = {"tokens": FixedLenFeature((2,), "int64")}
    with pytest.raises(tfrecord.MissingFeatureError, match=LIST):
        tfrecord.TFRecordReader(sequences, features=required)[0]
    with pytest.raises(tfrecord.MissingFeatureError, match=LIST):
        tfrecord.TFRecordReader(sequences, features=required)[:]
    payload = tfrecord.TFRecordReader(sequences).raw(0)
    with pytest.raises(tfrecord.MissingFeatureError, match=LIST):
        tfrecord.parse_single_sequence_example(payload, required, {"tokens": VarLenFeature("int64")})
    with pytest.warns(UserWarning, match=LIST):
        list(tfrecord.TFRecordReader(sequences, features={"tokens": VarLenFeature("int64")}))


def test_a_feature_asked_for_as_a_list(sequences: str) -> None:
    with pytest.raises(tfrecord.MissingFeatureError, match=CONTEXT):
        tfrecord.TFRecordReader(sequences, sequence_features={"label": FixedLenFeature((), "int64")})[:]
    with pytest.warns(UserWarning, match=CONTEXT):
        list(
            tfrecord.TFRecordReader(sequences, sequence_features={"label": VarLenFeature("int64")}).batches(2)
        )


def test_a_short_name_in_the_wrong_part(tmp_path: Path) -> None:
    path = str(tmp_path / "short.tfrecord")
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        writer.write({"label": (1, "int")}, {"tokens": ([[1, 2]], "int")})
    with pytest.raises(tfrecord.MissingFeatureError, match=LIST), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfrecord.TFRecordReader(path, features={"tokens": "int"})[:]


@pytest.mark.parametrize("positions", ["label", 5, 1.5, True, {1}])
def test_what_is_not_positions(reader: tfrecord.TFRecordReader, positions: object) -> None:
    with pytest.raises(
        TypeError, match=r"a list or array of integers, .* not \w+; reader\[5\] is one record"
    ):
        reader.read(positions)  # type: ignore[arg-type]


def test_the_datasets_are_in_a_module_of_their_own() -> None:
    with pytest.raises(AttributeError, match="'TFRecordDataset'; the datasets are in tfrecord.torch"):
        tfrecord.TFRecordDataset  # noqa: B018


def test_names_of_tf_io_that_are_not_needed() -> None:
    with pytest.raises(AttributeError, match="FixedLenSequenceFeature.*use VarLenFeature in features"):
        tfrecord.FixedLenSequenceFeature  # noqa: B018


@pytest.mark.parametrize("conditions", ["label == 3", [("label", 3)], 3])
def test_what_is_not_conditions(reader: tfrecord.TFRecordReader, conditions: object) -> None:
    with pytest.raises(TypeError, match=r"conditions are a dict .*label=3.*, not \w+"):
        reader.where(conditions)  # type: ignore[arg-type]


@pytest.mark.parametrize("cache", [True, 5])
def test_what_is_not_a_cache(tmp_path: Path, cache: object) -> None:
    with pytest.raises(TypeError, match='cache is None, "auto" or a folder, not'):
        tfrecord.TFRecordReader(tmp_path, cache=cache)  # type: ignore[call-overload]


def test_an_http_url_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="http and https URLs are read only"):
        tfrecord.TFRecordWriter("http://127.0.0.1:9/data.tfrecord")
