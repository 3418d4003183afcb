"""Files of records for the tests of readers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from indexer.errors import TFRecordError
from indexer.framing import frame_record
from tfrecord.columns import ColumnBatch
from tfrecord.example_pb2 import Example, SequenceExample

Record = TypeVar("Record")


def example(number: int) -> bytes:
    message = Example()
    features = message.features.feature
    features["id"].int64_list.value.append(number)
    features["name"].bytes_list.value.append(b"n%d" % number)
    features["list"].float_list.value.extend([number / 2] * (number % 4))
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def sequence(number: int) -> bytes:
    message = SequenceExample()
    message.context.feature["id"].int64_list.value.append(number)
    steps = message.feature_lists.feature_list["tokens"].feature
    for step in range(number % 3):
        steps.add().int64_list.value.extend([step, number])
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def write(path: Path, payloads: list[bytes]) -> Path:
    data = b"".join(map(frame_record, payloads))
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zz":
        data = zlib.compress(data)
    path.write_bytes(data)
    return path


def ids(records: Any) -> list[int]:
    if isinstance(records, ColumnBatch):
        column = records["id"]  # dense where a schema of all records is known
        return column.tolist() if isinstance(column, np.ndarray) else [row[0] for row in column.to_list()]
    return [int(record["id"][0]) for record in records]


def read_all(records: Iterator[Record]) -> tuple[list[Record], TFRecordError | None]:
    """All records up to the first error, and that error."""
    found = []
    try:
        for record in records:
            found.append(record)
    except TFRecordError as error:
        return found, error
    return found, None
