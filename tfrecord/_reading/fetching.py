"""Reading and checking records of one open file whose offsets are known."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.datafile import Gathered
from indexer.errors import CompressionError, CorruptRecordError, TFRecordError
from indexer.files import DataFile
from indexer.framing import (
    FRAME_OVERHEAD,
    HEADER_SIZE,
    VERIFY_ALL,
    UInt64Array,
    check_frame,
    check_frames,
    corrupt_error,
)
from indexer.index import RecordIndex
from indexer.sniffing import HEAD_SIZE
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.pointed import PointedFile
from tfrecord._reading.spool import SpooledFile

__all__ = ["FetchedRows", "fetch_record", "start_fetch"]

_OVERHEAD = np.uint64(FRAME_OVERHEAD)
_HEADER = np.uint64(HEADER_SIZE)
# Batches from this size on are read in file order, and the system is told what will be read.
_LARGE_BATCH = 2048
_LARGE_BYTES = 4 << 20


Damage = CorruptRecordError | CompressionError


class FetchedRows(NamedTuple):
    """Frames of some records: buffers, where the payloads are in them, the number of each one's buffer (None
    if there is only one), and which rows are damaged."""

    buffers: tuple[memoryview, ...]
    starts: Int64Array
    lengths: Int64Array
    ids: npt.NDArray[np.int32] | None
    bad: list[int]


def fetch_record(source: DataFile, index: RecordIndex, record: int, level: int) -> memoryview:
    """The payload of one record, a view that stays valid. Damage raises.

    What comes through points is checked completely, whatever ``level`` says.
    """
    if isinstance(source, PointedFile):
        level = VERIFY_ALL
    offset, length = index.entry(record)
    try:
        if offset + length + FRAME_OVERHEAD > source.size:
            raise _error(source, record, offset, "truncated_record")
        frame = source.view(offset, length + FRAME_OVERHEAD)
        reason = check_frame(frame, 0, length, verify=level)
        if reason is not None and source.remote:  # as in `start_fetch`
            edges = np.array([offset, offset + length + FRAME_OVERHEAD], np.uint64)
            (frame,) = source.start_gather(edges[:1], edges[1:], again=True)().buffers
            reason = check_frame(frame, 0, length, verify=level)
        if reason is not None:
            raise _error(source, record, offset, reason)
    except (CorruptRecordError, CompressionError) as error:
        if isinstance(source, PointedFile):
            source.blame(record)
        raise _placed(error, record, offset) from None
    return frame[HEADER_SIZE : HEADER_SIZE + length]


def start_fetch(
    source: DataFile, index: RecordIndex, records: Int64Array, level: int, policy: DamagePolicy
) -> Callable[[], FetchedRows]:
    """Begin to fetch records of one file: this sends the requests to a store.

    Calling the returned function waits for them, and passes damaged records to ``policy`` in file order.
    """
    offsets, lengths = index.entries(records)
    if isinstance(source, PointedFile):
        return partial(_fetch_through_points, source, records, (offsets, lengths), policy)
    order: Int64Array | None = None
    if len(records) >= _LARGE_BATCH or int(np.add.reduce(lengths)) >= _LARGE_BYTES:
        order = np.argsort(offsets, kind="stable")
        if not source.remote:
            source.advise(np.stack((offsets[order], lengths[order] + _OVERHEAD), axis=1).astype(np.int64))
    ends = offsets + lengths + _OVERHEAD
    pending = None if source.mapped else _gather(source, offsets, ends)

    def finish() -> FetchedRows:
        try:
            found = Gathered((source.buffer(),), offsets) if pending is None else pending()
            damaged = _damaged(found, lengths, order, level)
            if source.remote and next(damaged, None) is not None:
                # It may have been damaged in transit. If a second try fails too, the store's data is bad.
                damaged.close()
                found = _gather(source, offsets, ends, again=True)()
                damaged = _damaged(found, lengths, order, level)
            bad = []
            for row, reason in damaged:
                policy.handle(_error(source, int(records[row]), int(offsets[row]), reason))
                bad.append(row)
        except CorruptRecordError as error:
            raise _placed(error, int(records[0]), int(offsets[0])) from None
        starts = (found.places + _HEADER).view(np.int64)
        return FetchedRows(found.buffers, starts, lengths.view(np.int64), found.ids, bad)

    return finish


def _fetch_through_points(
    source: PointedFile, records: Int64Array, entries: tuple[UInt64Array, UInt64Array], policy: DamagePolicy
) -> FetchedRows:
    offsets, lengths = entries
    ends = offsets + lengths + _OVERHEAD
    order = np.argsort(offsets, kind="stable")
    found = source.find(offsets, ends)
    damaged = list(_damaged(found.frames, lengths, order, VERIFY_ALL))
    if damaged and source.remote:  # as in `start_fetch`
        found = source.find(offsets, ends, again=True)
        damaged = list(_damaged(found.frames, lengths, order, VERIFY_ALL))
    for row, reason in damaged:
        record, offset = int(records[row]), int(offsets[row])
        source.blame(record)
        error = found.errors.get(row)
        policy.handle(_error(source, record, offset, reason) if error is None else error.at(record, offset))
    starts = (found.frames.places + _HEADER).view(np.int64)
    bad = [row for row, _ in damaged]
    return FetchedRows(found.frames.buffers, starts, lengths.view(np.int64), None, bad)


def _damaged(
    found: Gathered, lengths: UInt64Array, order: Int64Array | None, level: int
) -> Generator[tuple[int, str], None, None]:
    """The damaged rows, each with the reason; checked in ``order``, the order of the file. Those of several
    buffers, which are in file order, are checked buffer by buffer."""
    if found.ids is not None:
        rows = np.argsort(found.ids, kind="stable")
        bounds = np.searchsorted(found.ids[rows], np.arange(len(found.buffers) + 1)).tolist()
        for number, buffer in enumerate(found.buffers):
            here = rows[bounds[number] : bounds[number + 1]]
            part = Gathered((buffer,), found.places[here])
            for row, reason in _damaged(part, lengths[here], None, level):
                yield int(here[row]), reason
        return
    places = found.places
    if order is not None:
        places, lengths = places[order], lengths[order]
    done = 0
    while done < len(places):
        bad = check_frames(found.buffers[0], places[done:], lengths[done:], verify=level)
        if bad is None:
            return
        done += bad[0] + 1
        yield done - 1 if order is None else int(order[done - 1]), bad[1]


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


def _placed(error: Damage, record: int, offset: int) -> Damage:
    """The error with a place if it has none (the check for a shrunken file does not know the record)."""
    return error if error.record is not None else error.at(record, offset)


def _gather(
    source: DataFile, offsets: UInt64Array, ends: UInt64Array, *, again: bool = False
) -> Callable[[], Gathered]:
    """Begin to read frames that are not mapped; the returned function waits for them."""
    inside = (offsets <= ends) & (ends <= np.uint64(source.size))
    if inside.all():
        return source.start_gather(offsets, ends, again=again)
    places = np.full(len(offsets), np.iinfo(np.uint64).max, np.uint64)  # outside any buffer
    rows = np.flatnonzero(inside)
    if not len(rows):
        return lambda: Gathered((memoryview(b""),), places)
    started = source.start_gather(offsets[rows], ends[rows], again=again)

    def finish() -> Gathered:
        found = started()
        places[rows] = found.places
        if found.ids is None:
            return Gathered(found.buffers, places)
        ids = np.zeros(len(offsets), np.int32)
        ids[rows] = found.ids
        return Gathered(found.buffers, places, ids)

    return finish
