"""`TFRecordWriter`: records to one file."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from indexer.build import check_index_name
from indexer.compression import Compression
from indexer.errors import TFRecordError, printable
from indexer.files import is_url
from indexer.framing import FRAME_OVERHEAD, frame_footer, frame_header, masked_crc32c
from indexer.names import split_compression
from indexer.options import suggests_options, warn_caller
from indexer.stores import StoreOptions, Url
from indexer.stores.upload import check_writable
from tfrecord._writing.encoder import (
    Datum,
    Record,
    RowFrames,
    encode_example,
    encode_frame,
    encode_sequence_example,
    frame_bytes,
)
from tfrecord._writing.flat_columns import flatten_batch
from tfrecord._writing.index import OldIndexes, WrittenIndex
from tfrecord._writing.sink import Output
from tfrecord._writing.targets import target_path
from tfrecord._writing.values import describe

__all__ = ["TFRecordWriter", "write_rows"]

Mode = Literal["w", "x", "a"]

# Records from this size on are written in three parts, not copied into one.
_COPY_BELOW = 1 << 24
# So much of a batch is encoded before it is written.
_BATCH_BYTES = 4 << 20


class TFRecordWriter:
    """Writes records to a path, a URL or a binary file.

    Args:
        data_path: a path, a URL, or an object with a binary `write` (written from its current position,
            flushed but not closed by `close`; short writes are completed).
        mode: ``"w"`` replaces, ``"x"`` requires a new file, ``"a"`` appends.
        compression_type: None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``, upper or lower case. zstd needs the
            extra ``zstd``; TensorFlow cannot read it.
        compression_level: 0 to 9 for gzip and zlib, 1 to 22 for zstd; None is the usual one (6; zstd 3). If
            the package isal is installed, it compresses at the levels 1 to 3, several times as fast as zlib.
        index: True makes the extended index as records are written; it replaces the old one on a clean
            `close`. None does so only if the file already has an index, so that no index of other data is
            left behind. False removes an existing index.
        columns: what the index keeps for each record, as for `tfrecord.build_index`; None keeps what the old
            one kept.
        storage_options: options for URLs; see `indexer.stores.StoreOptions`. An object behind a URL appears
            only after a clean `close`, complete; its index follows.

    Each record reaches the file whole, in one write, without a buffer here: once `write` returns, the
    operating system has the record. A record that is refused, or cannot be written, leaves the file as it was
    before. A pipe or a compressed file cannot be truncated, so after a failed write it accepts no more
    records. A compressed file is complete only after `close`, which raises if it cannot be completed.

    Several threads may write at once. A forked process must not write to the file: writing raises there, and
    `close` leaves the file to its parent. A writer cannot be pickled or copied.

    Appending first scans the headers of the whole file. An incomplete last record is cut off, with a
    `RuntimeWarning`; other damage, another compression and zlib are refused. Appending to gzip adds a member,
    to zstd a frame.

    A gzip or zlib stream can be entered after each 896 KiB of records, because what follows does not refer to
    what came before. This makes files less than 1 % larger, and their indexes small.

    Raises:
        ValueError: the mode or compression is unknown.
        FileExistsError: the file exists and the mode is ``"x"``.
    """

    __module__ = "tfrecord.writer"

    @suggests_options
    def __init__(
        self,
        data_path: Any,
        *,
        mode: Mode = "w",
        compression_type: Compression | None = None,
        compression_level: int | None = None,
        index: bool | None = None,
        columns: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._closed = True  # so that the finalizer has nothing to do after a failure below
        self._lock = threading.RLock()  # a signal handler may close a writer that is in use
        if storage_options is not None:
            data_path = Url(os.fsdecode(data_path), StoreOptions(storage_options))
        path = target_path(data_path)
        if path is not None:
            check_writable(path)
            kind = split_compression(path)[1]
            if kind and compression_type is None and mode != "a":
                warn_caller(
                    f"{printable(path)} is written without compression, in spite of its name; "
                    f"use compression_type={kind.upper()!r}, or '' if that is meant"
                )
        indexable = path is not None and (is_url(path) or not os.path.exists(path) or os.path.isfile(path))
        if not indexable and (index or columns):
            raise ValueError(
                "an index needs the path of a regular file, or a URL; "
                "elsewhere use tfrecord.build_index afterwards"
            )
        self._old = OldIndexes(path) if indexable and path is not None else None
        self._wants_index = index
        had_index = self._old is not None and self._old.extended is not None
        keeps = index or columns or (index is None and had_index)
        if keeps and path is not None:
            check_index_name(path)
        self._output = Output(data_path, mode, compression_type, compression_level)
        self._pid = os.getpid()
        self._num_records = len(self._output.lengths)
        self._untouched = None if mode == "w" else self._output.size
        self._index: WrittenIndex | None = None
        if self._old is not None and keeps:
            try:
                self._index = WrittenIndex(self._old, self._output.compression, self._output.lengths, columns)
            except BaseException:
                self._output.abandon()
                raise
        self._output.lengths = self._output.lengths[:0]
        self._closed = False

    @property
    def num_records(self) -> int:
        """Records in the file: those written, and with ``mode="a"`` those that it already held."""
        return self._num_records

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def tell(self) -> int:
        """Offset of the next record in the record stream (before compression)."""
        return self._output.size

    def write(self, datum: Record, sequence_datum: Mapping[str, Any] | None = None) -> None:
        """Write one tf.train.Example, or with `sequence_datum` a tf.train.SequenceExample of context `datum`.

        Both map a name to ``(value, typename)``; see `tfrecord.encode_example` for values and errors.
        Values whose type is known, such as those from ``reader[i]``, need no type name: an array, a NumPy
        scalar, or bytes. None is a feature that the record lacks. For a SequenceExample, `datum` may be the
        pair that ``reader[i]`` returns.
        """
        self._check_open()
        frame = encode_frame(datum, sequence_datum)
        with self._lock:
            self._check_closed()
            self._put(frame)

    def write_bytes(self, record: Any) -> None:
        """Write any bytes-like of any size as one record, unchanged."""
        self._check_open()
        payload = _payload_view(record)
        size = payload.nbytes + FRAME_OVERHEAD
        if size < _COPY_BELOW:
            frame = frame_bytes(payload)
            with self._lock:
                self._check_closed()
                self._put(frame)
            return
        parts = frame_header(payload.nbytes), payload, frame_footer(payload)
        with self._lock:
            self._check_closed()
            self._output.write(parts, size)
            self._num_records += 1
            if self._index is not None:
                self._index.add_payload(payload)

    @suggests_options
    def write_batch(self, columns: Any, *, present: Mapping[str, Any] | None = None) -> None:
        """Write n records from columns, without a Python object per value.

        Args:
            columns: a dict from name to column, a `ColumnBatch`, a `SequenceBatch` (SequenceExamples), a
                DataFrame of pandas (without its index) or polars, an Arrow RecordBatch or Table, or anything
                else that exports Arrow data. A column is an array ``(n, ...)`` (integers and bool become
                int64, floats float32, strings bytes), a `Ragged`, a `BytesColumn`, or a list of values or of
                lists; or a pair of one of these and a type name, as in `write`. A null is a feature that the
                record lacks. A column without any value has no type, so it is missing in every record.
            present: for a dict: name to bool ``(n,)``; False means that the record lacks the feature.

        All rows are checked before the first is written; errors are those of `write`. If the file cannot hold
        them all, it is truncated to what it was before the batch.
        """
        self._check_open()
        rows = RowFrames(flatten_batch(columns, present))
        with self._lock:
            self._check_closed()
            write_rows(rows, [self], 0, lambda writer: None)

    def _put(self, frame: bytes) -> None:
        size = len(frame)
        self._output.write((frame,), size)
        self._num_records += 1
        if self._index is not None:
            self._index.add(frame, size - FRAME_OVERHEAD)

    def _put_part(self, frames: bytes, lengths: npt.NDArray[np.uint64]) -> None:
        """Write part of a batch; a call of `_count` or `_take_back` follows."""
        self._output.write((frames,), len(frames))
        if self._index is not None:
            self._index.show(frames, lengths)

    def _count(self, lengths: npt.NDArray[np.uint64]) -> None:
        self._num_records += len(lengths)
        if self._index is not None:
            self._index.add_lengths(lengths)

    def _take_back(self, mark: tuple[int, int]) -> None:
        self._output.rewind(mark)
        if self._index is not None:
            self._index.forget_schema()

    def _check_closed(self) -> None:
        if self._closed:
            raise ValueError(f"{self._output.path or 'the writer'} is closed")

    def _check_open(self) -> None:
        """Call before taking the lock: in a forked process a thread that no longer exists may hold it."""
        self._check_closed()
        if os.getpid() != self._pid:
            raise ValueError(
                f"{self._output.path or 'the file'} may only be written by the process that opened it"
            )

    def flush(self) -> None:
        """Pass all records to the operating system. A gzip file can be read up to here."""
        self._check_open()
        with self._lock:
            self._output.flush()

    def close(self) -> None:
        """Finish the file, then replace its index if one is made.

        Closing twice is fine; writing afterwards is a `ValueError`. `TFRecordError` if an earlier write
        failed and could not be undone, so the file ends inside a record.
        """
        self._finish(True)

    def _finish(self, clean: bool) -> None:
        """Finish the file. If not `clean` (after an exception), do nothing more."""
        if os.getpid() != self._pid:  # a forked copy: the parent finishes the file
            if not self._closed:
                self._closed = True
                self._output.abandon()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            index, self._index = self._index, None
            try:
                self._output.close(clean)
                if clean and self._output.broken:
                    raise TFRecordError(
                        f"{self._output.path or '<stream>'} ends inside a record: an earlier write failed "
                        "and could not be undone"
                    )
            except BaseException:
                clean = False
                raise
            finally:
                self._finish_index(index, clean)

    def _finish_index(self, index: WrittenIndex | None, clean: bool) -> None:
        """Write the indexes, or remove those that no longer match the data."""
        if index is not None and clean:
            required = bool(self._wants_index) or self._untouched is not None
            index.commit(self._output.size, required=required, points=self._output.points)
        elif self._old is not None and not self._wants_index and self._output.size != self._untouched:
            if self._output.has_changed:
                self._old.remove()

    def __enter__(self) -> TFRecordWriter:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish(kind is None)

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        # A caller's plain file is complete without close().
        unclosed = os.getpid() == self._pid and (self._output.needs_close or self._index is not None)
        text = f"unclosed {self!r}: use it in a with block"
        with contextlib.suppress(Exception):
            self._finish(False)
        if unclosed:
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __reduce__(self) -> Any:
        raise TypeError("a writer has an open file, so it cannot be pickled or copied")

    def __repr__(self) -> str:
        name = printable(self._output.path or "to a file object")
        return f"<TFRecordWriter {name}, {self._num_records} records>"

    @staticmethod
    def serialize_tf_example(datum: Datum) -> bytes:
        """The bytes of a tf.train.Example; see `tfrecord.encode_example`."""
        return encode_example(datum)

    @staticmethod
    def serialize_tf_sequence_example(context_datum: Datum, features_datum: Datum) -> bytes:
        """The bytes of a tf.train.SequenceExample; see `tfrecord.encode_sequence_example`."""
        return encode_sequence_example(context_datum, features_datum)

    @staticmethod
    def masked_crc(data: Any) -> bytes:
        """The masked CRC-32C of `data` as the four bytes that the format stores."""
        return masked_crc32c(data).to_bytes(4, "little")


def write_rows(
    rows: RowFrames, writers: Sequence[TFRecordWriter], turn: int, use: Callable[[TFRecordWriter], None]
) -> None:
    """Distribute the rows over the writers, beginning with writer `turn`: all rows or none."""
    count, ways = len(rows.lengths), len(writers)
    ends = np.cumsum(rows.lengths + np.uint64(FRAME_OVERHEAD))
    marks = [writer._output.mark() for writer in writers]
    start = 0
    try:
        while start < count:
            limit = np.uint64(_BATCH_BYTES) + (ends[start - 1] if start else np.uint64(0))
            stop = max(start + 1, int(np.searchsorted(ends, limit, "right")))
            for row in range(start, min(start + ways, stop)):
                writer = writers[(turn + row) % ways]
                use(writer)
                writer._put_part(rows.frames(row, stop, ways), rows.lengths[row:stop:ways])
            start = stop
    except BaseException:
        for writer, mark in zip(writers, marks, strict=True):
            writer._take_back(mark)
        raise
    for row in range(min(ways, count)):
        writers[(turn + row) % ways]._count(rows.lengths[row::ways])


def _payload_view(record: Any) -> memoryview:
    """A record's bytes, flat."""
    try:
        view = memoryview(record)
    except TypeError:
        hint = " (of a message: record.SerializeToString())" if hasattr(record, "SerializeToString") else ""
        raise TypeError(f"write_bytes: got {describe(record)}, expected a bytes-like object{hint}") from None
    if view.format not in ("B", "b", "c"):
        raise TypeError(
            f"write_bytes: got items of format {view.format!r}, expected bytes: give array.tobytes()"
        )
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
