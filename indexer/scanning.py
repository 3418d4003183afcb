"""One pass over one file: finds its records and hands them to a collector."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .compression import HEAD_SIZE, detect, normalize_compression
from .errors import IndexFileError
from .files import DataFile, open_data, path_name
from .fingerprint import Digest, fingerprint, is_settled
from .framing import (
    FRAME_OVERHEAD,
    HEADER_SIZE,
    VERIFY_ALL,
    VERIFY_LENGTHS,
    UInt64Array,
    corrupt_error,
    frame_header,
    scan,
)
from .index import RecordIndex
from .inflaters import WINDOW_BITS, finds_blocks
from .inputstream import open_stream
from .options import check_threads
from .points import PointBuilder
from .progress import Report
from .streams import iter_chunks

__all__ = ["Collector", "scan_index"]

_WINDOW = 4 << 20
_HOP = 64 << 10
_HUGE_PAGE = 2 << 20
# How many bytes of a map may stay in this process. Releasing pages costs time, so it is done rarely.
_HELD = 32 << 20


class Collector(Protocol):
    """Gets each chunk of records during a build, so that the index can hold more than positions.

    It may also have ``satisfied_by(index) -> bool``, which `build_indexes` asks before it accepts an index as
    fresh, and ``keep(index)``, which is called before the build with the index that the build will replace,
    if there is one.
    """

    def update(self, buffer: Any, payload_offsets: UInt64Array, lengths: UInt64Array) -> None:
        """Payloads of ``lengths[i]`` bytes at ``payload_offsets[i]`` in ``buffer``, in stored order."""

    def finish(self) -> tuple[Mapping[str, Any], Mapping[str, npt.NDArray[Any]]]:
        """Metadata that msgpack can hold, and arrays with one entry per record."""


def _room(count: int) -> UInt64Array:
    """Two rows of ``count`` uninitialized numbers.

    Large arrays are aligned to huge pages, which NumPy asks the system for: one page fault instead of
    hundreds, which saves a tenth of the time of a build.
    """
    if 16 * count < _HUGE_PAGE // 2:
        return np.empty((2, count), np.uint64)
    raw = np.empty(2 * count + _HUGE_PAGE // 4, np.uint64)
    skip = -raw.__array_interface__["data"][0] % _HUGE_PAGE // 8
    return raw[skip : skip + 2 * count].reshape(2, count)


class _Places:
    """Collects offsets and lengths in arrays that grow; ``likely``: how many bytes of data to expect."""

    def __init__(self, likely: int) -> None:
        self._rows = _room(0)
        self._likely = likely
        self.count = 0

    def add(self, offsets: UInt64Array, lengths: UInt64Array) -> None:
        end = self.count + len(offsets)
        if end > self._rows.shape[1]:
            done = int(offsets[-1]) + 1
            guess = min(end * max(self._likely, done) // done * 33 // 32, 16 * end)
            larger = _room(max(guess, 2 * self.count, end))
            larger[:, : self.count] = self._rows[:, : self.count]
            self._rows = larger
        self._rows[0, self.count : end] = offsets
        self._rows[1, self.count : end] = lengths
        self.count = end

    def arrays(self) -> tuple[UInt64Array, UInt64Array]:
        return self._rows[0, : self.count], self._rows[1, : self.count]


def _state(path: str) -> tuple[int, ...] | None:
    """A value that changes when a local file is written to or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino


def _scan_headers(data: DataFile, verify: int, places: _Places) -> int:
    """Scan the headers of a file that is not mapped without reading long payloads; returns the end."""
    at = 0
    while at < data.size:
        window = data.view(at, min(_HOP, data.size - at))
        last = at + window.nbytes == data.size
        found = scan(window, verify=verify, final=last)
        if len(found.offsets):
            places.add(found.offsets + np.uint64(at), found.lengths)
        at += found.end
        reason, length = found.reason, 0
        if reason is None and not last and found.end + HEADER_SIZE <= window.nbytes:
            # The payload extends beyond the window; its header says where the next one is.
            length = int.from_bytes(window[found.end : found.end + 8], "little")
            if (
                verify >= VERIFY_LENGTHS
                and frame_header(length) != window[found.end : found.end + HEADER_SIZE]
            ):
                reason = "bad_length_crc"
            elif length > data.size - at - FRAME_OVERHEAD:
                reason = "truncated_record"
            else:
                places.add(np.array([at], np.uint64), np.array([length], np.uint64))
                at += FRAME_OVERHEAD + length
        if reason is not None:
            head = bytes(window[:HEAD_SIZE])
            raise corrupt_error(reason, path=data.path, record=places.count, offset=at, buffer_head=head)
    return at


