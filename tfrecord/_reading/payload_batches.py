"""Payloads of files and standard input, batch by batch, in constant memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from indexer.errors import TFRecordError
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, VERIFY_ALL, VERIFY_NONE, scan
from indexer.outputs import STREAM
from indexer.streams import Chunk, iter_chunks
from tfrecord._columns.batch import BytesColumn
from tfrecord.parse import record_kind

# A batch is cut by whichever comes first.
BATCH_RECORDS = 4096
BATCH_BYTES = 4 << 20
_LOOK_AT = 16

Result = TypeVar("Result")
OnDamage = Callable[[TFRecordError], object]


class Batch(NamedTuple):
    """Payloads that follow each other in one file; `first` is the number of the first record in it.

    `chunk` is the run of frames that they lie in.
    """

    path: str
    first: int
    payloads: BytesColumn
    chunk: Chunk

    @property
    def num_bytes(self) -> int:
        """Bytes in the file's (decompressed) stream, frames and all."""
        return int(self.chunk.lengths.sum()) + FRAME_OVERHEAD * len(self.chunk.lengths)

    def frames(self) -> Iterator[memoryview]:
        """The frames as they are stored, in as few pieces as they lie in."""
        starts = self.chunk.offsets.astype(np.int64)
        ends = starts + self.chunk.lengths.astype(np.int64) + FRAME_OVERHEAD
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        for low, high in zip([0, *breaks.tolist()], [*breaks.tolist(), len(starts)], strict=True):
            yield self.chunk.buffer[int(starts[low]) : int(ends[high - 1])]


def batch_of(path: str, first: int, buffer: memoryview, chunk: Chunk) -> Batch:
    """The batch of a run of frames."""
    payloads = BytesColumn((buffer,), chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)
    return Batch(path, first, payloads, chunk)


def batch_of_frames(path: str, first: int, frames: bytes) -> Batch:
    """The batch of frames that were just made, one after another."""
    buffer = memoryview(frames)
    found = scan(buffer, verify=VERIFY_NONE)
    return batch_of(path, first, buffer, Chunk(buffer, found.offsets, found.lengths, 0, first))


def batches(
    paths: Iterable[str],
    *,
    compression: str | None = None,
    verify: int = VERIFY_ALL,
    on_damage: OnDamage | None = None,
    records: int = BATCH_RECORDS,
    num_bytes: int = BATCH_BYTES,
) -> Iterator[Batch]:
    """The payloads of these files in order; `-` is standard input. Damage is raised after what is good before
    it, or given to `on_damage` (see `indexer.streams.iter_chunks`)."""
    for path in paths:
        chunks = iter_chunks(
            sys.stdin.buffer if path == STREAM else path,
            compression_type=compression,
            verify=verify,
            chunk_size=num_bytes,
            max_records=records,
            on_damage=on_damage,
            mmap=False,  # a map would stay in memory as far as it was read
        )
        for chunk in chunks:
            yield batch_of(path, chunk.first_record, chunk.buffer, chunk)


def record_type_of(payloads: BytesColumn) -> str:
    """`example`, `sequence_example` or `bytes`, by the first records."""
    kinds = {record_kind(payloads.view(i)) for i in range(min(_LOOK_AT, len(payloads)))}
    if "bytes" in kinds:
        return "bytes"
    return "sequence_example" if "sequence_example" in kinds else "example"


def threaded(work: Callable[[Any], Result], items: Iterable[Any], threads: int) -> Iterator[Result]:
    """`work` of every item, in order, on several threads with a bounded number of items under way."""
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
