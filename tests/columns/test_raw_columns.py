"""Raw arrays whose first size differs from record to record."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrecord
from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError
from tfrecord._writing.encoder import encode_example, encode_sequence_example
from tfrecord.columns import ColumnBatch, Ragged
from tfrecord.features import FixedLenFeature, RaggedFeature, VarLenFeature
from tfrecord.parse import parse_example, parse_sequence_example, parse_single_example

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
DTYPES += ["float16", "float32", "float64"]
POINTS = VarLenFeature("float32", raw=True, shape=(-1, 3))


def record(value: bytes | None) -> bytes:
    return encode_example({} if value is None else {"a": (value, "byte")})


def points(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3)


def test_sound_of_any_length() -> None:
    clips = [np.arange(n, dtype="<i2") for n in (4, 0, 7)]
    batch = parse_example([record(clip.tobytes()) for clip in clips], {"a": VarLenFeature("int16", raw=True)})
    column = batch["a"]
    assert isinstance(column, Ragged) and column.values.dtype == np.int16
    assert column.to_list() == [clip.tolist() for clip in clips]
    assert column.row_splits.tolist() == [0, 4, 4, 11] and column.values.flags.writeable
    assert batch.present["a"].all()


@pytest.mark.parametrize("spec", [POINTS, FixedLenFeature((-1, 3), "float32", raw=True)])
def test_rows_of_a_shape(spec: Any) -> None:
    batch = parse_example([record(points(n).tobytes()) for n in (2, 0, 5)], {"a": spec})
    column = batch["a"]
    assert column.values.shape == (7, 3) and column.row_splits.tolist() == [0, 2, 2, 7]
    assert column[1].shape == (0, 3) and column[2].tolist() == points(5).tolist()
    assert column.to_padded().shape == (3, 5, 3)
    assert column.mask().tolist() == [[True, True, False, False, False], [False] * 5, [True] * 5]
    one = parse_single_example(record(points(5).tobytes()), {"a": spec})["a"]
    assert one.tolist() == points(5).tolist() and one.flags.writeable
    assert parse_example([], {"a": spec})["a"].values.shape == (0, 3)
    assert batch[[2, 0]]["a"].values.shape == (7, 3) and len(batch[:1]["a"]) == 1
    assert pickle.loads(pickle.dumps(batch)).equals(batch)


def test_missing_and_empty_rows() -> None:
    rows = [record(None), record(b""), encode_example({"a": ([], "byte")}), record(points(1).tobytes())]
    batch = parse_example(rows, {"a": POINTS})
    assert batch["a"].lengths().tolist() == [0, 0, 0, 1]
    assert batch.present["a"].tolist() == [False, True, True, True]
    assert [row.get("a") for row in batch.to_list()] == [None, [], [], [[0.0, 1.0, 2.0]]]
    assert parse_single_example(rows[0], {"a": POINTS})["a"].shape == (0, 3)
    with pytest.raises(MissingFeatureError) as caught:
        parse_example(rows[::-1], {"a": FixedLenFeature((-1, 3), "float32", raw=True)})
    assert (caught.value.key, caught.value.record) in {("a", 1), ("a", 3)}
    default = {"a": FixedLenFeature((-1, 3), "float32", points(2), raw=True)}
    batch = parse_example(rows, default)
    assert batch["a"].lengths().tolist() == [2, 0, 2, 1]
    assert batch.to_list()[0]["a"] == points(2).tolist()
    assert parse_single_example(rows[0], default)["a"].tolist() == points(2).tolist()


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ((bytes(13), "byte"), r"holds 13 bytes.* float32 .*\(-1, 3\)"),
        ((bytes(4), "byte"), "holds 4 bytes"),
        (([bytes(12), bytes(12)], "byte"), "has 2 values, not 1"),
        (([1.0], "float"), "is of kind float"),
    ],
)
def test_what_makes_no_array_names_key_and_record(tmp_path: Path, value: Any, match: str) -> None:
    rows = [record(bytes(12)), encode_example({"a": value}), record(bytes(24))]
    for spec in (POINTS, FixedLenFeature((-1, 3), "float32", raw=True)):
        with pytest.raises((DecodeError, FeatureKindError), match=match) as caught:
            parse_example(rows, {"a": spec})
        assert (caught.value.key, caught.value.record) == ("a", 1)
        with pytest.raises((DecodeError, FeatureKindError), match=match):
            parse_single_example(rows[1], {"a": spec})
    path = tmp_path / "a.tfrecord"
    with tfrecord.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write_bytes(row)
    with pytest.raises((DecodeError, FeatureKindError), match=match) as caught:
        tfrecord.TFRecordReader(path, features={"a": POINTS})[:]
    assert caught.value.path == str(path) and caught.value.record == 1 and caught.value.key == "a"


@pytest.mark.parametrize(
    "spec", [FixedLenFeature((32, 32, 3), "uint8", raw=True), POINTS], ids=["fixed", "rows"]
)
@pytest.mark.parametrize("head", [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"], ids=["jpeg", "png"])
def test_image_files_that_are_read_as_arrays(spec: Any, head: bytes) -> None:
    with pytest.raises(DecodeError, match="it is a JPEG or PNG file, which ImageFeature decodes"):
        parse_example([record(head + bytes(9))], {"a": spec})


def test_bools_are_checked() -> None:
    spec = {"a": VarLenFeature("bool", raw=True)}
    batch = parse_example([record(b"\0\1"), record(b""), record(b"\1")], spec)
    assert batch["a"].to_list() == [[False, True], [], [True]] and batch["a"].values.dtype == np.bool_
    with pytest.raises(DecodeError, match="no bool") as caught:
        parse_example([record(b"\0\1"), record(b""), record(b"\1\2")], spec)
    assert caught.value.record == 2


def test_steps_of_raw_arrays() -> None:
    steps = [[points(1).tobytes(), points(3).tobytes()], [b""], []]
    rows = [encode_sequence_example({}, {"a": ([[s] for s in some], "byte")}) for some in steps]
    rows.append(encode_sequence_example({}, {}))
    batch = parse_sequence_example(rows, {}, {"a": POINTS})
    column = batch.feature_lists["a"]
    assert [[len(step) for step in row] for row in column.to_list()] == [[1, 3], [0], [], []]
    assert column.values.values.shape == (4, 3)
    assert column.to_padded().shape == (4, 2, 3, 3)
    _, lists = tfrecord.parse_single_sequence_example(rows[0], {}, {"a": POINTS})
    assert [step.shape for step in lists["a"]] == [(1, 3), (3, 3)]
    rows[1] = encode_sequence_example({}, {"a": ([[b""], [b"xyz"]], "byte")})
    with pytest.raises(DecodeError, match="step 1 of this feature list: holds 3 bytes") as caught:
        parse_sequence_example(rows, {}, {"a": POINTS})
    assert caught.value.record == 1


@pytest.mark.parametrize("spec", [VarLenFeature("int16"), RaggedFeature("int16"), "int"], ids=repr)
def test_numbers_asked_of_bytes(spec: Any) -> None:
    """The error advises what then works."""
    rows = [record(np.arange(n, dtype=np.int16).tobytes()) for n in (2, 0)]
    with pytest.raises(FeatureKindError, match=r"VarLenFeature\(dtype, raw=True\) if lengths differ"):
        parse_example(rows, {"a": spec})
    assert parse_example(rows, {"a": VarLenFeature("int16", raw=True)})["a"].to_list() == [[0, 1], []]


def test_specs_are_values() -> None:
    assert repr(VarLenFeature("int16", raw=True)) == "VarLenFeature('int16', raw=True)"
    assert repr(POINTS) == "VarLenFeature('float32', raw=True, shape=(-1, 3))"
    for spec in (POINTS, RaggedFeature("uint8", raw=True)):
        assert pickle.loads(pickle.dumps(spec)) == spec and hash(spec) == hash(
            pickle.loads(pickle.dumps(spec))
        )
    assert POINTS != VarLenFeature("float32", raw=True) != VarLenFeature("float32")
    for wrong in ({"raw": True, "shape": (3, -1)}, {"raw": True, "shape": (3,)}, {"shape": (-1,)}):
        with pytest.raises(ValueError, match="shape"):
            VarLenFeature("float32", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="raw=True needs the dtype"):
        VarLenFeature("bytes", raw=True)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in DTYPES:
        rows = [record(np.ones((n, 2), dtype).tobytes()) for n in (2, 0, 1)]
        batch = parse_example(rows, {"a": VarLenFeature(dtype, raw=True, shape=(-1, 2))})
        ragged = batch.to_torch()["a"]
        assert ragged.values.shape == (3, 2) and ragged.values.dtype == getattr(torch, dtype)
        assert ragged[0].shape == (2, 2) and ragged.numpy().equals(batch["a"])
        padded = batch.to_torch(ragged="pad")
        assert padded["a"].shape == (3, 2, 2) and padded["a_mask"].tolist() == batch["a"].mask().tolist()
    assert [row.shape for row in ragged.to_nested().unbind()] == [(2, 2), (0, 2), (1, 2)]


def test_a_dataset_of_raw_arrays(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tfrecord.torch import TFRecordDataset

    path = tmp_path / "a.tfrecord"
    with tfrecord.TFRecordWriter(path) as writer:
        for n in (2, 0, 3):
            writer.write({"a": (points(n).tobytes(), "byte")})
    batch = next(iter(TFRecordDataset(str(path), features={"a": POINTS}, batch_size=3)))
    assert batch["a"].values.shape == (5, 3)
    batch = next(iter(TFRecordDataset(str(path), features={"a": POINTS}, batch_size=3, ragged="pad")))
    assert batch["a"].shape == (3, 3, 3) and batch["a_mask"].sum() == 5
    assert [tuple(item["a"].shape) for item in TFRecordDataset(str(path), features={"a": POINTS})] == [
        (2, 3),
        (0, 3),
        (3, 3),
    ]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[str, tuple[int, ...], list[np.ndarray[Any, Any] | None]]:
    dtype = draw(st.sampled_from(DTYPES))
    tail = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    counts = draw(st.lists(st.none() | st.integers(0, 4), max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    high = 2 if dtype == "bool" else 256
    size = np.dtype(dtype).itemsize

    def one(count: int | None) -> np.ndarray[Any, Any] | None:
        if count is None:
            return None
        data = random.integers(0, high, count * int(np.prod(tail)) * size, np.uint8).tobytes()
        return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).reshape(count, *tail)

    return dtype, tail, [one(count) for count in counts]


@settings(deadline=None, max_examples=60)
@given(arrays())
def test_round_trip(case: tuple[str, tuple[int, ...], list[np.ndarray[Any, Any] | None]]) -> None:
    """Any arrays come back from the records, and from Arrow, bit by bit."""
    dtype, tail, rows = case
    spec = VarLenFeature(dtype, raw=True, shape=(-1, *tail))
    payloads = [record(None if row is None else row.tobytes()) for row in rows]
    batch = parse_example(payloads, {"a": spec})
    assert batch.present["a"].tolist() == [row is not None for row in rows]
    for i, row in enumerate(rows):
        wanted = np.empty((0, *tail), dtype) if row is None else row
        for found in (batch["a"][i], parse_single_example(payloads[i], {"a": spec})["a"]):
            assert found.shape == wanted.shape and found.dtype == dtype
            assert found.tobytes() == wanted.tobytes()
    pytest.importorskip("pyarrow")
    if rows:
        assert ColumnBatch.from_arrow(batch.to_arrow()).equals(batch)
