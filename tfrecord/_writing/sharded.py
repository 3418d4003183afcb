"""`ShardedTFRecordWriter`: records distributed over several files."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from indexer.compression import Compression
from indexer.errors import TFRecordError
from indexer.files import is_url, most_descriptors
from indexer.options import suggests_options
from indexer.stores import open_store
from tfrecord._writing.encoder import Record, RowFrames
from tfrecord._writing.flat_columns import flatten_batch
from tfrecord._writing.targets import local_path
from tfrecord._writing.writer import TFRecordWriter, write_rows

__all__ = ["ShardedTFRecordWriter"]

# How many shards are open at a time.
_MAX_OPEN = 64


class ShardedTFRecordWriter:
    """Writes the shards ``base-00000-of-0000N`` in turn: record i goes to shard i modulo N.

    The shards are balanced to within one record, and those without a record are valid empty files. At most
    a few dozen files are open at a time, however many shards there are; each compressed shard holds its
    compressor (about 256 kB).

    Args:
        base: path of the shards without the suffix; its folder is created.
        num_shards: how many shards, at least 1.
        compression_type, compression_level, index, columns, storage_options: as for `TFRecordWriter`, for
            every shard.
    """

    __module__ = "tfrecord.writer"

    @suggests_options
    def __init__(
        self,
        base: Any,
        num_shards: int,
        *,
        compression_type: Compression | None = None,
        compression_level: int | None = None,
        index: bool | None = None,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._writers: list[TFRecordWriter] = []
        count = operator.index(num_shards)
        if isinstance(num_shards, bool) or count < 1:
            raise ValueError(f"num_shards is {num_shards!r}; it must be at least 1")
        name = os.fsdecode(os.fspath(base))
        if not os.path.basename(name):
            raise ValueError(f"the base is {name!r}; it must end in the name that all shards begin with")
        self.paths = tuple(f"{name}-{i:05d}-of-{count:05d}" for i in range(count))
        self._open: OrderedDict[int, TFRecordWriter] = OrderedDict()
        self._most_open = min(_MAX_OPEN, most_descriptors())
        self._num_records = 0
        self._closed = False
        self._lock = threading.RLock()
        folder = os.path.dirname(local_path(name) or "")
        if folder:
            os.makedirs(folder, exist_ok=True)
        try:
            for path in self.paths:
                self._writers.append(
                    TFRecordWriter(
                        path,
                        compression_type=compression_type,
                        compression_level=compression_level,
                        index=index,
                        columns=columns,
                        storage_options=storage_options,
                    )
                )
                self._use(self._writers[-1])
        except BaseException:
            self._finish(False)
            raise

    @property
    def num_records(self) -> int:
        """Records written to all shards."""
        return self._num_records

    def _use(self, writer: TFRecordWriter) -> None:
        """Keep few files open: those written last."""
        self._open[id(writer)] = writer
        self._open.move_to_end(id(writer))
        if len(self._open) > self._most_open:
            self._open.popitem(last=False)[1]._output.park()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"the writer of {self.paths[0]} and its siblings is closed")
        self._writers[0]._check_open()

    def _next(self) -> TFRecordWriter:
        writer = self._writers[self._num_records % len(self._writers)]
        self._use(writer)
        return writer

    def write(self, datum: Record, sequence_datum: Mapping[str, Any] | None = None) -> None:
        """Write one Example or SequenceExample to the next shard; see `TFRecordWriter.write`."""
        self._check_open()
        with self._lock:
            self._next().write(datum, sequence_datum)
            self._num_records += 1

    def write_bytes(self, record: Any) -> None:
        """Write any bytes-like to the next shard, unchanged."""
        self._check_open()
        with self._lock:
            self._next().write_bytes(record)
            self._num_records += 1

    @suggests_options
    def write_batch(self, columns: Any, *, present: Mapping[str, Any] | None = None) -> None:
        """Write n records from columns, distributed over the shards; see `TFRecordWriter.write_batch`."""
        self._check_open()
        rows = RowFrames(flatten_batch(columns, present))
        with self._lock:
            self._check_open()
            write_rows(rows, self._writers, self._num_records % len(self._writers), self._use)
            self._num_records += len(rows.lengths)

    def flush(self) -> None:
        """Pass all records to the operating system."""
        self._check_open()
        with self._lock:
            for writer in self._writers:
                self._use(writer)
                writer.flush()

    def close(self) -> None:
        """Finish all shards. If one fails, the others are finished before its error is raised. Closing twice
        is fine."""
        self._finish(True)

    def _finish(self, clean: bool) -> None:
        self._closed = True
        try:
            with contextlib.ExitStack() as stack:
                for writer in reversed(self._writers):
                    stack.callback(writer._finish, clean)
        except BaseException:
            self._take_back()
            raise
        finally:
            self._open.clear()

    def _take_back(self) -> None:
        """Remove the objects that were created, because the set is incomplete."""
        for writer in self._writers:
            path = writer._output.path
            if path is not None and is_url(path) and writer._output.has_changed:
                for name in (path, path + ".tfindex"):
                    with contextlib.suppress(OSError, TFRecordError):
                        store, key = open_store(name)
                        store.delete(key)

    def __enter__(self) -> ShardedTFRecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(kind is None)
