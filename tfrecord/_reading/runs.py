"""Records in stored order: every record of a source, or every n-th, with one rule for damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from indexer.errors import TruncatedRecordError
from indexer.files import DataFile
from indexer.framing import (
    HEADER_SIZE,
    VERIFY_ALL,
    VERIFY_LENGTHS,
    VERIFY_NONE,
    UInt64Array,
    check_frames,
    corrupt_error,
    slices,
)
from indexer.streams import Chunk, iter_chunks, open_source
from tfrecord._reading.damage import DamagePolicy

__all__ = ["GROUP", "ReadOptions", "RecordRun", "stream_records"]

# How many views are made at a time: fewer need more calls, more do not fit the processor's cache.
GROUP = 256


@dataclass(frozen=True)
class ReadOptions:
    """The options for reading bytes; the same for all files of a reader."""

    compression_type: str = "auto"
    verify: bool = True
    mmap: bool = True
    max_spool_bytes: int = 4 << 30
    max_record_bytes: int | None = None
    access: str = "auto"
    num_threads: int = 1

    @property
    def level(self) -> int:
        return VERIFY_ALL if self.verify else VERIFY_NONE


class RecordRun(NamedTuple):
    """Good records of one buffer: the first, and every ``step``-th after it.

    ``offsets``: where the frames start in ``buffer``, each with ``header`` bytes before its payload (none in
    what a server sent); ``lengths``: sizes of the payloads in bytes; uint64. ``base``: where ``buffer``
    begins in the file.
    """

    buffer: memoryview
    offsets: UInt64Array
    lengths: UInt64Array
    first: int
    step: int
    base: int
    file: DataFile | None
    header: int = HEADER_SIZE

    def head(self, count: int) -> RecordRun:
        """The first ``count`` records."""
        return self._replace(offsets=self.offsets[:count], lengths=self.lengths[:count])

    def starts(self) -> UInt64Array:
        """Where the payloads begin in ``buffer``."""
        starts: UInt64Array = self.offsets + np.uint64(self.header)
        return starts

    def check(self, place: int = 0) -> None:
        """Raise if the mapped file has shrunk: reading record ``place`` of the run would then kill the
        process."""
        if self.file is None or self.file.closed:
            return
        try:
            self.file.check_size()
        except TruncatedRecordError as error:
            offset = self.base + int(self.offsets[place])
            raise error.at(self.first + place * self.step, offset) from None

    def groups(self) -> Iterator[list[memoryview]]:
        """The payloads as read-only views that keep the buffer alive, several at a time."""
        for at in range(0, len(self.offsets), GROUP):
            end = at + GROUP
            self.check(at)
            yield slices(self.buffer, self.offsets[at:end], self.lengths[at:end], self.header)

    def payloads(self) -> Iterator[memoryview]:
        """The same payloads, one by one."""
        return chain.from_iterable(self.groups())


def stream_records(
    source: Any,
    options: ReadOptions,
    policy: DamagePolicy,
    *,
    path: str,
    start: int = 0,
    step: int = 1,
    seek: tuple[int, int] = (0, 0),
) -> Iterator[RecordRun]:
    """The records ``start``, ``start + step``, ... of a path or URL, a binary file object, or a `DataFile`.

    Good records come first, then damage goes to ``policy``. With a step, only the headers of the other
    records are scanned and their payloads are not checked, so that of several shards exactly one meets a
    damaged payload. ``seek``: (offset, number) of a record at or before ``start`` where the scan begins.
    """
    if not isinstance(source, str):
        yield from _stream(source, options, policy, path, start, step, seek)
        return
    with open_source(source, options.compression_type, mmap=options.mmap) as opened:
        yield from _stream(opened, options, policy, path, start, step, seek)


def _stream(
    source: Any,
    options: ReadOptions,
    policy: DamagePolicy,
    path: str,
    start: int,
    step: int,
    seek: tuple[int, int],
) -> Iterator[RecordRun]:
    everything = (start, step) == (seek[1], 1)
    file = source if isinstance(source, DataFile) and source.mapped else None
    chunks = iter_chunks(
        source,
        compression_type=options.compression_type,
        verify=options.level if everything else min(options.level, VERIFY_LENGTHS),
        start=seek,
        on_damage=policy.handle if policy.skips else None,
        mmap=options.mmap,
        max_record_bytes=options.max_record_bytes,
    )
    for chunk in chunks:
        if everything:
            yield RecordRun(
                chunk.buffer, chunk.offsets, chunk.lengths, chunk.first_record, 1, chunk.base_offset, file
            )
            continue
        before = chunk.first_record - start
        skipped = -before if before < 0 else -before % step
        if skipped < len(chunk.offsets):
            yield from _own(chunk, skipped, step, options.level, policy, path, file)


def _own(
    chunk: Chunk,
    skipped: int,
    step: int,
    level: int,
    policy: DamagePolicy,
    path: str,
    file: DataFile | None,
) -> Iterator[RecordRun]:
    """The requested records of a header-scanned chunk, checked."""
    offsets = np.ascontiguousarray(chunk.offsets[skipped::step])
    lengths = np.ascontiguousarray(chunk.lengths[skipped::step])
    first = chunk.first_record + skipped
    while len(offsets):
        bad = check_frames(chunk.buffer, offsets, lengths, verify=level)
        good = len(offsets) if bad is None else bad[0]
        if good:
            yield RecordRun(
                chunk.buffer, offsets[:good], lengths[:good], first, step, chunk.base_offset, file
            )
        if bad is None:
            return
        place = chunk.base_offset + int(offsets[good])
        policy.handle(corrupt_error(bad[1], path=path, record=first + good * step, offset=place))
        offsets, lengths, first = offsets[good + 1 :], lengths[good + 1 :], first + (good + 1) * step
