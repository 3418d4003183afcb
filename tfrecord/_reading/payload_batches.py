"""Payloads of files and standard input, batch by batch, in constant memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np

from indexer.errors import TFRecordError
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, VERIFY_ALL, VERIFY_NONE, scan
from indexer.outputs import STREAM
from indexer.streams import Chunk, iter_chunks
from tfrecord._columns.batch import BytesColumn
from tfrecord._columns.decoding import bad_rows
from tfrecord._kernels.record_type import RecordType, Sample

# A batch ends at whichever limit comes first.
BATCH_RECORDS = 4096
BATCH_BYTES = 4 << 20
# The most bytes that are held back until the record type is settled.
_MOST_HELD = 16 << 20

Result = TypeVar("Result")
OnDamage = Callable[[TFRecordError], object]


class Batch(NamedTuple):
    """Consecutive payloads of one file; `first` is the number of the first record.

    `chunk` is the run of frames that holds them. `record_type` is the type of the records, "" if it was not
    asked for.
    """

    path: str
    first: int
    payloads: BytesColumn
    chunk: Chunk
    record_type: str = ""

    @property
    def num_bytes(self) -> int:
        """Bytes in the file's (decompressed) stream, including frames."""
        return int(self.chunk.lengths.sum()) + FRAME_OVERHEAD * len(self.chunk.lengths)

    def frames(self) -> Iterator[memoryview]:
        """The frames as stored, in as few pieces as possible."""
        starts = self.chunk.offsets.astype(np.int64)
        ends = starts + self.chunk.lengths.astype(np.int64) + FRAME_OVERHEAD
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(starts)], strict=True):
            yield self.chunk.buffer[int(starts[low]) : int(ends[high - 1])]


def batch_of(path: str, first: int, buffer: memoryview, chunk: Chunk, record_type: str = "") -> Batch:
    """The batch for a run of frames."""
    payloads = BytesColumn((buffer,), chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)
    return Batch(path, first, payloads, chunk, record_type)


def batch_of_frames(path: str, first: int, frames: bytes, record_type: str = "") -> Batch:
    """The batch for newly made frames, one after another."""
    buffer = memoryview(frames)
    found = scan(buffer, verify=VERIFY_NONE)
    return batch_of(path, first, buffer, Chunk(buffer, found.offsets, found.lengths, 0, first), record_type)


def part_of(batch: Batch, start: int, stop: int) -> Batch:
    """Some rows of a batch."""
    if start == 0 and stop == len(batch.payloads):
        return batch
    chunk = batch.chunk
    first = batch.first + start
    part = Chunk(chunk.buffer, chunk.offsets[start:stop], chunk.lengths[start:stop], chunk.base_offset, first)
    return batch_of(batch.path, first, chunk.buffer, part, batch.record_type)


def batches(
    paths: Iterable[str],
    *,
    compression: str | None = None,
    verify: int = VERIFY_ALL,
    on_damage: OnDamage | None = None,
    records: int = BATCH_RECORDS,
    num_bytes: int = BATCH_BYTES,
    spill: bool = False,
    max_record_bytes: int | None = None,
) -> Iterator[Batch]:
    """The payloads of these files in order; `-` is standard input. Damage is raised after the good records
    before it, or goes to `on_damage`. The options are those of `indexer.streams.iter_chunks`."""
    for path in paths:
        chunks = iter_chunks(
            sys.stdin.buffer if path == STREAM else path,
            compression_type=compression,
            verify=verify,
            chunk_size=num_bytes,
            max_records=records,
            on_damage=on_damage,
            spill=spill,
            max_record_bytes=max_record_bytes,
            mmap=False,  # pages of a map that were read would stay in memory
        )
        for chunk in chunks:
            yield batch_of(path, chunk.first_record, chunk.buffer, chunk)


def checked(
    source: Iterable[Batch],
    declared: str,
    invalid: Callable[[TFRecordError], object],
    settled: Callable[[str, RecordType], RecordType],
) -> Iterator[Batch]:
    """The batches with their record type, without the records that are not valid messages.

    Args:
        declared: as for `tfrecord._kernels.record_type.settle`; the first records of each file decide the
            rest.
        invalid: gets the error of each record that is left out, which names file, record and offset.
        settled: gets each file and its detected type, and returns the type to use.
    """
    for found, batch in settle_batches(source, declared, settled):
        bad = [] if found.name == "bytes" else bad_rows(batch.payloads)
        batch = batch._replace(record_type=found.name)
        start = 0
        for row, error in bad:
            if row > start:
                yield part_of(batch, start, row)
            offset = batch.chunk.base_offset + int(batch.chunk.offsets[row])
            invalid(error.at(batch.path, batch.first + row, offset))
            start = row + 1
        if start < len(batch.payloads) or not bad:
            yield part_of(batch, start, len(batch.payloads))


def settle_batches(
    source: Iterable[Batch], declared: str, settle: Callable[[str, RecordType], RecordType]
) -> Iterator[tuple[RecordType, Batch]]:
    """Each batch with the record type of its file; a few batches are held back until that is settled."""
    for path, own in groupby(source, key=lambda batch: batch.path):
        held: list[Batch] = []
        size, sample = 0, Sample()
        for batch in own:
            sample.add(map(batch.payloads.view, range(len(batch.payloads))))
            held.append(batch)
            size += batch.num_bytes
            if sample.is_full or size > _MOST_HELD:
                break
        found = settle(path, sample.record_type(declared))
        for batch in chain(held, own):
            yield found, batch


def threaded(work: Callable[[Any], Result], items: Iterable[Any], threads: int) -> Iterator[Result]:
    """`work` of every item, in order, on several threads with a bounded number of items in progress."""
    if threads <= 1:
        yield from map(work, items)
        return
    waiting: deque[Any] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
