"""Parsed messages to values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from tfrecord import example_pb2
from tfrecord.process import extract_feature_dict, process_feature

MAPPING = {"byte": "bytes_list", "float": "float_list", "int": "int64_list"}
KINDS = {"bytes_list": ["byte", "bytes"], "float_list": ["float", "float32"], "int64_list": ["int", "int64"]}


def feature(kind: str | None = None, values: Any = ()) -> Any:
    made = example_pb2.Feature()
    if kind is not None:
        getattr(made, kind).SetInParent()
        getattr(made, kind).value.extend(values)
    return made


def test_values() -> None:
    one = process_feature(feature("bytes_list", [b"a\0"]), "byte", MAPPING, "k")
    assert type(one) is bytes and one == b"a\0"
    several = process_feature(feature("bytes_list", [b"a\0\0", b"bcd"]), "byte", MAPPING, "k")
    assert several.dtype == object and several.tolist() == [b"a\0\0", b"bcd"]
    whole = process_feature(feature("int64_list", [2**40, -1, 2**63 - 1, -(2**63)]), "int", MAPPING, "k")
    assert whole.dtype == np.int64 and whole.tolist() == [2**40, -1, 2**63 - 1, -(2**63)]
    real = process_feature(feature("float_list", [1.5]), "float", MAPPING, "k")
    assert real.dtype == np.float32 and real.tolist() == [1.5]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_list_is_an_empty_array_of_its_kind(kind: str) -> None:
    dtype = {"bytes_list": object, "float_list": np.float32, "int64_list": np.int64}[kind]
    for typename in [*KINDS[kind], None]:
        made = process_feature(feature(kind), typename, MAPPING, "k")
        assert made.dtype == dtype and made.shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_is_an_empty_array_of_the_declared_kind(kind: str) -> None:
    made = process_feature(feature(), KINDS[kind][0], MAPPING, "k")
    assert made.shape == (0,) and made.dtype == process_feature(feature(kind), None, MAPPING, "k").dtype
    assert process_feature(feature(), None, MAPPING, "k") is None


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_is_refused_even_when_empty(kind: str) -> None:
    for other in set(KINDS) - {kind}:
        with pytest.raises(FeatureKindError, match=f"feature 'the key': holds a {kind}") as caught:
            process_feature(feature(kind), KINDS[other][0], MAPPING, "the key")
        assert isinstance(caught.value, TypeError) and caught.value.key == "the key"


def test_type_names() -> None:
    for name in ("int", "int ", " int64\t", "int32"):
        assert process_feature(feature("int64_list", [3]), name, MAPPING, "k").tolist() == [3]
    assert process_feature(feature("int64_list", [3]), "uint8").dtype == np.uint8
    assert process_feature(feature("int64_list", [3]), "mine", {"mine": "int64_list"}).tolist() == [3]
    for wrong in ("integer", "", "INT", 3):
        with pytest.raises(ValueError, match="feature 'k': unknown type .*'bytes'.*'int64'"):
            process_feature(feature("int64_list", [3]), wrong, MAPPING, "k")  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match="feature 'k': the value 256 does not fit uint8"):
        process_feature(feature("int64_list", [255, 256]), "uint8", MAPPING, "k")


def test_descriptions() -> None:
    message = example_pb2.Example()
    message.features.feature["a"].int64_list.value.append(1)
    message.features.feature["b"].bytes_list.value.append(b"x")
    features = message.features
    for everything in (None, [], {}, ()):
        made = extract_feature_dict(features, everything, MAPPING)
        assert made == {"a": np.array([1]), "b": b"x"}
    for some in (["b"], ("b",), {"b": None}, {"b": "byte"}, {"b": "bytes "}):
        assert extract_feature_dict(features, some, MAPPING) == {"b": b"x"}
    with pytest.raises(MissingFeatureError, match=r"feature 'c': .*\['a', 'b'\]") as caught:
        extract_feature_dict(features, ["a", "c"], MAPPING)
    assert isinstance(caught.value, KeyError) and caught.value.key == "c"
    assert set(features.feature) == {"a", "b"}  # looking for a key did not make it
    with pytest.raises(FeatureKindError, match="feature 'a'"):
        extract_feature_dict(features, {"a": "float"}, MAPPING)
    with pytest.raises(TypeError, match="not a str"):
        extract_feature_dict(features, "ab", MAPPING)


def test_feature_lists() -> None:
    message = example_pb2.SequenceExample()
    for step in ([1, 2], [], [3]):
        message.feature_lists.feature_list["s"].feature.add().int64_list.value.extend(step)
    message.feature_lists.feature_list["s"].feature.add()
    message.feature_lists.feature_list["none"].SetInParent()
    made = extract_feature_dict(message.feature_lists, {"s": "int", "none": "int"}, MAPPING)
    assert [step.tolist() for step in made["s"]] == [[1, 2], [], [3], []] and made["none"] == []
    assert extract_feature_dict(message.feature_lists, ["s"])["s"][3] is None
    assert extract_feature_dict(message.context, None, MAPPING) == {}


def test_what_is_no_message() -> None:
    for wrong in (example_pb2.Example(), {"a": 1}, None):
        with pytest.raises(TypeError, match="Features or FeatureLists"):
            extract_feature_dict(wrong, None, MAPPING)
