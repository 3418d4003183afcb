"""Tells whether an index belongs to a data file: by its size, and a sample of bytes and frames."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import StaleIndexError
from .files import DataFile, open_data
from .framing import (
    FOOTER_SIZE,
    FRAME_OVERHEAD,
    HEADER_SIZE,
    VERIFY_ALL,
    VERIFY_LENGTHS,
    check_frame,
    crc32c,
    footers,
    frame_header,
    is_frame,
)
from .index import IndexSummary, RecordIndex
from .inputstream import open_stream
from .stored_columns import StoredColumns
from .streams import iter_chunks

__all__ = ["DIGEST_SIZE", "Digest", "bind_index", "digest", "fingerprint", "is_settled", "size_misfit"]

DIGEST_SIZE = 16
_SAMPLES = 8
# A file that changes twice within this time may keep its modification time: systems count it in ticks of up
# to 10 ms, some file systems in seconds.
_TICK_NS, _COARSE_TICK_NS = 100_000_000, 2_000_000_000
_AT_ONCE = 1 << 16
_WINDOW = 4 << 20
# Data files (device, inode, size, time) whose digests this process has compared and found equal.
_agreed: set[tuple[Any, ...]] = set()
_MOST_AGREED = 1 << 16

# What returns a view of ``length`` bytes at ``offset``.
_Read = Callable[[int, int], memoryview]


def is_settled(mtime_ns: int, now_ns: int) -> bool:
    """Whether any change after ``now_ns`` gives a file another modification time than this one."""
    return now_ns - mtime_ns > (_TICK_NS if mtime_ns % 1_000_000_000 else _COARSE_TICK_NS)


class Digest:
    """A digest of the stored checksums of all payloads, in order: 16 bytes of BLAKE2b."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_SIZE)

    def add(self, checksums: bytes) -> None:
        """Add the next checksums, 4 bytes each, as stored."""
        self._hash.update(checksums)

    def value(self) -> bytes:
        """The digest of everything added so far."""
        return self._hash.digest()


def digest(data: DataFile, index: RecordIndex) -> bytes | None:
    """The digest of what the data file holds now at the positions in the index.

    None if the records are elsewhere. Of a plain file only the checksums are read; a compressed file is read
    whole.
    """
    found = Digest()
    if index.compression:
        count, end = 0, 0
        with open_stream(data.reader(), index.compression) as stream:
            for chunk in iter_chunks(
                stream,
                compression_type=index.compression,
                verify=VERIFY_LENGTHS,
                payloads=False,
                checksums=True,
            ):
                found.add(chunk.checksums)
                count += len(chunk.offsets)
                end = chunk.base_offset + int(chunk.offsets[-1]) + int(chunk.lengths[-1]) + FRAME_OVERHEAD
        return found.value() if (count, end) == (len(index), index.stream_size) else None
    for first in range(0, len(index), _AT_ONCE):
        offsets, lengths = index.entries(np.arange(first, min(first + _AT_ONCE, len(index)), dtype=np.int64))
        if data.mapped:
            found.add(footers(data.buffer(), offsets, lengths))
        else:
            found.add(_read_checksums(data, offsets, lengths))
    return found.value()


def _read_checksums(
    data: DataFile, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64]
) -> bytes:
    """The checksums of consecutive frames of a file that is not mapped."""
    parts = []
    at = 0
    while at < len(offsets):
        start = int(offsets[at])
        stop = at + max(1, int(np.searchsorted(offsets[at:], start + _WINDOW)))
        end = int(offsets[stop - 1]) + int(lengths[stop - 1]) + FRAME_OVERHEAD
        if end - start > 2 * _WINDOW:
            stop, end = at + 1, start + int(lengths[at]) + FRAME_OVERHEAD
        if stop == at + 1:
            parts.append(bytes(data.view(end - FOOTER_SIZE, FOOTER_SIZE)))
        else:
            window = data.view(start, end - start)
            parts.append(footers(window, offsets[at:stop] - np.uint64(start), lengths[at:stop]))
        at = stop
    return b"".join(parts)


def fingerprint(
    data: DataFile, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64], compression: str
) -> int:
    """A 64-bit number that tells apart files with the same size and record lengths but other content. O(1).

    It takes one byte from each of eight records, spread from the first to the last. The byte is part of the
    checksum stored after the payload, so damage within a payload does not make the index look like that of
    another file. For a compressed file it is the last eight bytes, which hold the checksum of the stream.
    """
    if compression or not len(offsets):
        count = min(_SAMPLES, data.size)
        return int.from_bytes(data.view(data.size - count, count), "little")
    places = np.array(_sampled(len(offsets)))
    footers_at = (offsets[places] + lengths[places] + np.uint64(HEADER_SIZE)).astype(np.int64)
    asked = data.advise([(at, FOOTER_SIZE) for at in footers_at.tolist()]) if data.remote else None
    found = int.from_bytes(
        bytes(
            _stored_checksum(data.view, int(offsets[position]), int(lengths[position])) & 255
            for position in places.tolist()
        ),
        "little",
    )
    del asked
    return found