def _pass(
    source: Any,
    compression: str,
    verify: int,
    collector: Collector | None,
    num_threads: int,
    places: _Places,
    told: Callable[[int], object],
) -> tuple[int, bytes | None]:
    """Check every record of the stream and hand it to the collector.

    Returns the size of the stream, and the digest if payloads were read.
    """
    end = held = 0
    digest = Digest() if verify >= VERIFY_ALL else None
    window = (
        _WINDOW if num_threads <= 1 else _HELD
    )  # starting threads costs as much as checking a few megabytes
    forget = getattr(source, "forget", None)
    for chunk in iter_chunks(
        source,
        compression_type=compression,
        verify=verify,
        chunk_size=window,
        num_threads=num_threads,
        payloads=collector is not None,
        spill=True,
        checksums=digest is not None,
    ):
        offsets = chunk.offsets + np.uint64(chunk.base_offset) if chunk.base_offset else chunk.offsets
        places.add(offsets, chunk.lengths)
        if digest is not None:
            digest.add(chunk.checksums)
        if collector is not None:
            collector.update(chunk.buffer, chunk.offsets + np.uint64(HEADER_SIZE), chunk.lengths)
        end = int(offsets[-1]) + FRAME_OVERHEAD + int(chunk.lengths[-1])
        told(end)
        if forget is not None and end - held >= _HELD:
            forget(held, end - held)
            held = end
    return end, None if digest is None else digest.value()


def _scan_file(
    data: DataFile,
    verify: int,
    compression_type: str | None,
    collector: Collector | None,
    num_threads: int,
    progress: Report | None,
    points: PointBuilder | None,
) -> RecordIndex:
    wanted = normalize_compression(compression_type)
    compression = (detect(data.head(HEAD_SIZE)) or "") if wanted == "auto" else wanted
    places = _Places(data.size)
    digest = None
    stored = data.reader()

    def told(end: int) -> None:
        if progress is not None:
            progress(stored.position if compression else end, data.size)

    if compression:
        with open_stream(stored, compression, points=points) as stream:
            stream_size, digest = _pass(stream, compression, verify, collector, num_threads, places, told)
    elif data.mapped or collector is not None or verify >= VERIFY_ALL:
        stream_size, digest = _pass(data, "", verify, collector, num_threads, places, told)
    else:
        stream_size = _scan_headers(data, verify, places)
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
        fingerprint=fingerprint(data, offsets, lengths, compression),
        digest=digest,
        etag=data.etag,
        points=points.finish(data.size, stream_size)
        if points is not None and compression in WINDOW_BITS
        else None,
        checked=True,
    )


def _check_empty(path: str) -> None:
    """`OSError` if a file of size 0 has content all the same: offsets in it mean nothing."""
    with open(path, "rb", buffering=0) as file:
        if file.read(1):
            reason = "its size is 0 but it has content, so it can only be read forward, as a stream"
            raise OSError(errno.ESPIPE, reason, path)


def scan_index(
    data_path: Any,
    *,
    verify: int = VERIFY_LENGTHS,
    compression_type: str | None = None,
    collector: Collector | None = None,
    num_threads: int = 1,
    progress: Report | None = None,
    points: bool = False,
) -> RecordIndex:
    """The index of a path, URL, seekable file object or `DataFile`, in memory; nothing is written.

    With ``verify=VERIFY_LENGTHS`` only the headers of a plain file are scanned. A compressed file is
    decompressed, forward and in constant memory; ``points``: also find where it can be entered. Raises at the
    first damage. If the file changes meanwhile, that is an `IndexFileError`; if it has content though its
    size is 0 (as in /proc), an `OSError`.
    """
    num_threads = check_threads(num_threads)
    if isinstance(data_path, DataFile):
        found = PointBuilder(data_path.size) if points and finds_blocks() else None
        return _scan_file(data_path, verify, compression_type, collector, num_threads, progress, found)
    path = path_name(data_path)
    before, now = _state(path), time.time_ns()
    with open_data(data_path) as data:
        if before is not None and not before[0]:
            _check_empty(path)
        found = PointBuilder(data.size) if points and finds_blocks() else None
        index = _scan_file(data, verify, compression_type, collector, num_threads, progress, found)
    if before is not None and before != _state(path):
        raise IndexFileError(path, None, "the data changed while it was being indexed")
    if before is None:
        return index
    return index.replace(mtime_ns=before[1], settled=is_settled(before[1], now))
