"""What a type checker sees of columns and messages; checked by mypy, never run.

A call that must be refused carries an ignore comment: strict mypy reports one that ignores nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

from tfrecord import BytesColumn, ColumnBatch, Ragged, SequenceBatch, decode_tensor_proto, example_pb2
from tfrecord.columns import TensorRagged
from tfrecord.tools.tfrecord2idx import create_index, create_indices, main

rows = np.array([0, 1])
mask = np.array([True, False])


def bytes_columns(column: BytesColumn) -> None:
    assert_type(column[0], bytes)
    assert_type(column[1:], BytesColumn)
    assert_type(column[[0, 1]], BytesColumn)
    assert_type(column[rows], BytesColumn)
    assert_type(column[mask], BytesColumn)
    assert_type(column.view(0), memoryview)
    assert_type(column.lengths, npt.NDArray[np.int64])
    assert_type(column.shape, tuple[int, ...])
    assert_type(len(column), int)
    assert_type(BytesColumn.from_list([b"a", bytearray(b"b")]), BytesColumn)
    assert_type(BytesColumn((b"abc",), [0, 1], np.array([1, 2])), BytesColumn)
    column["name"]  # type: ignore[index]
    BytesColumn((b"abc",), [0], [1], shape=3)  # type: ignore[arg-type]


def ragged(column: Ragged, tensors: TensorRagged) -> None:
    assert_type(Ragged([1, 2, 3], [0, 3]), Ragged)
    assert_type(column[1:], Ragged)
    assert_type(column[mask], Ragged)
    assert_type(column.lengths(), npt.NDArray[np.int64])
    assert_type(column.row_splits, npt.NDArray[np.int64])
    assert_type(column.mask(5), npt.NDArray[np.bool_])
    assert_type(column.to_padded(0, max_length=5), npt.NDArray[Any])
    assert_type(column.to_padded(0, (3, None)), npt.NDArray[Any])
    assert_type(column.to_list(), list[Any])
    assert_type(tensors.to("cuda"), TensorRagged)
    assert_type(tensors.pin_memory(), TensorRagged)
    assert_type(tensors.numpy(), Ragged)
    column.to_padded(0, max_length="all")  # type: ignore[arg-type]


def batches(batch: ColumnBatch, sequence: SequenceBatch) -> None:
    assert_type(batch[1:], ColumnBatch)
    assert_type(batch[[0, 5]], ColumnBatch)
    assert_type(batch[mask], ColumnBatch)
    assert_type(batch.num_rows, int)
    assert_type(batch.present, Mapping[str, npt.NDArray[np.bool_]])
    assert_type(batch.row(0), dict[str, Any])
    assert_type(batch.to_list(), list[dict[str, Any]])
    assert_type(batch.to_torch(ragged="pad"), dict[str, Any])
    assert_type(iter(batch), Iterator[str])
    assert_type(sequence.context, ColumnBatch)
    assert_type(sequence[1:], SequenceBatch)
    context, feature_lists = sequence
    assert_type(context, ColumnBatch)
    assert_type(feature_lists, ColumnBatch)
    batch[0]  # type: ignore[call-overload]
    batch["x"] = batch["y"]  # type: ignore[index]
    mapping: Mapping[str, Any] = batch
    assert mapping


def messages(example: example_pb2.Example, sequence: example_pb2.SequenceExample) -> None:
    feature = example.features.feature["x"]
    assert_type(feature, example_pb2.Feature)
    assert_type(feature.WhichOneof("kind"), Literal["bytes_list", "float_list", "int64_list"] | None)
    assert_type(feature.int64_list, example_pb2.Int64List)
    assert_type(list(feature.int64_list.value), list[int])
    assert_type(list(feature.float_list.value), list[float])
    assert_type(list(feature.bytes_list.value), list[bytes])
    assert_type(sequence.feature_lists.feature_list["x"].feature[0], example_pb2.Feature)
    assert_type(example_pb2.Example.FromString(b""), example_pb2.Example)
    assert_type(example.SerializeToString(), bytes)
    example_pb2.Int64List(value=["a"])  # type: ignore[list-item]
    feature.WhichOneof("sort")  # type: ignore[arg-type]


def tools() -> None:
    assert_type(main(["a.tfrecord", "a.tfindex"]), int)
    create_index("a.tfrecord", "a.tfindex")
    create_indices("folder")
    assert_type(decode_tensor_proto(b""), npt.NDArray[Any])
