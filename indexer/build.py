"""Building, finding and checking indexes.

A build reads the data once and checks every length and payload. Only then does it write the index.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import stat
import time
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import formats
from .atomic import check_name, replace_file
from .compression import HEAD_SIZE, detect, is_frame
from .errors import (
    DecodeError,
    FeatureKindError,
    IndexFileError,
    MissingFeatureError,
    StaleIndexError,
    UnsupportedCompressionError,
)
from .files import is_url, local_path, open_data, path_name
from .fingerprint import Digest, fingerprint, is_settled
from .framing import FRAME_OVERHEAD, VERIFY_ALL, UInt64Array
from .index import RecordIndex
from .inflaters import WINDOW_BITS
from .names import is_data_name
from .options import warn_caller
from .paths import find_index, sidecar_path
from .points import PointBuilder
from .progress import Progress, shown
from .scanning import Collector, scan_index
from .stores import open_store
from .stores.upload import check_writable

__all__ = [
    "Collector",
    "IndexWriter",
    "build_index",
    "build_index_of_url",
    "check_index",
    "check_index_name",
    "earlier_index",
    "find_index",
    "object_version",
    "scan_index",
    "sidecar_path",
]

Format = Literal["extended", "text"]


def build_index(
    data_path: Any,
    index_path: Any = None,
    *,
    format: Format = "extended",
    collector: Collector | None = None,
    num_threads: int = 1,
    compression_type: str | None = None,
    progress: Progress = False,
    drop_columns: bool = False,
) -> RecordIndex:
    """Check a data file from end to end and write its index.

    Args:
        index_path: by default the data file's full name plus ``.tfindex``. An earlier index there is replaced
            atomically, and only after the whole file was found good; otherwise it stays.
        format: ``"extended"``, or ``"text"`` (for plain files only).
        collector: gets every record as it is read.
        num_threads: how many threads share the payload checks.
        progress: True shows a bar; a callable gets the bytes done so far and the size of the file.
        drop_columns: replace an index even if it has a schema or columns that the new one will not have.

    Raises:
        CorruptRecordError: a record is damaged; building stops at the first.
        CompressionError: the compressed stream is damaged.
        IndexFileError: the data changed meanwhile.
        ValueError: the index would overwrite data or lose columns.
        OSError: the index cannot be written.
    """
    path = path_name(data_path)
    target = sidecar_path(path) if index_path is None else os.fsdecode(index_path)
    target = local_path(target) or target
    if format not in ("extended", "text"):
        raise ValueError(f"format is {format!r}; it must be 'extended' or 'text'")
    _refuse_to_overwrite_data(path, target)
    version = object_version(target) if is_url(target) else None
    earlier = earlier_index(target) if version != "" else None
    if earlier is not None and not drop_columns:
        keep = getattr(collector, "keep", None)
        if format == "extended" and keep is not None:
            keep(earlier)
        else:
            _refuse_to_lose(earlier, path, format, collector is not None)
    index = _scanned(data_path, collector, num_threads, compression_type, progress)
    if format == "text" and index.compression:
        raise UnsupportedCompressionError(
            path,
            None,
            None,
            "unsupported_compression",
            f"it is {index.compression}",
            "A text index cannot record that; build an extended one.",
        )
    index = index.replace(index_path=target, format=format)
    _write(target, index, version)
    return index


def build_index_of_url(
    url: Any, *, collector: Any, compression_type: str | None = None, progress: Progress = False
) -> tuple[RecordIndex, OSError | IndexFileError | None]:
    """`build_index` for callers that need the index even if it cannot be written; also returns that error."""
    target = sidecar_path(url)
    unwritable: OSError | IndexFileError | None = None
    try:
        version = object_version(target)
        earlier = earlier_index(target) if version != "" else None
        check_writable(target)
    except ValueError as error:
        unwritable = OSError(errno.EROFS, str(error))
    except OSError as error:  # it may not be looked at
        version, earlier, unwritable = None, None, error
    if earlier is not None:
        collector.keep(earlier)
    index = _scanned(url, collector, 1, compression_type, progress)
    index = index.replace(index_path=target, format="extended")
    if unwritable is None:
        try:
            _write(target, index, version)
        except (OSError, IndexFileError) as error:
            unwritable = error
    return index, unwritable


def _scanned(
    data_path: Any, collector: Any, num_threads: int, compression_type: str | None, progress: Progress
) -> RecordIndex:
    """Check data from end to end and return its index."""
    path = path_name(data_path)
    try:
        with shown(progress, os.path.basename(path)) as report:
            index = scan_index(
                data_path,
                verify=VERIFY_ALL,
                compression_type=compression_type,
                collector=collector,
                num_threads=num_threads,
                progress=report,
                points=True,
            )
    except (DecodeError, FeatureKindError, MissingFeatureError) as error:
        raise error.at(path, error.record) from None
    if index.compression in WINDOW_BITS and index.points is None:
        warn_caller(
            f"{path}: no zlib library was found, so the index has no points to enter the compressed file at: "
            "random access will decompress the whole file first"
        )
    return index


def object_version(target: str) -> str | None:
    """The current ETag of the object behind a URL: ``""`` if there is none, None if it has no ETag."""
    store, key = open_store(target)
    try:
        return store.stat(key).etag
    except FileNotFoundError:
        return ""


def _write(target: str, index: RecordIndex, version: str | None) -> None:
    """Write an index, completely or not at all; behind a URL only if ``version`` is still current."""
    write = formats.write_text_index if index.format == "text" else formats.write_index
    if not is_url(target):
        with replace_file(target) as file:
            write(file, index)
        return
    store, key = open_store(target)
    buffer = io.BytesIO()
    write(buffer, index)
    try:
        store.put(key, buffer.getvalue(), if_match=version or None, if_absent=version == "")
    except FileExistsError:
        raise StaleIndexError(target, None, "somebody else wrote an index there meanwhile") from None


def earlier_index(target: str) -> RecordIndex | None:
    """The index now at ``target``, whatever data it belongs to; None if there is none or it is unusable."""
    try:
        with open_data(target, mmap=False) as file:
            if file.head(len(formats.MAGIC)) != formats.MAGIC:
                return None
        return formats.load_index(target)
    except (IndexFileError, OSError):
        return None


def _refuse_to_lose(earlier: RecordIndex, path: str, format: Format, collects: bool) -> None:
    """`ValueError` if a build would lose the schema or columns of the earlier index."""
    lost = [f"column {name!r}" for name in earlier.columns]
    if format == "extended" and "schema" in earlier.metadata:
        lost.append("the schema")
    if lost and not collects:
        raise ValueError(
            f"index {earlier.index_path} of {path} holds {', '.join(lost)}, which this build would drop. "
            f"To keep them, use 'tfrecord index {shlex.quote(path)}' or tfrecord.build_index({path!r}). "
            "To drop them, use drop_columns=True (--drop-columns)"
        )


def check_index_name(path: str, target: str | None = None) -> None:
    """OSError if the index of a file would have too long a name; ``target``: None for the sidecar."""
    target = sidecar_path(path) if target is None else target
    if is_url(target):
        return
    try:
        check_name(target)
    except OSError as error:
        reason = (
            f"{os.strerror(error.errno or 0)} for the index of {path}: give the data file a shorter name, or "
            "build the index under another name with tfrecord.build_index(path, index_path) and open it with "
            "TFRecordReader(path, index=index_path)"
        )
        raise type(error)(error.errno, reason, target) from None


def _refuse_to_overwrite_data(path: str, target: str) -> None:
    if is_url(target):
        if not target.endswith(".tfindex"):
            raise ValueError(f"{target}: the name of an index behind a URL must end in .tfindex")
        check_writable(target, "give index_path=, the name of a local file")
        return
    check_index_name(path, target)
    if not os.path.exists(target):
        return
    if os.path.exists(path) and os.path.samefile(path, target):
        raise ValueError(f"the index would overwrite its data: {target}")
    if os.path.isdir(target):
        raise IsADirectoryError(f"{target} is a folder, not the name of an index file")
    if not stat.S_ISREG(os.stat(target).st_mode):
        raise ValueError(f"{target} is not a regular file")
    with open(target, "rb") as file:
        head = file.read(HEAD_SIZE)
    if is_data_name(target) or is_frame(head) or detect(head) is not None:
        raise ValueError(f"the index would overwrite other data: {target}")


def no_index(path: str) -> FileNotFoundError:
    """The error for an index that does not exist."""
    if not is_url(path) and not os.path.exists(path):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return FileNotFoundError(f"{path} has no index; build it: python -m indexer build {shlex.quote(path)}")


def check_index(data_path: Any, index_path: Any = None, *, num_threads: int = 1) -> RecordIndex:
    """Check an index and its data completely, and return the index.

    Checks every array of the index, every record of the data, and that the index has the exact position of
    every record. Raises an error for the first thing wrong; `FileNotFoundError` if there is no index.
    """
    path = path_name(data_path)
    found = find_index(path) if index_path is None else os.fsdecode(index_path)
    if found is None:
        raise no_index(path)
    with open_data(data_path) as data:
        index = formats.load_index(found, data)
        formats.verify_arrays(found)
        index.check_all()
        actual = scan_index(
            data_path, verify=VERIFY_ALL, compression_type=index.compression, num_threads=num_threads
        )
    if len(actual) != len(index):
        raise IndexFileError(path, found, f"it has {len(index)} records, the data has {len(actual)}")
    wrong = (index.offsets != actual.offsets) | (index.lengths != actual.lengths)
    if wrong.any():
        raise IndexFileError(
            path, found, f"record {int(np.argmax(wrong))} is elsewhere, or has another length"
        )
    return index


class IndexWriter:
    """Makes the index of a file while the file is written, from one record length after another."""

    def __init__(self) -> None:
        self._lengths = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def stream_size(self) -> int:
        """Bytes of the frames of all records so far."""
        lengths = np.array(self._lengths, np.uint64)
        return int(lengths.sum()) + FRAME_OVERHEAD * len(lengths)

    def add(self, length: int) -> None:
        """Add a written record with a payload of ``length`` bytes."""
        self._lengths.append(length)

    def add_many(self, lengths: Iterable[int] | UInt64Array) -> None:
        """Add several written records, in this order."""
        if isinstance(lengths, np.ndarray):
            self._lengths.frombytes(np.ascontiguousarray(lengths, np.uint64).tobytes())
        else:
            self._lengths.extend(lengths)

    def commit(
        self,
        data_path: Any,
        index_path: Any = None,
        *,
        compression: str = "",
        metadata: Mapping[str, Any] | None = None,
        columns: Mapping[str, npt.NDArray[Any]] | None = None,
        checksums: bytes | None = None,
        points: PointBuilder | None = None,
    ) -> RecordIndex:
        """Write the extended index of the finished data file, atomically.

        ``checksums``: those of all payloads, 4 bytes each, as stored. Without them the index serves its
        columns only as long as the file's modification time does not change. ``points``: where a compressed
        file can be entered.

        `IndexFileError` if a plain file is not exactly as long as the records that were added.
        """
        path = path_name(data_path)
        target = sidecar_path(path) if index_path is None else os.fsdecode(index_path)
        _refuse_to_overwrite_data(path, target)
        version = object_version(target) if is_url(target) else None
        lengths = np.array(self._lengths, np.uint64)
        ends = np.cumsum(lengths + np.uint64(FRAME_OVERHEAD), dtype=np.uint64)
        stream_size = int(ends[-1]) if len(ends) else 0
        now = time.time_ns()
        digest = Digest()
        digest.add(checksums or b"")
        with open_data(path, mmap=False) as data:
            mtime_ns = data.mtime_ns
            if not compression and data.size != stream_size:
                reason = f"the data has {data.size} bytes, the records written have {stream_size}"
                raise IndexFileError(path, target, reason)
            offsets = ends - lengths - np.uint64(FRAME_OVERHEAD)
            index = RecordIndex(
                offsets,
                lengths,
                path=path,
                index_path=target,
                file_size=data.size,
                compression=compression,
                stream_size=stream_size,
                metadata=metadata,
                columns=columns,
                format="extended",
                mtime_ns=mtime_ns,
                fingerprint=fingerprint(data, offsets, lengths, compression),
                digest=None if checksums is None else digest.value(),
                settled=mtime_ns is not None and is_settled(mtime_ns, now),
                etag=data.etag,
                points=None if points is None else points.finish(data.size, stream_size),
                checked=True,
            )
        _write(target, index, version)
        return index
