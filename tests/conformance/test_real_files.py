"""Files that other software wrote: counts, keys, kinds and values equal to what protobuf parses."""

from __future__ import annotations

import gzip
import multiprocessing
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.formats import text_lines
from tfrecord.example_pb2 import Example, SequenceExample
from tfrecord.loaders import tfrecord_loader
from tfrecord.reader import TFRecordReader

COUNTS = {
    "mnist.tfrecord": 1000,
    "taxi-00001-of-00002.tfrecord.gz": 5012,
    "penguin_train-00000-of-00001.gz": 234,
    "ranking_sequence_eval.gz": 4500,
    "toy.nocompress-tfe-tfrecord-00000-of-00002": 3,
    "toy.nocompress-tfe-tfrecord-00001-of-00002": 1,
    "adult_test.recordio.gz": 9769,
    **{f"taxi_csv_eval-{number:05d}-of-00012.gz": None for number in range(12)},
}
PLAIN = [name for name in COUNTS if not name.endswith(".gz")]


def payloads_of(path: Path) -> list[bytes]:
    """The payloads by the obvious reading of the format, none of the library's."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    assert at == len(data)
    return found


def expected_value(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    values = list(getattr(feature, kind).value)
    if kind == "bytes_list":
        return values[0] if len(values) == 1 else (np.dtype(object), values)
    return (np.dtype(np.float32 if kind == "float_list" else np.int64), values)


def plain_value(value: Any) -> Any:
    return value if value is None or isinstance(value, bytes) else (value.dtype, value.tolist())


def check_example(record: dict[str, Any], payload: bytes) -> None:
    features = Example.FromString(payload).features.feature
    assert sorted(record) == sorted(features)
    for key, value in record.items():
        assert plain_value(value) == expected_value(features[key]), key


def check_sequence(record: tuple[dict[str, Any], dict[str, Any]], payload: bytes) -> None:
    message = SequenceExample.FromString(payload)
    context, lists = record
    assert sorted(context) == sorted(message.context.feature)
    for key, value in context.items():
        assert plain_value(value) == expected_value(message.context.feature[key]), key
    assert sorted(lists) == sorted(message.feature_lists.feature_list)
    for key, steps in lists.items():
        expected = message.feature_lists.feature_list[key].feature
        assert [plain_value(step) for step in steps] == [expected_value(step) for step in expected], key


@pytest.mark.parametrize("name", COUNTS)
def test_records_are_what_protobuf_parses(shared: Path, name: str) -> None:
    path = shared / "data" / name
    payloads = payloads_of(path)
    assert COUNTS[name] in (None, len(payloads))
    reader = TFRecordReader(path)
    is_sequence = name.startswith("ranking")
    assert reader.record_type == ("sequence_example" if is_sequence else "example")
    check = check_sequence if is_sequence else check_example
    assert len(reader) == len(payloads)
    order = random.Random(0).sample(range(len(payloads)), min(len(payloads), 300))
    for position in order:
        check(reader[position], payloads[position])
        assert reader.raw(position) == payloads[position]
    everything = reader.read_raw(range(len(payloads) - 1, -1, -1))  # backwards
    assert everything.to_list() == payloads[::-1]
    loader = tfrecord_loader(path, None, sequence_description={} if is_sequence else None)
    few = payloads[:300]
    for stored, streamed, payload in zip(reader, loader, few, strict=False):
        check(stored, payload)
        check(streamed, payload)
    assert sum(batch.num_rows for batch in reader.batches(1000)) == len(payloads)


@pytest.mark.parametrize("name", COUNTS)
def test_columns_hold_the_same_values(shared: Path, name: str) -> None:
    if name.startswith("ranking"):
        pytest.skip("the columns of sequences have a test of their own")
    path = shared / "data" / name
    payloads = payloads_of(path)[:500]
    batch = TFRecordReader(path)[: len(payloads)]
    messages = [Example.FromString(payload).features.feature for payload in payloads]
    assert sorted(batch) == sorted({key for message in messages for key in message})
    for key, column in batch.items():
        expected = []
        for message in messages:
            kind = message[key].WhichOneof("kind") if key in message else None
            expected.append([] if kind is None else list(getattr(message[key], kind).value))
        assert column.to_list() == expected, key
        present = [key in message and message[key].WhichOneof("kind") is not None for message in messages]
        assert batch.present[key].tolist() == present, key


def test_columns_of_sequences(shared: Path) -> None:
    path = shared / "data" / "ranking_sequence_eval.gz"
    messages = [SequenceExample.FromString(payload) for payload in payloads_of(path)[:500]]
    batch = TFRecordReader(path)[:500]
    for key, column in batch.feature_lists.items():
        expected = []
        for message in messages:
            steps = message.feature_lists.feature_list[key].feature
            kinds = [step.WhichOneof("kind") for step in steps]
            expected.append(
                [
                    [] if kind is None else list(getattr(step, kind).value)
                    for step, kind in zip(steps, kinds, strict=True)
                ]
            )
        assert column.to_list() == expected, key


@pytest.mark.parametrize("name", PLAIN)
def test_text_index_is_that_of_the_lineage(shared: Path, name: str) -> None:
    """A line ``offset size`` a record, as its tool writes it."""
    path = shared / "data" / name
    lines, at = [], 0
    for payload in payloads_of(path):
        lines.append(f"{at} {len(payload) + 16}\n")
        at += len(payload) + 16
    reader = TFRecordReader(path)
    assert len(reader) == len(lines)
    assert text_lines(reader._view.store.index(0)) == "".join(lines).encode()


def test_twelve_shards_as_one(shared: Path) -> None:
    reader = TFRecordReader(shared / "data" / "taxi_csv_eval-*")
    paths = sorted((shared / "data").glob("taxi_csv_eval-*"))
    assert reader.paths == tuple(map(str, paths))
    payloads = [payload for path in paths for payload in payloads_of(path)]
    assert len(reader) == len(payloads)
    asked = np.random.default_rng(0).integers(0, len(payloads), 300)
    assert reader.read_raw(asked).to_list() == [payloads[position] for position in asked]
    for position in asked[:50].tolist():
        path, record = reader.locate(position)
        assert payloads_of(Path(path))[record] == payloads[position]


def read_in_a_process(args: tuple[TFRecordReader, list[int]]) -> list[bytes]:
    reader, positions = args
    return [bytes(reader.raw(position)) for position in positions]


def test_from_four_processes(shared: Path) -> None:
    names = ["mnist.tfrecord", "penguin_train-00000-of-00001.gz", "taxi-00001-of-00002.tfrecord.gz"]
    paths = [shared / "data" / name for name in names]
    reader = TFRecordReader(paths)
    payloads = [payload for path in paths for payload in payloads_of(path)]
    orders = [random.Random(seed).sample(range(len(payloads)), 200) for seed in range(4)]
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(read_in_a_process, [(reader, order) for order in orders])
    assert found == [[payloads[position] for position in order] for order in orders]
