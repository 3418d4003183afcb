"""The index of a file while that is written: positions, and the schema of what went by."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from indexer import streams
from indexer.build import Collector, IndexWriter, build_index
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, VERIFY_LENGTHS
from tfrecord.schema import SchemaCollector

UInt64Array = npt.NDArray[np.uint64]

# Records are shown to the collector in runs of about so many bytes.
_RUN_BYTES = 1 << 20


class WrittenIndex:
    """Learns of every frame that was written; `commit` makes the index of the finished file of it.

    `path`, `compression` and `lengths` (payloads, uint64) are those of what the file holds already.
    """

    def __init__(self, path: str, compression: str, lengths: UInt64Array) -> None:
        self._path = path
        self._compression = compression
        self._writer = IndexWriter()
        self._writer.add_many(lengths)
        self._collector: Collector | None = SchemaCollector()
        self._frames: list[Any] = []
        self._lengths: list[int] = []
        self._size = 0
        if len(lengths):
            for chunk in streams.iter_chunks(path, compression_type=compression, verify=VERIFY_LENGTHS):
                self._collector.update(chunk.buffer, chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)

    def add(self, frame: bytes, length: int) -> None:
        """One frame was written, of a payload of `length` bytes."""
        self._writer.add(length)
        if self._collector is None:
            return
        self._frames.append(frame)
        self._lengths.append(length)
        self._size += len(frame)
        if self._size >= _RUN_BYTES:
            self._show()

    def add_payload(self, payload: memoryview) -> None:
        """The frame of this payload was written."""
        self._writer.add(payload.nbytes)
        self._show()
        if self._collector is not None:
            self._collector.update(payload, np.zeros(1, np.uint64), np.array([payload.nbytes], np.uint64))

    def show(self, frames: bytes, lengths: UInt64Array) -> None:
        """These frames of a batch were written; `add_lengths` follows where the whole batch was."""
        self._show()
        if self._collector is not None:
            ends = np.cumsum(lengths + np.uint64(FRAME_OVERHEAD), dtype=np.uint64)
            starts = ends - lengths - np.uint64(FRAME_OVERHEAD - HEADER_SIZE)
            self._collector.update(memoryview(frames), starts, lengths)

    def add_lengths(self, lengths: UInt64Array) -> None:
        """A batch of records was written whole."""
        self._writer.add_many(lengths)

    def forget_schema(self) -> None:
        """Part of a batch was shown and taken back: the schema of the rest is not known any more."""
        self._collector = None
        self._frames.clear()

    def _show(self) -> None:
        if self._frames:
            frames, lengths = b"".join(self._frames), np.array(self._lengths, np.uint64)
            self._frames.clear()
            self._lengths.clear()
            self._size = 0
            self.show(frames, lengths)

    def commit(self, size: int) -> None:
        """Replace the sidecar of the finished file, whose records have `size` bytes, atomically.

        Where an interrupt came between a write and its being learned of here, the file itself is asked.
        """
        self._show()
        metadata, columns = ({}, None) if self._collector is None else self._collector.finish()
        shown = metadata.get("schema", {}).get("num_records", len(self._writer))
        if self._writer.stream_size != size or shown != len(self._writer):
            build_index(self._path, compression_type=self._compression, collector=SchemaCollector())
            return
        self._writer.commit(self._path, compression=self._compression, metadata=metadata, columns=columns)
