"""`write`: writes a whole file in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from indexer.build import check_index_name
from indexer.compression import Compression
from indexer.options import suggests_options
from indexer.outputs import Outputs, is_special
from tfrecord._writing.encoder import RowFrames
from tfrecord._writing.flat_columns import flatten_batch
from tfrecord._writing.index import OldIndexes, WrittenIndex
from tfrecord._writing.targets import local_path
from tfrecord._writing.writer import Mode, TFRecordWriter, write_rows

__all__ = ["write"]


@suggests_options
def write(
    data_path: Any,
    data: Any,
    *,
    present: Mapping[str, Any] | None = None,
    mode: Mode = "w",
    compression_type: Compression | None = None,
    compression_level: int | None = None,
    index: bool | None = None,
    columns: Iterable[str] | None = None,
    storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
) -> int:
    """Write a whole file of records from columns, and return the number of records.

    Args:
        data_path: as for `TFRecordWriter`: a path, a URL, or a binary file.
        data, present: what `TFRecordWriter.write_batch` takes: a dict of columns, a `ColumnBatch` or
            `SequenceBatch`, a pandas or polars DataFrame, Arrow data, or a reader.
        mode, compression_type, compression_level, index, columns, storage_options: the options of
            `TFRecordWriter`.

    A local file appears whole or not at all: an existing file stays until the new one is complete. With
    ``mode="a"`` all records are appended, or none. Errors are those of `write_batch` and `TFRecordWriter`.
    """
    rows = RowFrames(flatten_batch(data, present))
    path = local_path(data_path)
    if path is None or mode not in ("w", "x") or is_special(path):
        with TFRecordWriter(
            data_path,
            mode=mode,
            compression_type=compression_type,
            compression_level=compression_level,
            index=index,
            columns=columns,
            storage_options=storage_options,
        ) as writer:
            write_rows(rows, [writer], 0, lambda writer: None)
        return len(rows.lengths)
    if mode == "x" and os.path.lexists(path):
        raise FileExistsError(f"{path} already exists, and mode 'x' only writes new files")
    made, old = None, OldIndexes(path)
    keeps = index or columns or (index is None and old.extended is not None)
    if keeps:
        check_index_name(path)
    with Outputs() as outputs:
        writer = TFRecordWriter(
            outputs.open(path), compression_type=compression_type, compression_level=compression_level
        )
        if keeps:
            none = np.empty(0, np.uint64)
            made = writer._index = WrittenIndex(old, writer._output.compression, none, columns)
        with writer:
            write_rows(rows, [writer], 0, lambda writer: None)
            writer._index = None  # the index is for the finished file, which is not in place yet
        if made is not None and index:
            made.check()
    if made is not None:
        made.commit(writer.tell(), required=bool(index), points=writer._output.points)
    elif not index:
        old.remove()
    return len(rows.lengths)
