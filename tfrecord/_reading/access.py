"""How random access to compressed files works: through points, or a decompressed copy on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from indexer.errors import IndexFileError, UnsupportedCompressionError
from indexer.files import DataFile
from indexer.index import RecordIndex
from indexer.inflaters import WINDOW_BITS
from indexer.options import listed, near_matches
from tfrecord._reading.locks import ForkSafeLock
from tfrecord._reading.pointed import PointedFile
from tfrecord._reading.runs import ReadOptions
from tfrecord._reading.spool import Spool, SpooledFile, SpoolFullError

__all__ = ["ACCESS", "CompressedFiles", "check_access"]

ACCESS = ("auto", "spool", "points")
_MOST_KEPT = 64
# A file is spooled once reading it through points has decompressed this many times its content.
_PASSES = 2


def check_access(access: Any) -> str:
    """`ValueError` unless it is one of `ACCESS`."""
    if access not in ACCESS:
        raise ValueError(
            f"access is {access!r}; it must be one of {listed(ACCESS)}{near_matches(access, ACCESS)}"
        )
    return str(access)


class CompressedFiles:
    """The compressed files of one store, each read through its points or from the spool.

    With ``access="auto"`` a file with points is read through them until that has cost as much as
    decompressing it twice; then it is spooled, if it fits. Safe to use from several threads.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._spool = Spool(options.max_spool_bytes)
        self._pointed: OrderedDict[int, PointedFile] = OrderedDict()
        self._too_large: set[int] = set()
        self._lock = ForkSafeLock()

    def peek(self, path: str) -> SpooledFile | None:
        """The spooled content of a file, if it is already there and complete."""
        return self._spool.peek(path)

    def spool(self, path: str, compression: str, source: Any) -> SpooledFile:
        """The content of a file on disk; see `Spool.get`."""
        return self._spool.get(path, compression, source)

    def pointed(
        self, number: int, index: RecordIndex | None, data: Callable[[], DataFile]
    ) -> PointedFile | None:
        """File ``number``, read through points; None if that is not asked for or not possible.

        Raises:
            IndexFileError, UnsupportedCompressionError: points are asked for, and there are none.
        """
        if self._options.access == "spool":
            return None
        if index is None or index.points is None:
            if self._options.access == "points":
                raise _no_points(data().path, index)
            return None
        with self._lock:
            found = self._pointed.get(number)
            if found is None:
                options = self._options
                found = PointedFile(data(), index, options.max_record_bytes, options.num_threads)
                self._pointed[number] = found
                if len(self._pointed) > _MOST_KEPT:
                    self._pointed.popitem(last=False)
            return found

    def open(
        self,
        number: int,
        path: str,
        index: RecordIndex,
        data: Callable[[], DataFile],
        source: Callable[[], Any],
    ) -> PointedFile | SpooledFile:
        """The content of a file for random access. ``source`` gives it for a forward pass."""
        if self._options.access != "points" and (spooled := self.peek(path)) is not None:
            return spooled
        pointed = self.pointed(number, index, data)
        if pointed is None:
            return self.spool(path, index.compression, source())
        often = pointed.inflated > _PASSES * index.stream_size
        if often and self._options.access == "auto" and number not in self._too_large:
            try:
                return self.spool(path, index.compression, source())
            except SpoolFullError:
                self._too_large.add(number)
        return pointed

    def close(self) -> None:
        """Discard what is on disk; views stay valid."""
        self._pointed.clear()
        self._spool.close()


def _no_points(path: str, index: RecordIndex | None) -> Exception:
    if index is not None and index.compression not in WINDOW_BITS:
        detail = f"a {index.compression} file has no points"
        hint = "Leave access out, or use gzip."
        return UnsupportedCompressionError(path, None, None, "unsupported_compression", detail, hint)
    name = f"{path}.tfindex" if index is None or index.index_path is None else index.index_path
    return IndexFileError(
        path, name, "access='points' needs an extended index with points, and there is none"
    )