def _sampled(count: int) -> list[int]:
    return [place * (count - 1) // (_SAMPLES - 1) for place in range(_SAMPLES)]


def _slice_of(whole: memoryview) -> _Read:
    return lambda offset, length: whole[offset : offset + length]


def _stored_checksum(read: _Read, offset: int, length: int) -> int:
    return crc32c(read(offset + HEADER_SIZE + length, FOOTER_SIZE))


def bind_index(index: RecordIndex, data_path: Any) -> RecordIndex:
    """The index with ``path`` set, if it matches the data file; else `StaleIndexError`. O(1).

    Its columns are served only if they belong to this data; see `_Guard`.
    """
    data = data_path if isinstance(data_path, DataFile) else open_data(data_path, mmap=False)
    try:
        reason = _misfit(index, data)
        if reason is not None:
            raise StaleIndexError(data.path, index.index_path, reason)
        changes: dict[str, Any] = {} if index.path == data.path else {"path": data.path}
        if isinstance(index.columns, StoredColumns) and len(index.columns) and not _same_time(index, data):
            changes["columns"] = index.columns.guarded(_Guard(index, data))
        return index.replace(**changes) if changes else index
    finally:
        if data is not data_path:
            data.close()


def _same_time(index: RecordIndex, data: DataFile) -> bool:
    """Whether the modification time or the ETag alone proves that the data is what was indexed."""
    if data.etag is not None:
        return index.etag == data.etag
    return (
        index.mtime_ns is not None and index.mtime_ns == data.mtime_ns and (index.settled or not index.digest)
    )


class _Guard:
    """Raises `StaleIndexError` if the checksums of all records show that the data is not what was indexed.

    The first call compares them, once per process and file.
    """

    def __init__(self, index: RecordIndex, data: DataFile) -> None:
        self._index = index
        self._path = data.path
        self._file = (data.identity, data.size, data.mtime_ns)
        self._data = weakref.ref(data)
        self._good = False

    def __call__(self) -> None:
        if self._good or (*self._file, self._index.digest) in _agreed:
            return
        if self._index.digest is None:
            raise self._stale(
                "the data was written or copied since then, and this index cannot tell whether it changed"
            )
        data = self._data()
        if data is not None and not data.closed:
            self._compare(data)
        else:
            with open_data(self._path) as again:
                if (again.identity, again.size) != self._file[:2]:
                    raise self._stale("another file has replaced the data")
                self._compare(again)
        self._good = True

    def _compare(self, data: DataFile) -> None:
        now = time.time_ns()
        if digest(data, self._index) != self._index.digest:
            raise self._stale("the data is not what was indexed (checksums of records differ)")
        if data.mtime_ns is not None and is_settled(data.mtime_ns, now) and len(_agreed) < _MOST_AGREED:
            _agreed.add((data.identity, data.size, data.mtime_ns, self._index.digest))

    def _stale(self, reason: str) -> StaleIndexError:
        return StaleIndexError(self._path, self._index.index_path, reason)


def _ask_ahead(index: RecordIndex, data: DataFile) -> object:
    """Ask in one go for everything that `_misfit` looks at, as far as it is inside the data. The caller holds
    the result meanwhile."""
    offsets, lengths = index.entries(np.array(_sampled(len(index)), np.int64))
    footers_at = offsets + lengths + np.uint64(HEADER_SIZE)
    starts = np.concatenate((offsets, footers_at)).astype(np.int64)
    sizes = np.repeat([HEADER_SIZE, FOOTER_SIZE], len(offsets))
    return data.advise(np.stack((starts, sizes), axis=1))


def size_misfit(index: RecordIndex | IndexSummary, size: int) -> str | None:
    """Why the index does not belong to data of ``size`` bytes, if that is so."""
    return (
        None if index.file_size == size else f"the data has {size} bytes, the index is for {index.file_size}"
    )


def _misfit(index: RecordIndex, data: DataFile) -> str | None:
    """Why the index does not belong to this data. Damage to single records does not count: reads find it."""
    other = "the data is not what was indexed (its content differs)"
    reason = size_misfit(index, data.size)
    if reason is not None:
        return reason
    if data.remote and data.etag is not None and data.etag == index.etag:
        return None
    if index.compression or not len(index):
        found = fingerprint(data, index.offsets, index.lengths, index.compression)
        return other if index.fingerprint not in (None, found) else None
    asked = _ask_ahead(index, data) if data.remote else None
    # Of a mapped file, or an index, the size is checked once, not for each of these few bytes.
    read = _slice_of(data.buffer()) if data.mapped else data.view
    offsets, lengths = index.offsets, index.lengths
    misplaced: set[int] = set()
    for place, position in enumerate(_sampled(len(index))):
        offset, length = int(offsets[position]), int(lengths[position])
        if offset + length + FRAME_OVERHEAD > data.size:
            return f"record {position} would end beyond the end of the data"
        header = bytes(read(offset, HEADER_SIZE))
        if header != frame_header(length):
            if is_frame(header):
                return f"record {position} has another length"
            misplaced.add(position)
        elif index.fingerprint is not None:
            indexed = index.fingerprint >> (8 * place) & 255
            if indexed != _stored_checksum(read, offset, length) & 255:
                frame = read(offset, length + FRAME_OVERHEAD)
                if check_frame(frame, 0, length, verify=VERIFY_ALL) is None:
                    return other
    del asked
    if len(misplaced) > max(1, min(_SAMPLES, len(index)) // 2):
        return "there are no records where the index says"
    return None
