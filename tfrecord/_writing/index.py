"""Makes the indexes of a file while it is written: positions, schema and columns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer import streams
from indexer.build import IndexWriter, build_index, earlier_index
from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError, TFRecordError
from indexer.files import is_url
from indexer.framing import FOOTER_SIZE, FRAME_OVERHEAD, HEADER_SIZE, VERIFY_LENGTHS, footers, frame_footer
from indexer.index import RecordIndex
from indexer.names import index_names
from indexer.options import warn_caller
from indexer.paths import find_index, sidecar_path
from indexer.points import PointBuilder
from indexer.stores import open_store
from tfrecord.schema import SchemaCollector

__all__ = ["OldIndexes", "WrittenIndex"]

UInt64Array = npt.NDArray[np.uint64]

# The collector gets records in runs of about this many bytes.
_RUN_BYTES = 1 << 20
_MISFIT = (DecodeError, FeatureKindError, MissingFeatureError)


class OldIndexes:
    """The indexes beside a file when a writer opened it, which become stale when the file is written.

    `extended` is the one that may hold a schema and columns, or None; `text` holds the paths of the others.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.extended: RecordIndex | None = None
        self.text: list[str] = []
        if is_url(path):
            found_at = find_index(path)
            self._places = [] if found_at is None else [found_at]
        else:
            self._places = [name for name in index_names(path) if os.path.isfile(name)]
        for name in self._places:
            found = earlier_index(name)
            if found is None:
                self.text.append(name)
            elif self.extended is None:
                self.extended = found

    def remove(self) -> None:
        """Remove them all."""
        for name in self._places:
            if is_url(name):
                store, key = open_store(name)
                store.delete(key)
            else:
                with suppress(FileNotFoundError):
                    os.unlink(name)


class WrittenIndex:
    """Notes every written frame; `commit` then makes the indexes of the finished file.

    `old`: the indexes to replace. `compression` and `lengths` (of payloads, uint64) describe what the file
    already holds. `columns`: as for `tfrecord.build_index`.
    """

    def __init__(
        self, old: OldIndexes, compression: str, lengths: UInt64Array, columns: Iterable[str] | None
    ) -> None:
        self._old = old
        self._path = old.path
        self._compression = compression
        self._columns = columns
        self._writer = IndexWriter()
        self._writer.add_many(lengths)
        self._collector: SchemaCollector | None = self._new_collector()
        self._misfit: TFRecordError | None = None
        self._checksums = bytearray()
        self._frames: list[Any] = []
        self._lengths: list[int] = []
        self._size = 0
        if len(lengths):
            for chunk in streams.iter_chunks(
                self._path, compression_type=compression, verify=VERIFY_LENGTHS, checksums=True
            ):
                self._checksums += chunk.checksums
                self._collect(chunk.buffer, chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)

    def _new_collector(self) -> SchemaCollector:
        collector = SchemaCollector(self._columns)
        if self._old.extended is not None:
            collector.keep(self._old.extended)
        return collector

    def _collect(self, buffer: Any, payload_offsets: UInt64Array, lengths: UInt64Array) -> None:
        """Records are written whether or not the index can keep them, so a misfit only shows in `commit`."""
        if self._collector is None or self._misfit is not None:
            return
        try:
            self._collector.update(buffer, payload_offsets, lengths)
        except _MISFIT as error:
            self._misfit = error.at(self._path, error.record)

    def add(self, frame: bytes, length: int) -> None:
        """Note one written frame with a payload of `length` bytes."""
        self._writer.add(length)
        self._checksums += frame[-FOOTER_SIZE:]
        if self._collector is None:
            return
        self._frames.append(frame)
        self._lengths.append(length)
        self._size += len(frame)
        if self._size >= _RUN_BYTES:
            self._show()

    def add_payload(self, payload: memoryview) -> None:
        """Note the written frame of this payload."""
        self._writer.add(payload.nbytes)
        self._show()
        self._checksums += frame_footer(payload)
        self._collect(payload, np.zeros(1, np.uint64), np.array([payload.nbytes], np.uint64))

    def show(self, frames: bytes, lengths: UInt64Array) -> None:
        """Note these written frames of a batch; `add_lengths` follows once the whole batch was written."""
        self._show()
        starts = _starts(lengths)
        self._checksums += footers(frames, starts, lengths)
        self._collect(memoryview(frames), starts + np.uint64(HEADER_SIZE), lengths)

    def add_lengths(self, lengths: UInt64Array) -> None:
        """Note that a whole batch was written."""
        self._writer.add_many(lengths)

    def forget_schema(self) -> None:
        """Note that part of a batch was undone after the collector got it: the schema is no longer known."""
        self._collector = None
        self._frames.clear()
        del self._checksums[FOOTER_SIZE * len(self._writer) :]

    def _show(self) -> None:
        if self._frames:
            frames, lengths = b"".join(self._frames), np.array(self._lengths, np.uint64)
            self._frames.clear()
            self._lengths.clear()
            self._size = 0
            self._collect(memoryview(frames), _starts(lengths) + np.uint64(HEADER_SIZE), lengths)

    def check(self) -> None:
        """Raise the error that `commit` would raise if a column to keep does not fit the records."""
        self._show()
        try:
            if self._misfit is None and self._collector is not None:
                self._collector.finish()
        except _MISFIT as error:
            self._misfit = error
        if self._misfit is not None:
            raise self._misfit.at(self._path, self._misfit.record)  # type: ignore[attr-defined]

    def commit(self, size: int, *, required: bool, points: PointBuilder | None) -> None:
        """Replace the indexes of the finished file, whose records have `size` bytes, atomically.
        `points`: where it can be entered.

        If an interrupt came after a write but before it was noted here, the file itself is scanned.

        If a column to keep does not fit the records and the index is not `required`, the old indexes are
        removed with a warning. If it is `required`, no index is replaced.

        Raises:
            DecodeError: a record has two values of a column to keep.
            FeatureKindError: a column to keep has two types.
            MissingFeatureError: no record has a column to keep.
        """
        self._show()
        try:
            if self._misfit is not None:
                raise self._misfit
            self._write(size, points)
        except _MISFIT as error:
            located = error.at(self._path, error.record)
            if required:
                raise located from None
            self._old.remove()
            warn_caller(f"{located}; the old index is removed, because it does not match the new data")
            return
        for name in self._old.text:
            if name != sidecar_path(self._path):
                self._write_text(name)

    def _write(self, size: int, points: PointBuilder | None) -> None:
        metadata, columns = ({}, None) if self._collector is None else self._collector.finish()
        shown = metadata.get("schema", {}).get("num_records", len(self._writer))
        known = self._writer.stream_size == size and shown == len(self._writer)
        forgot = self._collector is None and self._old.extended is not None
        if not known or forgot or len(self._checksums) != FOOTER_SIZE * len(self._writer):
            build_index(self._path, compression_type=self._compression, collector=self._new_collector())
            return
        self._writer.commit(
            self._path,
            compression=self._compression,
            metadata=metadata,
            columns=columns,
            checksums=bytes(self._checksums),
            points=points,
        )

    def _write_text(self, name: str) -> None:
        if self._compression:
            os.unlink(name)  # a text index cannot describe a compressed file
        else:
            build_index(self._path, name, format="text")


def _starts(lengths: UInt64Array) -> UInt64Array:
    """Where consecutive frames begin, starting at 0."""
    sizes = lengths + np.uint64(FRAME_OVERHEAD)
    starts: UInt64Array = np.cumsum(sizes, dtype=np.uint64) - sizes
    return starts
