"""Writing TFRecord files."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np

from indexer.framing import FRAME_OVERHEAD, frame_footer, frame_header, masked_crc32c
from tfrecord._output import Output
from tfrecord._rows import flatten_batch
from tfrecord._values import describe
from tfrecord.encode import Datum, RowFrames, encode_example, encode_frame, encode_sequence_example

__all__ = ["TFRecordWriter"]

# Records from this size on are written in three parts, not copied into one.
_COPY_BELOW = 1 << 24
# So much of a batch is encoded before it is written.
_BATCH_BYTES = 4 << 20


class TFRecordWriter:
    """Writes records to a path, a URL or a binary file.

    Args:
        data_path: a path, a URL (with fsspec), or an object with a binary `write` (written from where it stands,
            flushed but not closed by `close`; short writes are completed).
        mode: ``"w"`` replaces, ``"x"`` wants a new file, ``"a"`` appends.
        compression_type: None, ``"GZIP"`` or ``"ZLIB"`` in any case.
        index: write the extended index beside the file as it goes; it replaces the old one on a clean `close`.

    Each record reaches the file whole, in one write. A record that is refused, or cannot be written, leaves the file
    as it was before; after a failed write to a pipe or a compressed file, which cannot be cut back, no more is taken.

    Appending hops over the whole file first. An incomplete last record is cut off, with a `RuntimeWarning`; other
    damage, another compression and zlib are refused. Appending to gzip adds a member.

    Raises:
        ValueError: an unknown mode or compression. FileExistsError: with ``"x"``.
    """

    def __init__(
        self, data_path: Any, *, mode: str = "w", compression_type: str | None = None, index: bool = False
    ) -> None:
        self._closed = True  # so that a failure below leaves the finaliser nothing to do
        self._output = Output(data_path, mode, compression_type)
        self._pid = os.getpid()
        self._num_records = len(self._output.lengths)
        self._closed = False

    @property
    def num_records(self) -> int:
        """Records in the file: those written, and with ``mode="a"`` those that were there."""
        return self._num_records

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def tell(self) -> int:
        """Offset of the next record in the record stream (before compression)."""
        return self._output.size

    def write(self, datum: Datum, sequence_datum: Datum | None = None) -> None:
        """Write one tf.train.Example, or with `sequence_datum` one tf.train.SequenceExample whose context is `datum`.

        Both map a name to ``(value, typename)``; see `tfrecord.encode.encode_example` for values and errors.
        """
        self._check_open()
        frame = encode_frame(datum, sequence_datum)
        self._put((frame,), len(frame))

    def write_bytes(self, record: Any) -> None:
        """Write any bytes-like as one record, as it is (of any size)."""
        self._check_open()
        payload = _payload_view(record)
        size = payload.nbytes + FRAME_OVERHEAD
        parts = (frame_header(payload.nbytes), payload, frame_footer(payload))
        self._put(parts if size >= _COPY_BELOW else (b"".join(parts),), size)

    def write_batch(self, columns: Any, *, present: Mapping[str, Any] | None = None) -> None:
        """Write n records from columns, without a Python object a value.

        Args:
            columns: a dict from name to column, a `ColumnBatch`, a `SequenceBatch` (SequenceExamples), or an Arrow
                RecordBatch or Table. A column is an array ``(n, ...)`` (integers and bool become int64, floats
                float32, strings bytes), a `Ragged`, a `BytesColumn`, or a list; or a pair of one of these and a
                type name, as in `write`.
            present: for a dict: name to bool ``(n,)``; where False the record lacks the feature.

        All rows are checked before the first is written; errors are those of `write`. Where the file cannot take
        them all it is cut back to where it was before the batch.
        """
        self._check_open()
        rows = RowFrames(flatten_batch(columns, present))
        ends = np.cumsum(rows.lengths + np.uint64(FRAME_OVERHEAD))
        mark, start = self._output.mark(), 0
        try:
            while start < len(ends):
                done = int(ends[start - 1]) if start else 0
                stop = max(start + 1, int(np.searchsorted(ends, done + _BATCH_BYTES, "right")))
                frames = rows.frames(start, stop)
                self._output.write((frames,), len(frames))
                start = stop
        except BaseException:
            self._output.rewind(mark)
            raise
        self._num_records += len(ends)

    def _put(self, parts: tuple[Any, ...], size: int) -> None:
        self._output.write(parts, size)
        self._num_records += 1

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._output.path or 'the writer'} is closed")

    def flush(self) -> None:
        """Hand all records to the system. A gzip file can be read up to here."""
        self._check_open()
        self._output.flush()

    def close(self) -> None:
        """End the file. Closing twice is fine; writing afterwards is a `ValueError`."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:  # a forked copy: the file is the parent's to end
            self._output.abandon()
            return
        self._output.close()

    def __enter__(self) -> TFRecordWriter:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True):
            return
        text = f"unclosed {self!r}: use it in a with block"
        with contextlib.suppress(Exception):
            self.close()
        if os.getpid() == self._pid:
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<TFRecordWriter {self._output.path or 'to a file object'}, {self._num_records} records>"

    @staticmethod
    def serialize_tf_example(datum: Datum) -> bytes:
        """The bytes of a tf.train.Example; see `tfrecord.encode.encode_example`."""
        return encode_example(datum)

    @staticmethod
    def serialize_tf_sequence_example(context_datum: Datum, features_datum: Datum) -> bytes:
        """The bytes of a tf.train.SequenceExample; see `tfrecord.encode.encode_sequence_example`."""
        return encode_sequence_example(context_datum, features_datum)

    @staticmethod
    def masked_crc(data: Any) -> bytes:
        """The masked CRC-32C of `data` as the four bytes that the format stores."""
        return masked_crc32c(data).to_bytes(4, "little")


def _payload_view(record: Any) -> memoryview:
    """A record's bytes, flat."""
    try:
        view = memoryview(record)
    except TypeError:
        hint = " (of a message: record.SerializeToString())" if hasattr(record, "SerializeToString") else ""
        raise TypeError(f"write_bytes: got {describe(record)}, expected a bytes-like object{hint}") from None
    if view.format not in ("B", "b", "c"):
        raise TypeError(f"write_bytes: got items of format {view.format!r}, expected bytes: give array.tobytes()")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
