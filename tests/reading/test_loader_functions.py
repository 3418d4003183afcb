"""The functions of `tfrecord.loaders`."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.build import build_index
from indexer.errors import CorruptRecordError, FeatureKindError, MissingFeatureError, StaleIndexError
from indexer.framing import frame_record
from tfrecord.example_pb2 import Example, SequenceExample
from tfrecord.features import FixedLenFeature
from tfrecord.loaders import (
    example_loader,
    multi_tfrecord_loader,
    sequence_loader,
    tfrecord_iterator,
    tfrecord_loader,
)

COUNT = 23


def example(number: int, **more: list[Any]) -> bytes:
    message = Example()
    message.features.feature["id"].int64_list.value.append(number)
    for key, values in more.items():
        feature = message.features.feature[key]
        if not values:
            feature.SetInParent()
        elif isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
        elif isinstance(values[0], float):
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def sequence(number: int) -> bytes:
    message = SequenceExample()
    message.context.feature["id"].int64_list.value.append(number)
    for steps in ([1], [2, 3], []):
        message.feature_lists.feature_list["tokens"].feature.add().int64_list.value.extend(steps)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def write(path: Path, payloads: list[bytes], compress: Callable[[bytes], bytes] | None = None) -> Path:
    data = b"".join(map(frame_record, payloads))
    path.write_bytes(data if compress is None else compress(data))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.tfrecord", [example(number) for number in range(COUNT)])


def ids(records: Iterator[Any]) -> list[int]:
    return [int(record["id"][0]) for record in records]


@pytest.fixture(params=["plain", "gzip", "zlib", "stream", "unbuffered pipe"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """A function that gives the same 23 records again and again, as a path or as a stream."""
    payloads = [example(number) for number in range(COUNT)]
    if request.param in ("plain", "stream", "unbuffered pipe"):
        path = write(tmp_path / "a", payloads)
    else:
        path = write(tmp_path / "a", payloads, gzip.compress if request.param == "gzip" else zlib.compress)
    if request.param == "stream":
        yield lambda: io.BytesIO(path.read_bytes())
    elif request.param == "unbuffered pipe":
        pipes: list[Any] = []

        def through_pipe() -> Any:
            readable, writable = os.pipe()

            def feed() -> None:
                data = path.read_bytes()
                for at in range(0, len(data), 11):
                    os.write(writable, data[at : at + 11])
                os.close(writable)

            thread = threading.Thread(target=feed)
            thread.start()
            file = os.fdopen(readable, "rb", buffering=0)
            pipes.append((file, thread))
            return file

        yield through_pipe
        for file, thread in pipes:
            file.read()
            thread.join()
            file.close()
    else:
        yield lambda: path


def test_payloads_in_stored_order_stay_valid(source: Callable[[], Any]) -> None:
    views = list(tfrecord_iterator(source()))
    assert len(views) == COUNT
    for number, view in enumerate(views):
        assert isinstance(view, memoryview)
        assert view.readonly
        assert view == example(number)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 22, 23, 24, 60])
def test_shards_hold_each_record_once(source: Callable[[], Any], shards: int) -> None:
    parts = [ids(example_loader(source(), None, shard=(i, shards))) for i in range(shards)]
    for i, part in enumerate(parts):
        assert part == list(range(i, COUNT, shards))
    assert sorted(itertools.chain.from_iterable(parts)) == list(range(COUNT))


@pytest.mark.parametrize("format", ["text", "extended"])
@pytest.mark.parametrize("shards", [1, 4, 30])
def test_shards_are_the_same_with_an_index(path: Path, format: Any, shards: int) -> None:
    index = path.with_suffix(".idx")
    build_index(path, index, format=format)
    for i in range(shards):
        with_index = [bytes(view) for view in tfrecord_iterator(str(path), str(index), (i, shards))]
        assert with_index == [bytes(view) for view in tfrecord_iterator(path, None, (i, shards))]
        assert len(with_index) == len(range(i, COUNT, shards))


@pytest.mark.parametrize(
    ("shard", "kind"),
    [
        ((3, 3), ValueError),
        ((-1, 2), ValueError),
        ((0, 0), ValueError),
        ((0,), ValueError),
        ((0.5, 2), TypeError),
    ],
)
def test_bad_shards_fail_at_the_call(path: Path, shard: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="shard is"):
        tfrecord_iterator(path, None, shard)
    with pytest.raises(kind, match="shard is"):
        multi_tfrecord_loader("{}", None, {str(path): 1.0}, shard=shard)


def test_one_record_and_none_with_an_index(tmp_path: Path) -> None:
    for count in (0, 1):
        path = write(tmp_path / f"{count}.tfrecord", [example(number) for number in range(count)])
        build_index(path, tmp_path / f"{count}.tfindex", format="text")
        for shard in (None, (0, 1)):
            assert ids(tfrecord_loader(str(path), str(tmp_path / f"{count}.tfindex"), shard=shard)) == [
                *range(count)
            ]
        assert ids(tfrecord_loader(str(path), str(tmp_path / f"{count}.tfindex"), shard=(1, 2))) == []


def test_damage_of_one_record_is_met_by_one_shard(path: Path) -> None:
    data = bytearray(path.read_bytes())
    frame = len(frame_record(example(0)))
    data[5 * frame + 14] ^= 1
    path.write_bytes(data)
    for i in range(4):
        found = []
        try:
            for view in tfrecord_iterator(path, None, (i, 4)):
                found.append(bytes(view))
        except CorruptRecordError as error:
            assert i == 1
            assert (error.path, error.record, error.offset) == (str(path), 5, 5 * frame)
            assert found == [example(1)]
        else:
            assert i != 1
            assert found == [example(number) for number in range(i, COUNT, 4)]
    assert len(list(tfrecord_iterator(path, None, (1, 4), on_error="skip"))) == 5


def test_files_and_indexes_are_looked_at_in_the_call(path: Path, tmp_path: Path) -> None:
    for call in (tfrecord_iterator, tfrecord_loader, example_loader, sequence_loader):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            call(tmp_path / "nowhere", None)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            call(path, tmp_path / "nowhere")
        with pytest.raises(IsADirectoryError):
            call(tmp_path, None)
        with pytest.raises(TypeError, match="data_path must be a path"):
            call(7, None)
        with pytest.raises(ValueError, match="SNAPPY"):
            call(path, None, compression_type="SNAPPY")
        with pytest.raises(ValueError, match="not to a stream"):
            call(io.BytesIO(), path)
    other = write(tmp_path / "other", [example(1)])
    build_index(other, tmp_path / "other.tfindex")
    with pytest.raises(StaleIndexError) as caught:
        tfrecord_loader(path, tmp_path / "other.tfindex")
    assert (caught.value.path, caught.value.index_path) == (str(path), str(tmp_path / "other.tfindex"))


@pytest.mark.parametrize("name", ["gzip", "GZIP", "Gzip", None, "auto"])
def test_spellings_of_gzip(tmp_path: Path, name: str | None) -> None:
    path = write(tmp_path / "a", [example(3)], gzip.compress)
    assert ids(tfrecord_loader(str(path), None, None, None, None, name)) == [3]
    assert ids(tfrecord_loader(str(path), None, compression_type=name)) == [3]


@pytest.mark.parametrize("name", ["", "NONE", "none", None])
def test_spellings_of_plain(path: Path, name: str | None) -> None:
    assert len(ids(tfrecord_loader(str(path), None, compression_type=name))) == COUNT


def test_values_of_a_record(tmp_path: Path) -> None:
    record = example(
        7,
        one=[b"x\0\0"],
        more=[b"a\0\0", b"bcd"],
        floats=[0.5, 1.5],
        ints=[2**63 - 1, -(2**63), 2**40, -1],
        none=[],
    )
    path = write(tmp_path / "a", [record])
    everything = next(tfrecord_loader(str(path), None))
    assert sorted(everything) == ["floats", "id", "ints", "more", "none", "one"]
    assert everything["one"] == b"x\0\0"
    assert everything["more"].dtype == object
    assert everything["more"].tolist() == [b"a\0\0", b"bcd"]
    assert (everything["floats"].dtype, everything["floats"].tolist()) == (np.float32, [0.5, 1.5])
    assert everything["ints"].dtype == np.int64
    assert everything["ints"].tolist() == [2**63 - 1, -(2**63), 2**40, -1]
    assert everything["none"] is None
    for kind, dtype in (("int", np.int64), ("float", np.float32), ("bytes", object)):
        empty = next(tfrecord_loader(str(path), None, {"none": kind}))["none"]
        assert (empty.dtype, empty.shape) == (dtype, (0,))


@pytest.mark.parametrize(
    "description",
    [
        ["id", "x"],
        ("id", "x"),
        {"id": None, "x": None},
        {"id": "int", "x": "byte"},
        {"id": "int64", "x": "bytes"},
        {"id": "int ", "x": " bytes"},
        {"id": FixedLenFeature((1,), "int64"), "x": FixedLenFeature((), "bytes")},
    ],
)
def test_forms_of_a_description(tmp_path: Path, description: Any) -> None:
    path = write(tmp_path / "a", [example(number, x=[b"v"], y=[1.0]) for number in range(3)])
    records = list(tfrecord_loader(str(path), None, description))
    assert [list(record) for record in records] == [["id", "x"]] * 3
    assert [record["id"].tolist() for record in records] == [[0], [1], [2]]
    assert {record["x"] for record in records} == {b"v"}


@pytest.mark.parametrize("description", [None, [], {}, ()])
def test_no_description_means_everything(path: Path, description: Any) -> None:
    assert list(next(tfrecord_loader(str(path), None, description))) == ["id"]


@pytest.mark.parametrize("name", ["int31", "strong", "", 7])
def test_unknown_types_fail_at_the_call(path: Path, name: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tfrecord_loader(str(path), None, {"id": name}),
        lambda: example_loader(str(path), None, {"id": name}),
        lambda: sequence_loader(str(path), None, {"id": name}),
        lambda: sequence_loader(str(path), None, None, {"id": name}),
        lambda: multi_tfrecord_loader("{}", None, {str(path): 1}, {"id": name}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="'float32'.*'int64'"):
            call()


def test_wrong_kind_and_missing_key(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(0, x=[1]), example(1, x=[b"s"]), example(2)])
    wrong = tfrecord_loader(str(path), None, {"x": "int"})
    assert next(wrong)["x"].tolist() == [1]
    with pytest.raises(FeatureKindError) as kind:
        next(wrong)
    assert isinstance(kind.value, TypeError)
    assert (kind.value.key, kind.value.path, kind.value.record) == ("x", str(path), 1)
    assert "x" in str(kind.value) and str(path) in str(kind.value) and "record 1" in str(kind.value)
    missing = tfrecord_loader(str(path), None, ["x"], on_error="skip")
    assert len([next(missing), next(missing)]) == 2
    with pytest.raises(MissingFeatureError) as key:
        next(missing)
    assert isinstance(key.value, KeyError)
    assert (key.value.key, key.value.path, key.value.record) == ("x", str(path), 2)
    with pytest.raises(MissingFeatureError) as key:
        next(tfrecord_loader(str(path), None, {"y": "float"}, (1, 2)))
    assert (key.value.key, key.value.record) == ("y", 1)


def test_sequences(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [sequence(number) for number in range(4)])
    loaders = [
        sequence_loader(str(path), None, {"id": "int"}, {"tokens": "int"}),
        sequence_loader(str(path), None),
        tfrecord_loader(str(path), None, {"id": "int"}, None, {"tokens": "int "}),
        tfrecord_loader(str(path), None, ["id"], sequence_description=["tokens"]),
        tfrecord_loader(str(path), None, sequence_description={}),
    ]
    for loader in loaders:
        records = list(loader)
        assert [context["id"].tolist() for context, _ in records] == [[0], [1], [2], [3]]
        for _, lists in records:
            assert [step.tolist() for step in lists["tokens"]] == [[1], [2, 3], []]
    with pytest.raises(MissingFeatureError) as caught:
        next(sequence_loader(str(path), None, None, {"nothing": "int"}))
    assert (caught.value.key, caught.value.path, caught.value.record) == ("nothing", str(path), 0)


def test_sequences_read_as_plain_examples_are_pointed_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [sequence(number) for number in range(4)])
    with pytest.warns(UserWarning, match="SequenceExamples.*left out") as caught:
        assert ids(tfrecord_loader(str(path), None, {"id": "int"})) == [0, 1, 2, 3]
    assert len(caught) == 1
    assert str(path) in str(caught[0].message)


# ---- several files ----


def test_relative_names_lead_to_the_files_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened when its first record is asked for, and by a mix again and again."""
    (tmp_path / "a.tfrecord").write_bytes(frame_record(b"") * 3)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    payloads = tfrecord_iterator("a.tfrecord")
    mixed = multi_tfrecord_loader("{}.tfrecord", None, {"a": 1})
    assert next(mixed) == {}
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(list(payloads)) == 3
    assert list(itertools.islice(mixed, 7)) == [{}] * 7
