"""The indexes of a file while that is written: positions, and the schema and columns of what goes by."""

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
from indexer.stores import open_store
from tfrecord.schema import SchemaCollector

__all__ = ["OldIndexes", "WrittenIndex"]

UInt64Array = npt.NDArray[np.uint64]

# Records are shown to the collector in runs of about so many bytes.
_RUN_BYTES = 1 << 20
_MISFIT = (DecodeError, FeatureKindError, MissingFeatureError)


class OldIndexes:
    """The indexes that lay beside a file when a writer opened it: writing to the file makes them stale.

    `extended` is the one that may hold a schema and columns, or None; `text` are the paths of the others.
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
    """Learns of every frame that was written; `commit` makes the indexes of the finished file of it.

    `old` are those to replace, `compression` and `lengths` (payloads, uint64) what the file holds already.
    `columns` as for `tfrecord.build_index`.
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
            for chunk in streams.iter_chunks(self._path, compression_type=compression, verify=VERIFY_LENGTHS):
                self._checksums += footers(chunk.buffer, chunk.offsets, chunk.lengths)
                self._collect(chunk.buffer, chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)

    def _new_collector(self) -> SchemaCollector:
        collector = SchemaCollector(self._columns)
        if self._old.extended is not None:
            collector.keep(self._old.extended)
        return collector

    def _collect(self, buffer: Any, payload_offsets: UInt64Array, lengths: UInt64Array) -> None:
        """The record is written whatever the index can keep, so a misfit is an error of `commit` only."""
        if self._collector is None or self._misfit is not None:
            return
        try:
            self._collector.update(buffer, payload_offsets, lengths)
        except _MISFIT as error:
            self._misfit = error.at(self._path, error.record)

    def add(self, frame: bytes, length: int) -> None:
        """One frame was written, of a payload of `length` bytes."""
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
        """The frame of this payload was written."""
        self._writer.add(payload.nbytes)
        self._show()
        self._checksums += frame_footer(payload)
        self._collect(payload, np.zeros(1, np.uint64), np.array([payload.nbytes], np.uint64))

    def show(self, frames: bytes, lengths: UInt64Array) -> None:
        """These frames of a batch were written; `add_lengths` follows where the whole batch was."""
        self._show()
        starts = _starts(lengths)
        self._checksums += footers(frames, starts, lengths)
        self._collect(memoryview(frames), starts + np.uint64(HEADER_SIZE), lengths)

    def add_lengths(self, lengths: UInt64Array) -> None:
        """A batch of records was written whole."""
        self._writer.add_many(lengths)

    def forget_schema(self) -> None:
        """Part of a batch was shown and taken back: the schema of the rest is not known any more."""
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
        """Raise what `commit` would raise of records that a column to keep does not fit."""
        self._show()
        try:
            if self._misfit is None and self._collector is not None:
                self._collector.finish()
        except _MISFIT as error:
            self._misfit = error
        if self._misfit is not None:
            raise self._misfit.at(self._path, self._misfit.record)  # type: ignore[attr-defined]

    def commit(self, size: int, *, required: bool) -> None:
        """Replace the indexes of the finished file, whose records have `size` bytes, atomically.

        Where an interrupt came between a write and its being learned of here, the file itself is asked.

        Raises:
            DecodeError, FeatureKindError, MissingFeatureError: a column to keep does not fit the records; no
            index is replaced. Unless `required`: then the old indexes are removed, with a warning.
        """
        self._show()
        try:
            if self._misfit is not None:
                raise self._misfit
            self._write(size)
        except _MISFIT as error:
            located = error.at(self._path, error.record)
            if required:
                raise located from None
            self._old.remove()
            warn_caller(f"{located}; the old index is removed, as it does not fit the new data")
            return
        for name in self._old.text:
            if name != sidecar_path(self._path):
                self._write_text(name)

    def _write(self, size: int) -> None:
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
        )

    def _write_text(self, name: str) -> None:
        if self._compression:
            os.unlink(name)  # a text index cannot be of a compressed file
        else:
            build_index(self._path, name, format="text")


def _starts(lengths: UInt64Array) -> UInt64Array:
    """Where frames begin that follow each other from 0 on."""
    sizes = lengths + np.uint64(FRAME_OVERHEAD)
    starts: UInt64Array = np.cumsum(sizes, dtype=np.uint64) - sizes
    return starts
