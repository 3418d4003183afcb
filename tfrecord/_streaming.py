"""Records in stored order: every record of a source, or every n-th, with one rule for what is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.files import DataFile, is_url, open_data
from indexer.framing import (
    HEADER_SIZE,
    VERIFY_ALL,
    VERIFY_LENGTHS,
    VERIFY_NONE,
    check_frames,
    corrupt_error,
    slices,
)
from indexer.streams import Chunk, detect, iter_chunks
from tfrecord._damage import DamagePolicy

__all__ = ["GROUP", "ReadOptions", "Run", "stream_records"]

# So many views are made at a time: fewer cost more calls, more fall out of the processor's cache.
GROUP = 256

UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class ReadOptions:
    """How bytes are read; the same for all files of a reader."""

    compression_type: str = "auto"
    verify: bool = True
    mmap: bool = True
    max_spool_bytes: int = 4 << 30

    @property
    def level(self) -> int:
        return VERIFY_ALL if self.verify else VERIFY_NONE


class Run(NamedTuple):
    """Good records of one buffer: the first, and every ``step``-th after it.

    ``offsets`` are those of the frames in ``buffer``, ``lengths`` those of the payloads; uint64.
    """

    buffer: memoryview
    offsets: UInt64Array
    lengths: UInt64Array
    first: int
    step: int
    file: DataFile | None

    def check(self) -> None:
        """Raise if the mapped file has shrunk by now: reading on would kill the process."""
        if self.file is not None and not self.file.closed:
            self.file.check_size()

    def groups(self) -> Iterator[list[memoryview]]:
        """The payloads as read-only views that keep the buffer alive, some at a time."""
        for at in range(0, len(self.offsets), GROUP):
            end = at + GROUP
            yield slices(self.buffer, self.offsets[at:end], self.lengths[at:end], HEADER_SIZE)

    def payloads(self) -> Iterator[memoryview]:
        """The same, one by one."""
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
) -> Iterator[Run]:
    """The records ``start``, ``start + step``, ... of a path or binary file object.

    What is good comes first, then damage goes to ``policy``. With a step the payloads of others are hopped
    over, not checked, so that of several shards exactly one meets a damaged payload. ``seek``: (offset,
    number) of a record at or before ``start`` to begin the hop at.
    """
    if isinstance(source, DataFile):
        yield from _stream(source, source, options, policy, path, start, step, seek)
        return
    if isinstance(source, str) and options.mmap and options.compression_type in ("", "auto"):
        file = open_plain(source, options.compression_type)
        if file is not None:
            with file:
                yield from _stream(file, file, options, policy, path, start, step, seek)
            return
    yield from _stream(source, None, options, policy, path, start, step, seek)


def open_plain(path: str, compression: str) -> DataFile | None:
    """A plain local file, mapped; None for what is read as a stream."""
    if is_url(path) or not os.path.isfile(path):
        return None
    file = open_data(path)
    if file.mapped and (not compression or detect(bytes(file.view(0, min(file.size, 512)))) is None):
        return file
    file.close()
    return None


def _stream(
    source: Any,
    file: DataFile | None,
    options: ReadOptions,
    policy: DamagePolicy,
    path: str,
    start: int,
    step: int,
    seek: tuple[int, int],
) -> Iterator[Run]:
    everything = (start, step) == (seek[1], 1)
    chunks = iter_chunks(
        source,
        compression_type=options.compression_type,
        verify=options.level if everything else min(options.level, VERIFY_LENGTHS),
        start=seek,
        on_damage=policy.handle if policy.skips else None,
        mmap=options.mmap,
    )
    for chunk in chunks:
        if everything:
            yield Run(chunk.buffer, chunk.offsets, chunk.lengths, chunk.first_record, 1, file)
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
) -> Iterator[Run]:
    """The records of a hopped chunk that are asked for, checked."""
    offsets = np.ascontiguousarray(chunk.offsets[skipped::step])
    lengths = np.ascontiguousarray(chunk.lengths[skipped::step])
    first = chunk.first_record + skipped
    while len(offsets):
        bad = check_frames(chunk.buffer, offsets, lengths, verify=level)
        good = len(offsets) if bad is None else bad[0]
        if good:
            yield Run(chunk.buffer, offsets[:good], lengths[:good], first, step, file)
        if bad is None:
            return
        place = chunk.base_offset + int(offsets[good])
        policy.handle(corrupt_error(bad[1], path=path, record=first + good * step, offset=place))
        offsets, lengths, first = offsets[good + 1 :], lengths[good + 1 :], first + (good + 1) * step
