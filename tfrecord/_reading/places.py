"""Where each record is: the files and indexes of many files as one sequence of records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from indexer.errors import CorruptRecordError
from indexer.files import DataFile, is_url, most_descriptors
from indexer.index import IndexSummary, RecordIndex
from indexer.sniffing import HEAD_SIZE
from indexer.stores import Url
from indexer.stores.ranges import side_by_side
from indexer.streams import detect, open_stream
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.access import CompressedFiles
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.indexes import LaterIndexes, load_indexes, scan_headers, stored_compression
from tfrecord._reading.locks import ForkSafeLock
from tfrecord._reading.open_files import OpenFiles
from tfrecord._reading.remote_indexes import needed_indexes
from tfrecord._reading.runs import ReadOptions
from tfrecord._reading.spool import SpoolFullError

__all__ = ["CLOSED", "RecordPlaces"]

CLOSED = "I/O operation on closed reader"


class RecordPlaces:
    """The files of a `RecordStore`, their indexes, and the positions of their records."""

    #: Whether positions are places in files that other processes can open too.
    has_files = True

    def __init__(
        self,
        paths: Sequence[str],
        indexes: Sequence[RecordIndex | None],
        options: ReadOptions,
        policy: DamagePolicy,
    ) -> None:
        self.paths = tuple(paths)
        self.options = options
        self.policy = policy
        self.given: Sequence[RecordIndex | None] = tuple(indexes)
        self._indexes = list(indexes)
        self._files = OpenFiles(self.paths, mmap=options.mmap)
        self._compressed = CompressedFiles(options)
        self._compressions: dict[int, str] = {}
        self._starts: Int64Array | None = None
        self._start_list: list[int] = []
        self._looked_through: set[int] = set()
        self._expected: tuple[int, ...] | None = None
        self._passed: dict[int, tuple[int, int]] = {}  # offset and number of the last record that was placed
        self._lock = ForkSafeLock()
        self.closed = False

    def place(self, path: str) -> str:
        """The current path of a file or index; see `OpenFiles`."""
        return self._files.place(path)

    @property
    def has_index(self) -> bool:
        """Whether all positions are known."""
        return self.all_given or None not in self._indexes

    @property
    def all_given(self) -> bool:
        """Whether the files all have an index, which is loaded when it is needed."""
        return isinstance(self.given, LaterIndexes)

    def index(self, number: int) -> RecordIndex:
        """The index of one file: the one given, or one that is made now."""
        self.check_open()
        if self._indexes[number] is None:
            self._build_remote([number])
        found = self._indexes[number]
        if found is None:
            with self._lock:
                found = self._indexes[number]
                if found is None:
                    found = self.given[number]
                    found = self._indexes[number] = self._scan_headers(number) if found is None else found
        self._check_count(number, len(found))
        return found

    def summary(self, number: int) -> RecordIndex | IndexSummary | None:
        """The index of one file that was given, or what its header says; None if there is none."""
        given = self.given
        return given.summary(number) if isinstance(given, LaterIndexes) else given[number]

    def _known(self, number: int) -> RecordIndex | None:
        """The index of one file, if there is one without a scan."""
        found = self._indexes[number]
        return self.index(number) if found is None and self.all_given else found

    def _build_remote(self, numbers: Sequence[int]) -> None:
        """Make the indexes of objects behind URLs, where they are missing, in one pass over each. Compressed
        and damaged objects are left out."""
        with self._lock:
            found: dict[int, tuple[Url, DataFile]] = {}
            for number in numbers:
                path = self.paths[number]
                if self._indexes[number] is None and is_url(path) and not self.compression(number):
                    file = self._files.local(number)
                    if file is not None:
                        found[number] = path if isinstance(path, Url) else Url(path), file
            if found:
                for number, index in zip(found, needed_indexes(list(found.values())), strict=True):
                    self._indexes[number] = index

    def expect(self, counts: Sequence[int]) -> None:
        """Set how many records each file has, so that positions are known without reading the files.

        A file with another number of records raises `CorruptRecordError` once that is noticed.
        """
        self._expected = tuple(counts)
        self._set_starts(counts)

    def _check_count(self, number: int, count: int) -> None:
        if self._expected is not None and count != self._expected[number]:
            reason = f"the file holds {count:,} records, not {self._expected[number]:,} as its data set says"
            raise CorruptRecordError(self.paths[number], None, None, reason)

    def _scan_headers(self, number: int) -> RecordIndex:
        """Find the records by their headers alone; for a damaged file raise, or keep the records before the
        damage."""
        path, compression = self.place(self.paths[number]), self.compression(number)
        file = self._files.local(number)
        source: Any = self._source(number)
        if compression:
            try:
                source = self._compressed.spool(path, compression, source)
            except SpoolFullError:
                source = self._source(number)  # too large for random access, but its records can be counted
        size = None if file is None else file.size
        return scan_headers(source, path, compression, size, self.options, self.policy)

    def _source(self, number: int) -> Any:
        """The source for reading a file forward: the open file, or the path if it is not a local file."""
        file = self._files.local(number)
        if file is None:
            return self.place(self.paths[number])
        compression = self.compression(number)
        return open_stream(file.reader(), compression) if compression else file

    @property
    def starts(self) -> Int64Array:
        """Position of each file's first record, then the number of all records: int64 (num_files + 1,)."""
        if self._starts is None:
            if isinstance(self.given, LaterIndexes):
                return self._set_starts(self.given.counts)
            self._build_remote(range(len(self.paths)))
            return self._set_starts([len(self.index(number)) for number in range(len(self.paths))])
        return self._starts

    def _set_starts(self, counts: Sequence[int]) -> Int64Array:
        starts = np.zeros(len(self.paths) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        starts.setflags(write=False)
        self._start_list = starts.tolist()
        self._starts = starts
        return starts

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, position: int) -> tuple[int, int]:
        """File number, and record number within the file."""
        if self._starts is None:
            len(self)
        number = bisect_right(self._start_list, position) - 1
        return number, position - self._start_list[number]

    def places(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`locate` for many positions: file numbers and record numbers."""
        if len(self.paths) == 1:
            return np.zeros(len(positions), np.int64), positions
        numbers = np.searchsorted(self.starts, positions, side="right") - 1
        return numbers, positions - self.starts[numbers]

    def compression(self, number: int) -> str:
        """``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``."""
        index = self._known(number)
        if index is not None:
            return index.compression
        if self.options.compression_type != "auto":
            return self.options.compression_type
        found = self._compressions.get(number)
        if found is None:
            file = self._files.local(number)
            if file is not None:
                found = detect(file.head(HEAD_SIZE)) or ""
            else:
                found = stored_compression(self.place(self.paths[number]))
            self._compressions[number] = found
        return found

    def check_open(self) -> None:
        """`ValueError` after `close`."""
        if self.closed:
            raise ValueError(CLOSED)

    def use_indexes(self, index: Any) -> None:
        """Load the indexes of the files; ``index`` as for `TFRecordReader`."""
        places = [self.place(path) for path in self.paths]
        indexes = load_indexes(places, index, self.options, self.policy, self._files)
        if isinstance(indexes, LaterIndexes):
            self.given, self._indexes = indexes, [None] * len(indexes)
        else:
            self.given, self._indexes = tuple(indexes), list(indexes)

    def open_all(self) -> None:
        """Open the files, if that many may be open: from now on these are read, even if they are replaced."""
        remote = [number for number, path in enumerate(self.paths) if is_url(path)]
        side_by_side(self._files.get, remote)
        if len(self.paths) - len(remote) <= most_descriptors():
            for number in range(len(self.paths)):
                self._files.local(number)

    def close(self) -> None:
        """Close the files and discard what was spooled. Views stay valid."""
        self.closed = True
        self._files.close()
        self._compressed.close()
