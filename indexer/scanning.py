"""One pass over one file: where its records are, and what a collector makes of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .compression import HEAD_SIZE, detect, normalize_compression, open_stream
from .errors import IndexFileError
from .files import DataFile, open_data, path_name
from .formats import fingerprint
from .framing import FRAME_OVERHEAD, HEADER_SIZE, VERIFY_LENGTHS, UInt64Array
from .index import RecordIndex
from .streams import iter_chunks

__all__ = ["Collector", "scan_index"]

_WINDOW = 2 << 20
# So many bytes of a map stay in this process; it costs something to let go of them, so this is done rarely.
_HELD = 32 << 20


class Collector(Protocol):
    """What a build hands each chunk of records to, so that more than places can go into the index.

    It may also have ``satisfied_by(index) -> bool``, which `build_indexes` asks before it takes an index for
    fresh.
    """

    def update(self, buffer: Any, payload_offsets: UInt64Array, lengths: UInt64Array) -> None:
        """Payloads of ``lengths[i]`` bytes at ``payload_offsets[i]`` of ``buffer``, in stored order."""

    def finish(self) -> tuple[Mapping[str, Any], Mapping[str, npt.NDArray[Any]]]:
        """Metadata that msgpack can hold, and arrays of one entry a record."""


class _Places:
    """Offsets and lengths as they come in, in arrays that grow; ``likely``: bytes that probably come."""

    def __init__(self, likely: int) -> None:
        self._offsets = np.empty(0, np.uint64)
        self._lengths = np.empty(0, np.uint64)
        self._likely = likely
        self._count = 0

    def add(self, offsets: UInt64Array, lengths: UInt64Array) -> None:
        end = self._count + len(offsets)
        if end > len(self._offsets):
            done = int(offsets[-1]) + 1
            capacity = max(2 * self._count, end * max(self._likely, done) // done * 33 // 32, end)
            for name in ("_offsets", "_lengths"):
                larger = np.empty(capacity, np.uint64)
                larger[: self._count] = getattr(self, name)[: self._count]
                setattr(self, name, larger)
        self._offsets[self._count : end] = offsets
        self._lengths[self._count : end] = lengths
        self._count = end

    def arrays(self) -> tuple[UInt64Array, UInt64Array]:
        return self._offsets[: self._count], self._lengths[: self._count]


def _state(path: str) -> tuple[int, ...] | None:
    """What changes when a local file is written to or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino


def _scan_file(
    data: DataFile, verify: int, compression_type: str | None, collector: Collector | None, num_threads: int
) -> RecordIndex:
    wanted = normalize_compression(compression_type)
    head = bytes(data.view(0, min(data.size, HEAD_SIZE)))
    compression = (detect(head) or "") if wanted == "auto" else wanted
    source: Any = open_stream(data.path, compression) if compression else data
    places = _Places(data.size)
    stream_size = held = 0
    forget = None if compression else getattr(data, "forget", None)
    try:
        for chunk in iter_chunks(
            source,
            compression_type=compression,
            verify=verify,
            chunk_size=_WINDOW,
            num_threads=num_threads,
        ):
            offsets = chunk.offsets + np.uint64(chunk.base_offset) if chunk.base_offset else chunk.offsets
            places.add(offsets, chunk.lengths)
            if collector is not None:
                collector.update(chunk.buffer, chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)
            stream_size = int(offsets[-1]) + FRAME_OVERHEAD + int(chunk.lengths[-1])
            if forget is not None and stream_size - held >= _HELD:
                forget(held, stream_size - held)
                held = stream_size
    finally:
        if source is not data:
            source.close()
    metadata, columns = collector.finish() if collector is not None else ({}, {})
    offsets, lengths = places.arrays()
    return RecordIndex(
        offsets,
        lengths,
        path=data.path,
        file_size=data.size,
        compression=compression,
        stream_size=stream_size,
        metadata=metadata,
        columns=dict(columns),
        fingerprint=fingerprint(data),
        checked=True,
    )


def scan_index(
    data_path: Any,
    *,
    verify: int = VERIFY_LENGTHS,
    compression_type: str | None = None,
    collector: Collector | None = None,
    num_threads: int = 1,
) -> RecordIndex:
    """The index of a file, in memory; nothing is written.

    With ``verify=VERIFY_LENGTHS`` a plain file is hopped through from header to header; a compressed one is
    decompressed, forward and in constant memory. Raises at the first damage. A file that changes meanwhile is
    an `IndexFileError`.
    """
    path = path_name(data_path)
    before = _state(path)
    with open_data(data_path) as data:
        index = _scan_file(data, verify, compression_type, collector, num_threads)
    if before is not None and before != _state(path):
        raise IndexFileError(path, None, "the data changed while it was being indexed")
    return index.replace(mtime_ns=before[1] if before is not None else None)
