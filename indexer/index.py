"""`RecordIndex`: where each record of one file is. An immutable value over two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from .display import html_table
from .errors import IndexFileError, TruncatedRecordError
from .files import DataFile
from .framing import FRAME_OVERHEAD, UInt64Array
from .points import Points
from .stored_columns import StoredColumns

__all__ = ["IndexSummary", "RecordIndex"]


class RecordIndex:
    """Offsets and lengths of all records of one file, in stored order.

    Attributes:
        offsets: where the frames start, uint64 ``(n,)``, read-only. May be a view of the mapped index file,
            which it keeps alive. For a compressed file, offsets are those in the decompressed stream.
        lengths: sizes of the payloads in bytes, uint64 ``(n,)``, held as ``offsets`` are.
        path, index_path: the data file and the index file, or None.
        file_size: size of the data file as stored, in bytes.
        compression: ``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``.
        stream_size: size in bytes of the stream that the offsets refer to; ``file_size`` if not compressed.
        metadata: what the collector of the build returned (record type, schema); read-only.
        columns: arrays that the build kept, by name, with one entry per record; read-only. They are masked
            arrays if some records lack a value. Those of an index file are checked and copied at first use:
            `IndexFileError` if they are damaged, `StaleIndexError` if they belong to other data.
        format: ``"extended"``, ``"text"``, or ``"memory"`` if it does not come from an index file.
        mtime_ns: the data file's modification time when it was indexed, None if not known.
        fingerprint: `fingerprint.fingerprint` of the data file, None if not known.
        digest: `fingerprint.digest` of the checksums of all payloads, None if not known.
        etag: for data behind a URL, its ETag when it was indexed.
        points: places where a gzip or zlib file can be entered, None if there are none; `points.Points`.
        settled: whether any later change of the data file shows in its modification time. False if the file
            was written so shortly before that a change might keep the time.

    An index covers its file without gaps: each frame ends where the next one begins, the last at
    ``stream_size``. Opening an extended index does not check every entry, so readers go through `entry` or
    `entries`, which do.
    """

    __slots__ = (
        "_checked",
        "_file",
        "_lengths",
        "_offsets",
        "columns",
        "compression",
        "digest",
        "etag",
        "file_size",
        "fingerprint",
        "format",
        "index_path",
        "metadata",
        "mtime_ns",
        "path",
        "points",
        "settled",
        "stream_size",
    )

    def __init__(
        self,
        offsets: npt.ArrayLike,
        lengths: npt.ArrayLike,
        *,
        path: str | None = None,
        index_path: str | None = None,
        file_size: int | None = None,
        compression: str = "",
        stream_size: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        columns: Mapping[str, npt.NDArray[Any]] | None = None,
        format: str = "memory",
        mtime_ns: int | None = None,
        fingerprint: int | None = None,
        digest: bytes | None = None,
        settled: bool = False,
        etag: str | None = None,
        points: Points | None = None,
        checked: bool = False,
        file: DataFile | None = None,
    ) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("_file", file)
        put("_offsets", _read_only(np.asarray(offsets, np.uint64)))
        put("_lengths", _read_only(np.asarray(lengths, np.uint64)))
        if self.offsets.ndim != 1 or self.offsets.shape != self.lengths.shape:
            raise ValueError("offsets and lengths must be one-dimensional and of the same size")
        if stream_size is None:
            last = len(self.offsets) - 1
            stream_size = (
                0 if last < 0 else int(self.offsets[last]) + FRAME_OVERHEAD + int(self.lengths[last])
            )
        put("path", path)
        put("index_path", index_path)
        put("compression", compression)
        put("stream_size", stream_size)
        put("file_size", stream_size if file_size is None else file_size)
        put("metadata", MappingProxyType(dict(metadata or {})))
        put("columns", columns if isinstance(columns, StoredColumns) else self._kept(columns or {}))
        put("format", format)
        put("mtime_ns", mtime_ns)
        put("fingerprint", fingerprint)
        put("digest", digest)
        put("settled", settled)
        put("etag", etag)
        put("points", points)
        put("_checked", checked)

    # Types of the slots, which object.__setattr__ fills.
    _offsets: UInt64Array
    _lengths: UInt64Array
    _file: DataFile | None
    path: str | None
    index_path: str | None
    file_size: int
    compression: str
    stream_size: int
    metadata: Mapping[str, Any]
    columns: Mapping[str, npt.NDArray[Any]]
    format: str
    mtime_ns: int | None
    fingerprint: int | None
    digest: bytes | None
    settled: bool
    etag: str | None
    points: Points | None
    _checked: bool

    @property
    def offsets(self) -> UInt64Array:
        self._check_file()
        return self._offsets

    @property
    def lengths(self) -> UInt64Array:
        self._check_file()
        return self._lengths

    def _check_file(self) -> None:
        """Raise if the mapped index file has shrunk: reading its arrays would kill the process."""
        if self._file is not None:
            try:
                self._file.check_size()
            except TruncatedRecordError:
                reason = "the index file became shorter while it was open"
                raise IndexFileError(self.path, self.index_path, reason) from None

    def _kept(self, columns: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        kept = {name: _read_only(array) for name, array in columns.items()}
        for name, array in kept.items():
            if array.ndim < 1 or len(array) != len(self._offsets):
                raise ValueError(
                    f"column {name!r} does not have one entry for each of {len(self._offsets)} records"
                )
        return MappingProxyType(kept)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a RecordIndex cannot be changed: {name}")

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        columns = f", columns {', '.join(map(repr, self.columns))}" if len(self.columns) else ""
        size = f"{len(self):,} records of {self.path!r}, {self.stream_size:,} bytes"
        return f"RecordIndex({size}, {self.format}{columns})"

    def _repr_html_(self) -> str:
        rows = [
            ("records", f"{len(self):,}"),
            ("file", str(self.path)),
            ("bytes", f"{self.file_size:,}"),
            ("compression", self.compression or "none"),
            ("index", str(self.index_path or "none")),
            ("format", self.format),
            ("columns", ", ".join(map(repr, self.columns)) or "none"),
        ]
        return html_table("RecordIndex", [("", ""), ("", "")], rows)

    def _state(self) -> dict[str, Any]:
        own = ("_offsets", "_lengths", "_file", "_checked")
        state = {name: getattr(self, name) for name in self.__slots__ if name not in own}
        return {**state, "checked": self._checked}

    def __reduce__(self) -> tuple[Any, ...]:
        state = {**self._state(), "metadata": dict(self.metadata), "columns": dict(self.columns)}
        return _rebuild, (np.array(self.offsets), np.array(self.lengths), state)

    def replace(self, **changes: Any) -> RecordIndex:
        """A copy with other attributes, named as in the constructor; the arrays are shared."""
        return RecordIndex(self._offsets, self._lengths, **{"file": self._file, **self._state(), **changes})

    def entry(self, position: int) -> tuple[int, int]:
        """Offset and length of one record; `IndexFileError` if it does not adjoin its neighbours. O(1)."""
        offsets, lengths = self.offsets, self._lengths
        position = position if position >= 0 else position + len(offsets)
        offset, length = int(offsets[position]), int(lengths[position])
        if self._checked and self._file is None:
            return offset, length
        last = len(offsets) - 1
        follows = self.stream_size if position == last else int(offsets[position + 1])
        begins = self.frame_end(position - 1) if position else 0
        if offset + FRAME_OVERHEAD + length != follows or offset != begins or follows > self.stream_size:
            raise self._damaged(position)
        return offset, length

    def frame_end(self, position: int) -> int:
        """Where the frame of record ``position`` ends according to its length."""
        return int(self._offsets[position]) + FRAME_OVERHEAD + int(self._lengths[position])

    def entries(self, positions: npt.ArrayLike) -> tuple[UInt64Array, UInt64Array]:
        """Offsets and lengths of the records at ``positions`` (all within the index), copied and checked.

        `IndexFileError` if an entry does not adjoin its neighbours.
        """
        at = np.asarray(positions, np.int64)
        every_offset, every_length = self.offsets, self._lengths
        starts, lengths = every_offset[at], every_length[at]
        # A small index that was checked once may be trusted, if nobody else can change it.
        if not len(at) or (self._checked and self._file is None):
            return starts, lengths
        size, last = np.uint64(self.stream_size), len(self) - 1
        # Both are compared with the size first, so no sum below can overflow.
        good = (starts <= size) & (lengths <= size)
        ends = starts + lengths + np.uint64(FRAME_OVERHEAD)
        good &= ends == np.where(at == last, size, every_offset[np.minimum(at + 1, last)])
        before = np.maximum(at - 1, 0)
        joined = every_offset[before] + every_length[before] + np.uint64(FRAME_OVERHEAD)
        good &= starts == np.where(at == 0, np.uint64(0), joined)
        if not good.all():
            raise self._damaged(int(at[int(np.argmin(good))]))
        return starts, lengths

    def _damaged(self, position: int) -> IndexFileError:
        reason = f"entry {position} does not adjoin its neighbours, so the index is damaged"
        return IndexFileError(self.path, self.index_path, reason)

    def check_all(self) -> None:
        """Check every entry, as `entries` does. O(n) in the number of records."""
        step = 1 << 20
        for first in range(0, len(self), step):
            last = min(first + step, len(self))
            if not self._joined(first, last):
                self.entries(np.arange(first, last, dtype=np.int64))  # says which is wrong

    def _joined(self, first: int, last: int) -> bool:
        """Whether each of these consecutive entries adjoins the next, the first one the one before it."""
        offsets, lengths = self.offsets[first : last + 1], self._lengths[first:last]
        size = np.uint64(self.stream_size)
        # Both are compared with the size first, so no sum below can overflow.
        if offsets.max() > size or lengths.max() > size:
            return False
        ends = offsets[: len(lengths)] + lengths + np.uint64(FRAME_OVERHEAD)
        begins = 0 if first == 0 else self.frame_end(first - 1)
        follows = ends[:-1] if len(offsets) == len(lengths) else ends
        whole = last < len(self) or ends[-1] == size
        return bool(whole and offsets[0] == begins and np.array_equal(follows, offsets[1:]))


@dataclass(frozen=True)
class IndexSummary:
    """What the header of an index says; its arrays were not looked at.

    `len` is the number of records; the rest is as in `RecordIndex`.
    """

    path: str
    index_path: str
    num_records: int
    file_size: int
    stream_size: int
    compression: str
    metadata: Mapping[str, Any]

    def __len__(self) -> int:
        return self.num_records


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not array.flags.writeable:
        return array
    view: npt.NDArray[Any] = array.view()
    view.flags.writeable = False
    return view


def _rebuild(offsets: UInt64Array, lengths: UInt64Array, state: dict[str, Any]) -> RecordIndex:
    return RecordIndex(offsets, lengths, **state)
