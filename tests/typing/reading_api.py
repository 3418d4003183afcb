"""What a type checker sees of reading, writing and indexing; checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import indexer
import tfrecord
from tfrecord import (
    BytesColumn,
    ColumnBatch,
    FixedLenFeature,
    RaggedFeature,
    SequenceBatch,
    ShardedTFRecordWriter,
    TFRecordReader,
    TFRecordWriter,
    VarLenFeature,
    example_loader,
    iterator_utils,
    multi_tfrecord_loader,
    parse_example,
    parse_example_list,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
    sequence_loader,
    tfrecord_iterator,
    tfrecord_loader,
)

Pair = tuple[dict[str, Any], dict[str, Any]]


def parsing(records: list[bytes], column: BytesColumn) -> None:
    features = {
        "x": FixedLenFeature((2,), "float32", 0.0),
        "y": VarLenFeature("int"),
        "z": RaggedFeature(bytes),
    }
    assert_type(parse_example(records, features), ColumnBatch)
    assert_type(parse_example(column, ["x"], num_threads=2), ColumnBatch)
    assert_type(parse_example_list(column, None, {"x": "int"}, num_threads=2), SequenceBatch)
    assert_type(parse_single_example(records[0], {"x": "float"}), dict[str, Any])
    assert_type(parse_sequence_example(records, None, {"x": None}), SequenceBatch)
    assert_type(parse_single_sequence_example(records[0]), Pair)


def reading() -> None:
    with TFRecordReader(["a.tfrecord", Path("b.tfrecord")], index="build", max_skips=3) as reader:
        assert_type(reader, TFRecordReader[ColumnBatch])
        assert_type(len(reader), int)
        assert_type(reader.raw(0), memoryview)
        assert_type(reader.read_raw([5, 1]), BytesColumn)
        assert_type(reader.read([5, 1]), ColumnBatch)
        assert_type(reader.read([5, 1])["index"], Any)
        assert_type(reader[0], dict[str, Any])
        assert_type(reader[1:], ColumnBatch)
        assert_type(reader[[5, 1]], ColumnBatch)
        assert_type(reader[np.zeros(2, np.bool_)], ColumnBatch)
        assert_type(reader.batches(32, shuffle=True, seed=1), Iterator[ColumnBatch])
        assert_type(iter(reader), Iterator[dict[str, Any]])
        assert_type(reader.select([5, 1]), TFRecordReader[ColumnBatch])
        assert_type(reader.feature_names, tuple[str, ...])
        assert_type(reader.where(label=3), npt.NDArray[np.int64])
        assert_type(reader.locate(0), tuple[str, int])
        assert_type(reader.paths, tuple[str, ...])
        assert_type(reader.num_skipped, int)
    sequences = TFRecordReader("a", record_type="sequence_example")
    assert_type(sequences, TFRecordReader[SequenceBatch])
    assert_type(sequences[0], tuple[dict[str, Any], dict[str, Any]])
    assert_type(sequences[1:].feature_lists, ColumnBatch)
    assert_type(TFRecordReader("a", sequence_features=["x"]), TFRecordReader[SequenceBatch])
    payloads = TFRecordReader("a", record_type="bytes", verify=False)
    assert_type(payloads, TFRecordReader[BytesColumn])
    assert_type(payloads[0], bytes)
    assert_type(payloads.read([1]), BytesColumn)


def refusing() -> None:
    TFRecordReader("a", max_skips="many")  # type: ignore[call-overload]
    TFRecordReader("a", "index")  # type: ignore[call-overload]
    TFRecordReader("a", record_type="exampel")  # type: ignore[call-overload]
    TFRecordReader("a", verfy=False)  # type: ignore[call-overload]
    TFRecordReader("a", on_error="skp")  # type: ignore[call-overload]
    TFRecordReader("a").batches(32, shuffle="block")  # type: ignore[arg-type]
    tfrecord.verify("a", record_type="exampel")  # type: ignore[arg-type]
    tfrecord.build_index("a", record_type="exampel")  # type: ignore[call-overload]
    TFRecordReader("a", compression_type="gizp")  # type: ignore[call-overload]
    TFRecordReader("a").batches(32, shuffel=True)  # type: ignore[call-arg]
    TFRecordWriter("a", mode="q")  # type: ignore[arg-type]
    TFRecordWriter("a", compression="GZIP")  # type: ignore[call-arg]
    tfrecord.write("a", {}, mode="q")  # type: ignore[arg-type]


def loading() -> None:
    assert_type(tfrecord_iterator("a.tfrecord", None, (0, 2)), Iterator[memoryview])
    assert_type(example_loader("a.tfrecord", None, {"x": "int"}), Iterator[dict[str, Any]])
    assert_type(sequence_loader("a.tfrecord", None, ["x"], ["y"]), Iterator[Pair])
    assert_type(tfrecord_loader("a.tfrecord", None), Iterator[Any])
    assert_type(multi_tfrecord_loader("{}.tfrecord", None, {"a": 1.0}), Iterator[Any])
    assert_type(iterator_utils.cycle(lambda: [1, 2]), Iterator[int])
    assert_type(iterator_utils.shuffle_iterator(iter(["a"]), 10), Iterator[str])


def writing(label: int) -> None:
    with TFRecordWriter("a.tfrecord", mode="x", compression_type="GZIP") as writer:
        assert_type(writer, TFRecordWriter)
        writer.write({"label": (label, "int"), "name": (b"a", "byte"), "x": ([1.5, 2.0], "float")})
        writer.write({"n": (1, "int")}, {"tokens": ([[1], [2, 3]], "int")})
        writer.write_bytes(b"record")
        writer.write_batch({"x": np.zeros(3)})
        assert_type(writer.tell(), int)
        assert_type(writer.num_records, int)
    with ShardedTFRecordWriter("base", 3) as shards:
        assert_type(shards, ShardedTFRecordWriter)
    TFRecordWriter("a.tfrecord", compression_type=3)  # type: ignore[arg-type]


def indexing(error: indexer.CorruptRecordError) -> None:
    index = indexer.build_index("a.tfrecord", None, format="text")
    assert_type(index, indexer.RecordIndex)
    assert_type(index.offsets, npt.NDArray[np.uint64])
    assert_type(indexer.load_index("a.tfrecord.tfindex"), indexer.RecordIndex)
    assert_type(indexer.frame_record(b"x"), bytes)
    assert_type(error.path, str | None)
    assert_type(error.record, int | None)
    assert_type(error.reason, str)
    runtime_error: RuntimeError = error
    assert runtime_error
    assert_type(tfrecord.build_index("a.tfrecord", columns=["label"]), indexer.RecordIndex)
    assert_type(tfrecord.engine, str)
    assert_type(tfrecord.__version__, str)
    indexer.build_index("a.tfrecord", format="binary")  # type: ignore[arg-type]
