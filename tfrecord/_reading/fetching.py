"""Reading and checking records of one open file whose offsets are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from indexer.errors import CorruptRecordError, TFRecordError
from indexer.files import DataFile
from indexer.framing import (
    FRAME_OVERHEAD,
    HEADER_SIZE,
    UInt64Array,
    check_frame,
    check_frames,
    corrupt_error,
)
from indexer.index import RecordIndex
from indexer.sniffing import HEAD_SIZE
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.spool import SpooledFile

__all__ = ["FetchedRows", "fetch_record", "start_fetch"]

_OVERHEAD = np.uint64(FRAME_OVERHEAD)
_HEADER = np.uint64(HEADER_SIZE)
# Batches from this size on are read in file order, and the system is told what will be read.
_LARGE_BATCH = 2048
_LARGE_BYTES = 4 << 20


class FetchedRows(NamedTuple):
    """Frames of some records: a buffer, where their payloads are in it, and which rows are damaged."""

    buffer: memoryview
    starts: Int64Array
    lengths: Int64Array
    bad: list[int]


def fetch_record(source: DataFile, index: RecordIndex, record: int, level: int) -> memoryview:
    """The payload of one record, a view that stays valid. Damage raises."""
    offset, length = index.entry(record)
    try:
        if offset + length + FRAME_OVERHEAD > source.size:
            raise _error(source, record, offset, "truncated_record")
        frame = source.view(offset, length + FRAME_OVERHEAD)
        reason = check_frame(frame, 0, length, verify=level)
        if reason is not None:
            raise _error(source, record, offset, reason)
    except CorruptRecordError as error:
        raise _placed(error, record, offset) from None
    return frame[HEADER_SIZE : HEADER_SIZE + length]


def start_fetch(
    source: DataFile, index: RecordIndex, records: Int64Array, level: int, policy: DamagePolicy
) -> Callable[[], FetchedRows]:
    """Begin to fetch records of one file: this sends the requests to a store.

    Calling the returned function waits for them, and passes damaged records to ``policy`` in file order.
    """
    offsets, lengths = index.entries(records)
    order: Int64Array | None = None
    if len(records) >= _LARGE_BATCH or int(np.add.reduce(lengths)) >= _LARGE_BYTES:
        order = np.argsort(offsets, kind="stable")
        if not source.remote:
            source.advise(np.stack((offsets[order], lengths[order] + _OVERHEAD), axis=1).astype(np.int64))
    pending = None if source.mapped else _gather(source, offsets, offsets + lengths + _OVERHEAD)

    def finish() -> FetchedRows:
        try:
            buffer, places = (source.buffer(), offsets) if pending is None else pending()
            if source.remote and check_frames(buffer, places, lengths, verify=level):
                # It may have been damaged in transit. If a second try fails too, the store's data is bad.
                buffer, places = _gather(source, offsets, offsets + lengths + _OVERHEAD)()
            bad = []
            for row, reason in _damaged(buffer, places, lengths, order, level):
                policy.handle(_error(source, int(records[row]), int(offsets[row]), reason))
                bad.append(row)
        except CorruptRecordError as error:
            raise _placed(error, int(records[0]), int(offsets[0])) from None
        return FetchedRows(buffer, (places + _HEADER).view(np.int64), lengths.view(np.int64), bad)

    return finish


def _damaged(
    buffer: memoryview, places: UInt64Array, lengths: UInt64Array, order: Int64Array | None, level: int
) -> Iterator[tuple[int, str]]:
    """The damaged rows, each with the reason; checked in ``order``, the order of the file."""
    if order is not None:
        places, lengths = places[order], lengths[order]
    done = 0
    while done < len(places):
        found = check_frames(buffer, places[done:], lengths[done:], verify=level)
        if found is None:
            return
        done += found[0] + 1
        yield done - 1 if order is None else int(order[done - 1]), found[1]


def _error(source: DataFile, record: int, offset: int, reason: str) -> TFRecordError:
    if isinstance(source, SpooledFile) and source.error is not None and offset >= source.size:
        return source.error.at(record, offset)
    head = source.head(HEAD_SIZE) if offset == 0 else b""
    return corrupt_error(
        reason,
        path=source.path,
        record=record,
        offset=offset,
        buffer_head=head,
        compression=getattr(source, "compression", ""),
    )


def _placed(error: CorruptRecordError, record: int, offset: int) -> CorruptRecordError:
    """The error with a place if it has none (the check for a shrunken file does not know the record)."""
    return error if error.record is not None else error.at(record, offset)


Gathered = tuple[memoryview, UInt64Array]


def _gather(source: DataFile, offsets: UInt64Array, ends: UInt64Array) -> Callable[[], Gathered]:
    """Begin to read frames that are not mapped into one buffer; the returned function waits for them."""
    inside = (offsets <= ends) & (ends <= np.uint64(source.size))
    places = np.full(len(offsets), np.iinfo(np.uint64).max, np.uint64)  # outside any buffer
    rows = np.flatnonzero(inside)
    if not len(rows):
        return lambda: (memoryview(b""), places)
    started = source.start_gather(offsets[rows], ends[rows])

    def finish() -> Gathered:
        buffer, places[rows] = started()
        return buffer, places

    return finish
