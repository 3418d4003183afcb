"""`DataFile`, the interface of random access to bytes, over memory or a file object of the caller.

A `DataFile` returns read-only views that stay valid for as long as somebody holds them, even after `close`.
It checks the file's size before each read: a file that shrank is an error, not a crash.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import TruncatedRecordError
from .stores.pieces import UInt64Array, join_ranges

__all__ = ["BytesFile", "DataFile", "Gathered", "ObjectFile"]

# Another call of pread takes about as long as reading this many bytes.
_GAP = 1 << 14


class Gathered(NamedTuple):
    """Ranges of a file: the buffers that hold them, where each begins in its buffer (uint64 ``(n,)``), and
    the number of its buffer (int32 ``(n,)``; None if there is only one)."""

    buffers: tuple[memoryview, ...]
    places: UInt64Array
    ids: npt.NDArray[np.int32] | None = None


class DataFile(ABC):
    """One plain (not compressed) source of bytes; made by `open_data`.

    Attributes: ``path`` (text for messages), ``size`` (bytes, when it was opened), ``mapped`` (whether
    `buffer` works and views are views of a map), ``remote`` (whether each read is a request), ``closed``.
    ``identity`` (device and inode) and ``mtime_ns`` are those of a local file when it was opened, else None.
    ``etag`` is that of an object behind a URL, if the store has one.
    """

    mapped = False
    remote = False

    def __init__(self, path: str, size: int, status: os.stat_result | None = None) -> None:
        self.path = path
        self.size = size
        self.identity = None if status is None else (status.st_dev, status.st_ino)
        self.mtime_ns = None if status is None else status.st_mtime_ns
        self.etag: str | None = None
        self.closed = False

    def view(self, offset: int, length: int) -> memoryview:
        """A read-only view of ``length`` bytes at ``offset``, which stays valid after this object is closed.

        `IndexError` outside the file; `TruncatedRecordError` if the file has shrunk since it was opened.
        """
        if offset < 0 or length < 0 or offset + length > self.size:
            raise IndexError(
                f"{self.path}: bytes {offset} to {offset + length} are outside its {self.size} bytes"
            )
        self._check_open()
        return memoryview(self._read(offset, length))

    def buffer(self) -> memoryview:
        """A read-only view of the whole file, which must be mapped."""
        raise ValueError(f"{self.path} is not mapped")

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array, *, again: bool = False
    ) -> Callable[[], Gathered]:
        """Begin to read ranges, each byte once: this sends requests to a store. Calling the returned function
        waits for them. ``again``: read them anew even if they were asked for ahead."""
        return partial(self._gather, starts, ends)

    def _gather(self, starts: UInt64Array, ends: UInt64Array) -> Gathered:
        begins, stops, which = join_ranges(starts, ends, _GAP)
        sizes = stops - begins
        parts = [self.view(start, size) for start, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
        buffer = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
        bases = np.cumsum(sizes, dtype=np.uint64) - sizes
        return Gathered((buffer,), starts - begins[which] + bases[which])

    def head(self, length: int) -> bytes:
        """The first ``length`` bytes, or all if there are fewer."""
        return bytes(self.view(0, min(length, self.size)))

    def reader(self, position: int = 0) -> Any:
        """A file object that reads this forward, starting at ``position``."""
        return _Forward(self, position)

    @abstractmethod
    def check_size(self) -> None:
        """Raise `TruncatedRecordError` if the file is shorter than when it was opened."""

    def advise(self, ranges: Iterable[tuple[int, int]]) -> Any:
        """Tell the system that these (offset, length) ranges will be read soon; close ones are merged.

        From a store they are fetched now. What was fetched is there for as long as the caller holds the
        result.
        """
        self._check_open()

    def close(self) -> None:
        """Release the file. Existing views stay valid. Closing twice is fine."""
        self.closed = True

    def __enter__(self) -> DataFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abstractmethod
    def _read(self, offset: int, length: int) -> Any:
        """Bytes, or a view, of a range inside the file."""

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path} is closed")

    def _shrunk(self, size: int, offset: int | None = None) -> TruncatedRecordError:
        detail = f"the file shrank from {self.size} to {size} bytes while it was open"
        return TruncatedRecordError(self.path, None, offset, "truncated_record", detail)


class _Forward:
    """What a stream needs from a file object, and what the scanner needs from a stream."""

    def __init__(self, data: DataFile, position: int) -> None:
        self.name = data.path
        self.position = position
        self._data = data

    def read(self, size: int) -> memoryview:
        size = min(size, self._data.size - self.position)
        piece = self._data.view(self.position, size) if size > 0 else memoryview(b"")
        self.position += piece.nbytes
        return piece

    read_some = read

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, position: int) -> None:
        self.position = position

    def close(self) -> None:
        """Close the file itself: for readers that own it."""
        self._data.close()


class ObjectFile(DataFile):
    """A seekable binary file object from the caller; it is not closed here."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        super().__init__(path, file.seek(0, os.SEEK_END))
        self._file = file
        self._lock = threading.Lock()

    def check_size(self) -> None:
        self._check_open()
        with self._lock:
            now = self._file.seek(0, os.SEEK_END)
        if now < self.size:
            raise self._shrunk(now)

    def _read(self, offset: int, length: int) -> bytes:
        parts = []
        done = 0
        with self._lock:
            self._file.seek(offset)
            while done < length:
                part = self._file.read(length - done)
                if not part:
                    raise self._shrunk(offset + done, offset)
                parts.append(part)
                done += len(part)
        return b"".join(parts)


class BytesFile(DataFile):
    """Data that is already in memory."""

    mapped = True

    def __init__(self, path: str, data: memoryview) -> None:
        super().__init__(path, data.nbytes)
        self._data = data

    def check_size(self) -> None:
        self._check_open()

    def buffer(self) -> memoryview:
        self._check_open()
        return self._data

    def _read(self, offset: int, length: int) -> memoryview:
        return self._data[offset : offset + length]
