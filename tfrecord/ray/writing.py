"""`write_tfrecords`: a Ray dataset as TFRecord files."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from indexer.compression import Compression
from indexer.files import is_url
from indexer.names import index_names, is_data_name, is_index_name
from indexer.options import suggests_options
from indexer.paths import sidecar_path
from indexer.streams import normalize_compression
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord._kernels.record_type import RecordTypeName, check_record_type
from tfrecord.ray.blocks import RECORD
from tfrecord.writer import TFRecordWriter

__all__ = ["write_tfrecords"]

_MODES = ("error", "append", "overwrite")
_SUFFIXES = {"": "", "gzip": ".gz", "zlib": ".zz", "zstd": ".zst"}
_NAME = re.compile(r"part-([0-9]{6,})-[0-9]{6}\.tfrecord")


@suggests_options
def write_tfrecords(
    dataset: Any,
    folder: str | os.PathLike[str],
    *,
    index: bool = True,
    compression_type: Compression | None = None,
    mode: str = "error",
    record_type: RecordTypeName = "auto",
    min_rows_per_file: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
) -> list[str]:
    """Write a `ray.data.Dataset` to a folder that all workers share; one file for each write task.

    Columns are stored as by `tfrecord.TFRecordWriter.write_batch`; a null becomes a missing feature. Files
    are named after their task, such as ``part-000012-000000.tfrecord``. They are written to a hidden folder
    and moved into place when all tasks have ended. A failed job leaves the folder unchanged, and a retried
    task replaces its own file.

    Args:
        index: write the index of each file beside it.
        compression_type: None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``.
        mode: what to do if the folder holds TFRecord files: ``"error"`` refuses, ``"append"`` adds files,
            ``"overwrite"`` replaces them (other files stay). One job at a time may write to a folder.
        record_type: ``"example"``; ``"sequence_example"`` for columns ``context/NAME`` and
            ``feature_lists/NAME``; ``"bytes"`` for one binary column ``record``. ``"auto"`` uses
            the type from `read_tfrecords` if the dataset still has its schema, or ``"sequence_example"`` if
            all columns have such names, or else ``"example"``.
        min_rows_per_file: join blocks until a file has this many rows.
        concurrency, ray_remote_args: as in Ray's own ``write_...`` methods.

    Returns:
        The paths of the files written, in the order of the tasks.

    Raises:
        FileExistsError: there are files, with ``mode="error"``.
        ValueError, TypeError: an unknown option, or a value that a feature cannot hold; it names the column.
    """
    if mode not in _MODES:
        raise ValueError(f"mode is {mode!r}; it is one of {', '.join(map(repr, _MODES))}")
    check_record_type(record_type)
    compression = normalize_compression(compression_type or "NONE")
    if compression not in _SUFFIXES:
        raise ValueError(f"compression_type is {compression_type!r}; it is None, 'GZIP', 'ZLIB' or 'ZSTD'")
    target = os.path.abspath(os.fsdecode(folder))
    if is_url(os.fsdecode(folder)):
        raise ValueError(
            f"{os.fsdecode(folder)}: the target must be a folder that all workers share, not a URL"
        )
    existing = _data_files(target)
    if existing and mode == "error":
        raise FileExistsError(
            f"{target} holds TFRecord files already; mode='append' adds to them, "
            "mode='overwrite' replaces them"
        )
    stage = os.path.join(target, f".tfrecord-{uuid.uuid4().hex}")
    os.makedirs(stage)
    try:
        sink = _Sink(stage, _FileOptions(bool(index), compression, record_type), min_rows_per_file)
        dataset.write_datasink(sink, concurrency=concurrency, ray_remote_args=ray_remote_args or {})
        if not os.listdir(stage):  # no rows at all: write an empty dataset
            sink.put([], 0)
        written = _publish(stage, target, _next_task(existing) if mode == "append" else 0)
    finally:
        shutil.rmtree(stage)
    if mode == "overwrite":
        for name in set(existing) - set(map(os.path.basename, written)):
            _remove(target, name)
    return written


# ---- in the driver -------------------------------------------------------------------------------------


def _data_files(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return [name for name in os.listdir(folder) if is_data_name(name) and not name.startswith(".")]


def _next_task(names: Iterable[str]) -> int:
    """The first task number that no earlier job has used."""
    found = [_NAME.match(name) for name in names]
    return max((int(match[1]) + 1 for match in found if match), default=0)


def _publish(stage: str, folder: str, first: int) -> list[str]:
    """Move the finished files into place, each index before its data."""
    written = []
    for name in sorted(name for name in os.listdir(stage) if is_data_name(name)):
        match = _NAME.match(name)
        assert match is not None, name
        final = os.path.join(folder, f"part-{int(match[1]) + first:06d}{name[match.end(1) :]}")
        _remove(folder, os.path.basename(final), data=False)
        if os.path.exists(sidecar_path(os.path.join(stage, name))):
            os.replace(sidecar_path(os.path.join(stage, name)), sidecar_path(final))
        os.replace(os.path.join(stage, name), final)
        written.append(final)
    return written


def _remove(folder: str, name: str, data: bool = True) -> None:
    """Remove a data file and its indexes, or (without ``data``) only the indexes."""
    for one in [*index_names(name), *([name] if data else [])]:
        path = os.path.join(folder, one)
        if os.path.lexists(path) and (one == name or is_index_name(one)):
            os.remove(path)


# ---- in the workers ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FileOptions:
    index: bool
    compression: str
    record_type: str


class _Sink(Datasink[None]):  # type: ignore[misc]
    """Writes the blocks of one task to one file in the staging folder."""

    def __init__(self, stage: str, options: _FileOptions, min_rows: int | None) -> None:
        self._stage = stage
        self._options = options
        self._min_rows = min_rows

    def get_name(self) -> str:
        return "TFRecord"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def write(self, blocks: Iterable[Any], ctx: Any) -> None:
        tables = [BlockAccessor.for_block(block).to_arrow() for block in blocks]
        tables = [table for table in tables if table.num_rows]
        if tables:
            self.put(tables, ctx.task_idx)

    def put(self, tables: list[Any], task: int) -> None:
        """Write the file of a task; it replaces the file of an earlier attempt."""
        name = f"part-{task:06d}-000000.tfrecord{_SUFFIXES[self._options.compression]}"
        attempt = os.path.join(self._stage, f".{uuid.uuid4().hex}")
        os.mkdir(attempt)
        path = os.path.join(attempt, name)
        kind = cast(Compression, self._options.compression)
        with TFRecordWriter(path, compression_type=kind, index=self._options.index) as writer:
            for table in tables:
                _write_table(writer, table, self._options.record_type)
        for written in (sidecar_path(path), path):
            if os.path.exists(written):
                os.replace(written, os.path.join(self._stage, os.path.basename(written)))
        os.rmdir(attempt)


def _write_table(writer: TFRecordWriter, table: Any, record_type: str) -> None:
    if record_type == "auto":
        record_type = _type_of(table.schema)
    if record_type == "sequence_example":
        writer.write_batch(SequenceBatch.from_arrow(table))
    elif record_type == "example":
        writer.write_batch(ColumnBatch.from_arrow(table))
    else:
        column = ColumnBatch.from_arrow(table.select([RECORD]))[RECORD]
        if not isinstance(column, BytesColumn):
            raise TypeError(
                f"column {RECORD!r} is {table.schema.field(RECORD).type}; records of bytes are binary"
            )
        for row in range(len(column)):
            writer.write_bytes(column.view(row))


def _type_of(schema: Any) -> str:
    said = (schema.metadata or {}).get(b"tfrecord.record_type", b"").decode()
    if said:
        return str(said)
    prefixed = all(name.startswith(("context/", "feature_lists/")) for name in schema.names)
    return "sequence_example" if schema.names and prefixed else "example"
