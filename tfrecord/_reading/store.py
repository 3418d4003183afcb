"""Payloads by position: many files as one sequence of records, however they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from indexer.errors import IndexFileError, RemoteError, StaleIndexError, TFRecordError
from indexer.files import DataFile, is_url
from indexer.index import RecordIndex
from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.fetching import FetchedRows, fetch_record, start_fetch
from tfrecord._reading.indexes import MANY_FILES, LaterIndexes
from tfrecord._reading.places import RecordPlaces
from tfrecord._reading.pointed import stream_through_points
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.runs import ReadOptions, RecordRun, stream_records
from tfrecord._reading.spool import SpooledFile

__all__ = ["Fetched", "RecordStore"]

# Up to this many entries an index is checked as a whole, which takes about a millisecond.
_SMALL_INDEX = 1 << 17


class Fetched(NamedTuple):
    """Payloads and their positions: those requested, except skipped damaged ones."""

    payloads: BytesColumn
    positions: Int64Array


class RecordStore(RecordPlaces):
    """The records of several files as one sequence, in the order of the files.

    Positions count from 0 over all files. They need an index of each file; if a file has none, its headers
    are scanned when a position is first needed (a compressed file is spooled for this). Safe to use from
    several threads; a pickle leaves out handles, maps and indexes that came from a header scan. A copy of
    many files that all have an index loads each index when its file is used.
    """

    def stream(
        self,
        number: int,
        start: int = 0,
        step: int = 1,
        seek: tuple[int, int] = (0, 0),
        policy: DamagePolicy | None = None,
        stop: int | None = None,
    ) -> Iterator[RecordRun]:
        """Records ``start``, ``start + step``, ... of one file in stored order, in one pass and constant
        memory; those before ``stop``, if it is given.

        ``seek``: (offset, number) of a record at or before ``start`` of a plain file, if the caller knows one
        that the index does not. ``policy``: replaces the policy of the store.
        """
        self.check_open()
        index = self.given[number]
        pointed = None
        if index is not None and start:
            if start >= len(index):
                return
            if not index.compression:
                seek = (index.entry(start)[0], start)
            elif self._compressed.peek(self.place(self.paths[number])) is None:
                pointed = self._compressed.pointed(number, index, partial(self._stored, number))
        path = self.place(self.paths[number])
        file = self._files.local(number)
        if file is not None and self._known(number) is not None:
            self._check_size(number, file.size)
        # list(reader) asks for the length first, which spools a compressed file. Do not inflate it again.
        policy = policy or self.policy
        if pointed is not None:
            runs = stream_through_points(pointed, self.options, policy, start, step)
        else:
            source: Any = self._compressed.peek(path) or self._source(number)
            runs = stream_records(source, self.options, policy, path=path, start=start, step=step, seek=seek)
        count = 0
        for run in runs:
            self.check_open()
            if stop is not None:
                left = max(0, -(-(stop - run.first) // step))
                if left <= len(run.offsets):
                    if left:
                        yield run.head(left)
                    return
            count += len(run.offsets)
            yield run
        if (start, step) == (0, 1) and not policy.skips:
            self._check_count(number, count)

    def rows(self) -> Iterator[RowBatch]:
        """All payloads in stored order, as they arrive; good ones come before damage raises."""
        for number in range(len(self.paths)):
            for run in self.stream(number):
                yield RowBatch.of_run(run, self.paths, number)

    def sizes(self, positions: Int64Array) -> Int64Array:
        """Payload lengths, int64."""
        if len(self.paths) == 1:
            return self.index(0).lengths[positions].view(np.int64)
        sizes = np.empty(len(positions), np.int64)
        numbers, records = self.places(positions)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            sizes[here] = self.index(number).lengths[records[here]]
        return sizes

    def fetch_one(self, position: int) -> tuple[memoryview, int, int]:
        """Payload (a read-only view that stays valid), file number, record number. Damage raises, always."""
        self.check_open()
        number, record = self.locate(position)
        return self.fetch_from(number, record), number, record

    def fetch_from(self, number: int, record: int) -> memoryview:
        """The payload of one record of a file; see `fetch_one`."""
        index = self._checked(number)
        return fetch_record(self.open(number), index, record, self.options.level)

    def offset_of(self, path: str, record: int) -> int | None:
        """The offset of a record's frame, for an error message; None if finding it would take too long."""
        number = self.paths.index(path) if path in self.paths else -1
        index = self._known(number) if number >= 0 else None
        if index is not None:
            return int(index.offsets[record]) if record < len(index) else None
        if number < 0 or is_url(self.place(path)):
            return None
        compressed = bool(self.compression(number))
        if compressed and self.policy.skips:
            return None
        seek = (0, 0) if compressed else self._passed.get(number, (0, 0))
        # With a step, the payloads before it are not read.
        seek = seek if seek[1] <= record else (0, 0)
        runs = self.stream(number, record, 2, seek, DamagePolicy("skip"))
        run = next(runs, None)
        if run is None:
            return None
        self._passed[number] = run.base + int(run.offsets[0]), record
        return self._passed[number][0]

    def fetch(self, positions: Int64Array) -> Fetched:
        """Payloads at any positions, in that order. Damage raises, or is left out if damage is skipped."""
        self.check_open()
        if not len(positions):
            return Fetched(BytesColumn.from_list([]), positions)
        if len(self.paths) == 1:
            buffers, offsets, lengths, ids, bad = self._start(0, positions)()
            payloads = BytesColumn._trusted(buffers, offsets, lengths, ids)
        else:
            payloads, bad = self._fetch_files(positions)
        if not bad:
            return Fetched(payloads, positions)
        keep = np.ones(len(positions), np.bool_)
        keep[bad] = False
        return Fetched(payloads[keep], positions[keep])

    def fetch_in_order(self, positions: Int64Array) -> Iterator[Fetched]:
        """`fetch` in one or more parts: if it raises, the payloads before the damage come first."""
        try:
            whole = self.fetch(positions)
        except RemoteError:
            raise
        except TFRecordError:
            if len(positions) == 1:
                raise
            half = len(positions) // 2
            yield from self.fetch_in_order(positions[:half])
            yield from self.fetch_in_order(positions[half:])
            return
        yield whole

    def _fetch_files(self, positions: Int64Array) -> tuple[BytesColumn, list[int]]:
        """Payloads at positions in several files, and the damaged rows: one step per file."""
        numbers, records = self.places(positions)
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        offsets, lengths = np.empty(len(positions), np.int64), np.empty(len(positions), np.int64)
        ids = np.empty(len(positions), np.int32)
        buffers: list[memoryview] = []
        bad: list[int] = []
        groups = np.split(order, cuts) if len(order) else []
        files = [int(numbers[rows[0]]) for rows in groups]
        # Files behind URLs are read all at once; local files are opened one after another.
        started = {
            number: self._start(number, records[rows])
            for number, rows in zip(files, groups, strict=True)
            if is_url(self.paths[number])
        }
        for number, rows in zip(files, groups, strict=True):
            found = (started.get(number) or self._start(number, records[rows]))()
            offsets[rows], lengths[rows], ids[rows] = found.starts, found.lengths, len(buffers)
            if found.ids is not None:
                ids[rows] += found.ids
            buffers.extend(found.buffers)
            bad.extend(rows[found.bad].tolist())
        return BytesColumn._trusted(tuple(buffers), offsets, lengths, ids), bad

    def _start(self, number: int, records: Int64Array) -> Callable[[], FetchedRows]:
        index = self._checked(number)
        return start_fetch(self.open(number), index, records, self.options.level, self.policy)

    def _checked(self, number: int) -> RecordIndex:
        """The index of one file; a small one is checked once as a whole and needs no checks later."""
        index = self.index(number)
        if number not in self._looked_through:
            self._looked_through.add(number)
            if len(index) <= _SMALL_INDEX:
                try:
                    index.check_all()
                except IndexFileError:
                    return index  # its good entries stay readable
                index = self._indexes[number] = index.replace(checked=True)
        return index

    def open(self, number: int) -> DataFile:
        """The stored, or decompressed, bytes of one file, open as long as the caller holds the result.

        Raises:
            StaleIndexError: the file's size has changed since its positions were found.
        """
        compression = self.compression(number)
        if compression:
            path = self.place(self.paths[number])
            source = partial(self._source, number)
            found = self._compressed.open(
                number, path, self.index(number), partial(self._stored, number), source
            )
            if isinstance(found, SpooledFile) and found.error is not None and not self.policy.skips:
                raise found.error
            return found
        return self._stored(number)

    def _stored(self, number: int) -> DataFile:
        """The bytes of one file as they are stored."""
        file = self._files.get(number)
        self._check_size(number, file.size)
        index = self.index(number)
        if index.index_path is None and None is not index.etag != file.etag:
            raise StaleIndexError(self.paths[number], None, "the object changed after it was indexed")
        return file

    def _check_size(self, number: int, size: int) -> None:
        """Known positions belong to the file as it was; in a changed file they would mean nothing."""
        index = self.index(number)
        if size != index.file_size:
            reason = f"the data had {index.file_size} bytes when its records were found, now it has {size}"
            raise StaleIndexError(self.paths[number], index.index_path, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        named: Sequence[str | None]
        counts: Sequence[int] | None = None
        if isinstance(self.given, LaterIndexes):
            named, counts = self.given.names, self.given.counts
        else:
            named = [None if index is None else index.index_path for index in self.given]
            if len(named) > MANY_FILES and None not in named and not any(map(is_url, self.paths)):
                counts = [len(index) for index in self.given if index is not None]
        # Making it again would read the whole object.
        built = {
            number: index
            for number, index in enumerate(self._indexes)
            if is_url(self.paths[number]) and index and index.index_path is None and not index.compression
        }
        place = self._files.folder
        return _reopen, (self.paths, named, self.options, self.policy, place, self._expected, built, counts)


def _reopen(
    paths: Sequence[str],
    named: Sequence[str | None],
    options: ReadOptions,
    policy: DamagePolicy,
    folder: str | None,
    expected: Sequence[int] | None,
    built: Mapping[int, RecordIndex],
    counts: Sequence[int] | None,
) -> RecordStore:
    """The store in another process, which may have another working directory.

    ``counts``: how many records each file has, if there are many, with an index each. Then an index is loaded
    when it is needed, and the number of all records is known before.
    """
    store = RecordStore(paths, [None] * len(paths), options, policy)
    store._files.folder = folder
    if counts is None:
        store.use_indexes([name and store.place(name) for name in named])
    else:
        store.given = LaterIndexes(store.paths, list(map(str, named)), counts, store._files)
        store._set_starts(counts)
    for number, index in built.items():
        store._indexes[number] = index
    if expected is not None:
        store.expect(expected)
    return store
