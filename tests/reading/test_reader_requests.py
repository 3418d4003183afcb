"""What may be asked of a reader, and how it shows itself."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.errors import ChecksumError, DecodeError, FeatureKindError, MissingFeatureError
from tfrecord.encode import encode_example
from tfrecord.reader import TFRecordReader, build_index
from tfrecord.writer import TFRecordWriter

PAYLOADS = [encode_example({"x": (number, "int")}) for number in range(3)]


@pytest.mark.parametrize("positions", [[True, 1], (2, False), [0, np.True_, 2], [True, np.int8(1)]])
def test_bools_and_integers_in_one_list(positions: Any, make_file: Any) -> None:
    reader = TFRecordReader(make_file(PAYLOADS))
    for ask in (reader.read, reader.read_raw, reader.select, reader.__getitem__, reader[:]["x"].__getitem__):
        with pytest.raises(TypeError, match=r"integers or a mask of bools, not both in one list"):
            ask(positions)


def test_masks(make_file: Any) -> None:
    reader = TFRecordReader(make_file(PAYLOADS))
    for mask in ([True, False, True], (np.True_, False, True), np.array([True, False, True])):
        assert reader.read(mask)["x"].to_list() == [[0], [2]]


def test_payloads_in_a_list(make_file: Any) -> None:
    reader = TFRecordReader(make_file(PAYLOADS))
    for payloads in (PAYLOADS, tuple(map(bytearray, PAYLOADS)), iter(PAYLOADS), reader.read_raw([0, 1, 2])):
        assert reader.decode(payloads)["x"].to_list() == [[0], [1], [2]]
    assert reader.decode([]).num_rows == 0
    for wrong in (PAYLOADS[0], "text", np.zeros(3, np.uint8), 7, [PAYLOADS[0], "text"], [None]):
        with pytest.raises(TypeError, match="bytes|iterable"):
            reader.decode(wrong)
    as_bytes = TFRecordReader(reader.paths, record_type="bytes")
    assert as_bytes.decode(PAYLOADS).to_list() == PAYLOADS


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("with_index", [False, True])
def test_schema_counts_records_that_are_no_messages(count: int, with_index: bool, make_file: Any) -> None:
    path = make_file([b"\xff\xff\xff"] * count)
    if with_index:
        build_index(path)
    schema = TFRecordReader(path, record_type="bytes").schema
    assert schema.num_records == count
    if count:
        assert repr(schema) == f"Schema of {count} record{'s' * (count > 1)} (bytes)"


def test_schema_counts_the_records_of_all_files(make_file: Any) -> None:
    paths = [make_file(PAYLOADS, name="a.tfrecord"), make_file([b"\xff"] * 2, name="b.tfrecord")]
    build_index(paths[0])
    schema = TFRecordReader(paths, record_type="bytes").schema
    assert (schema.num_records, schema.record_type) == (5, "bytes")


def test_names_that_are_no_utf8_can_be_printed(tmp_path: Path) -> None:
    path = os.path.join(os.fsdecode(tmp_path), os.fsdecode(b"n\xff.tfrecord"))
    try:
        with TFRecordWriter(path) as writer:
            shown = [repr(writer)]
            writer.write({"x": (1, "int")})
    except OSError:
        pytest.skip("a file system whose names are UTF-8")
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    reader = TFRecordReader(path)
    shown += [repr(reader), str(reader)]
    with pytest.raises(ChecksumError) as caught:
        list(reader)
    assert caught.value.path == path
    shown.append(str(caught.value))
    with pytest.raises(FileNotFoundError) as missing:
        TFRecordReader(path + "-")
    shown.append(str(missing.value))
    for text in shown:
        assert "n\\udcff.tfrecord" in text
        text.encode()


def test_a_column_that_an_index_cannot_keep_names_the_file(make_file: Any) -> None:
    path = make_file([*PAYLOADS, encode_example({"x": ([1, 2], "int")})])
    with pytest.raises(DecodeError, match="record 3: feature 'x': has 2 values") as caught:
        build_index(path, columns=["x"])
    assert (caught.value.path, caught.value.record) == (str(path), 3)
    with pytest.raises(MissingFeatureError, match="'absent': no record has it") as missing:
        build_index(path, columns=["absent"])
    assert missing.value.path == str(path)
    mixed = make_file([*PAYLOADS, encode_example({"x": (0.5, "float")})] * 400, name="b.tfrecord")
    with pytest.raises((DecodeError, FeatureKindError)) as other:
        build_index(mixed, columns=["x"])
    assert other.value.path == str(mixed)


def test_a_file_object_is_no_path() -> None:
    with pytest.raises(TypeError, match="only the loaders take open files"):
        TFRecordReader(io.BytesIO(b"\n\n"))  # type: ignore[arg-type]
