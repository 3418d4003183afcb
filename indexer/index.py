"""`RecordIndex`: where each record of one file is. An immutable value over two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import IndexFileError
from .framing import FRAME_OVERHEAD, UInt64Array

__all__ = ["RecordIndex"]


class RecordIndex:
    """Offsets and lengths of all records of one file, in stored order.

    Attributes:
        offsets: where the frames start, uint64 ``(n,)``, read-only, perhaps a view of the mapped index file,
            which it keeps alive. Of a compressed file these are places in the decompressed stream.
        lengths: bytes of the payloads, uint64 ``(n,)``, as ``offsets``.
        path, index_path: the data file and the index file, or None.
        file_size: bytes of the data file as stored.
        compression: ``""``, ``"gzip"`` or ``"zlib"``.
        stream_size: bytes of the stream that the offsets are of; ``file_size`` where that is not compressed.
        metadata: what the collector of the build said (record type, schema); read-only.
        columns: arrays of one entry a record that were kept at the build; read-only.
        format: ``"extended"``, ``"text"``, or ``"memory"`` where it came from no index file.
        mtime_ns: the data file's modification time when it was indexed, None where that is not known.
        fingerprint: `binding.fingerprint` of the data file, None where that is not known.

    An index covers its file without gaps: each frame ends where the next one begins, the last at
    ``stream_size``. Opening an extended index does not look at all entries, so those that read call
    `check_entry` or `check_entries`.
    """

    __slots__ = (
        "_checked",
        "columns",
        "compression",
        "file_size",
        "fingerprint",
        "format",
        "index_path",
        "lengths",
        "metadata",
        "mtime_ns",
        "offsets",
        "path",
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
        checked: bool = False,
    ) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("offsets", _read_only(np.asarray(offsets, np.uint64)))
        put("lengths", _read_only(np.asarray(lengths, np.uint64)))
        if self.offsets.ndim != 1 or self.offsets.shape != self.lengths.shape:
            raise ValueError("offsets and lengths must be one-dimensional and of one size")
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
        kept = {name: _read_only(array) for name, array in (columns or {}).items()}
        for name, array in kept.items():
            if array.ndim < 1 or len(array) != len(self.offsets):
                raise ValueError(
                    f"column {name!r} does not have one entry for each of {len(self.offsets)} records"
                )
        put("columns", MappingProxyType(kept))
        put("format", format)
        put("mtime_ns", mtime_ns)
        put("fingerprint", fingerprint)
        put("_checked", checked)

    # Slots are filled through object.__setattr__; their types, for readers and type checkers.
    offsets: UInt64Array
    lengths: UInt64Array
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
    _checked: bool

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a RecordIndex cannot be changed: {name}")

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"RecordIndex({len(self)} records of {self.path!r}, {self.format}, {self.stream_size} bytes)"

    def _state(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__ if name not in ("offsets", "lengths")}
        state["checked"] = state.pop("_checked")
        state["metadata"], state["columns"] = dict(self.metadata), dict(self.columns)
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (np.array(self.offsets), np.array(self.lengths), self._state())

    def replace(self, **changes: Any) -> RecordIndex:
        """A copy with other attributes, named as in the constructor; the arrays are shared."""
        return RecordIndex(self.offsets, self.lengths, **{**self._state(), **changes})

    def frame_end(self, position: int) -> int:
        """Where the frame of record ``position`` ends, by its own length."""
        return int(self.offsets[position]) + FRAME_OVERHEAD + int(self.lengths[position])

    def check_entry(self, position: int) -> None:
        """Raise `IndexFileError` where the entry does not join its neighbours. O(1)."""
        if self._checked:
            return
        last = len(self.offsets) - 1
        position = position if position >= 0 else position + last + 1
        follows = self.stream_size if position == last else int(self.offsets[position + 1])
        begins = self.frame_end(position - 1) if position else 0
        if (
            self.frame_end(position) != follows
            or int(self.offsets[position]) != begins
            or follows > self.stream_size
        ):
            raise self._damaged(position)

    def check_entries(self, positions: npt.ArrayLike) -> None:
        """`check_entry` for many positions (all within the index)."""
        if self._checked:
            return
        at = np.asarray(positions, np.int64)
        if not len(at):
            return
        size, last = np.uint64(self.stream_size), len(self) - 1
        starts, lengths = self.offsets[at], self.lengths[at]
        # Both are compared with the size first, so that no sum below can wrap around.
        good = (starts <= size) & (lengths <= size)
        ends = starts + lengths + np.uint64(FRAME_OVERHEAD)
        good &= ends == np.where(at == last, size, self.offsets[np.minimum(at + 1, last)])
        before = np.maximum(at - 1, 0)
        joined = self.offsets[before] + self.lengths[before] + np.uint64(FRAME_OVERHEAD)
        good &= starts == np.where(at == 0, np.uint64(0), joined)
        if not good.all():
            raise self._damaged(int(at[int(np.argmin(good))]))

    def _damaged(self, position: int) -> IndexFileError:
        reason = f"entry {position} does not join its neighbours, so the index is damaged"
        return IndexFileError(self.path, self.index_path, reason)

    def check_all(self) -> None:
        """`check_entry` for every entry; needs time in the number of records."""
        step = 1 << 20
        for first in range(0, len(self), step):
            self.check_entries(np.arange(first, min(first + step, len(self)), dtype=np.int64))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not array.flags.writeable:
        return array
    view: npt.NDArray[Any] = array.view()
    view.flags.writeable = False
    return view


def _rebuild(offsets: UInt64Array, lengths: UInt64Array, state: dict[str, Any]) -> RecordIndex:
    return RecordIndex(offsets, lengths, **state)
