"""`make_splits`: parts of a data set, for engines that read it in many processes or on many machines."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from typing import Any

import numpy as np

from indexer.errors import StaleIndexError
from indexer.files import DataFile, is_url, open_data
from indexer.fingerprint import digest
from indexer.framing import FRAME_OVERHEAD
from indexer.index import RecordIndex
from indexer.options import check_count, check_options, suggests_options
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import Batch
from tfrecord._reading.rows import RowBatch, merge_rows
from tfrecord._reading.store import RecordStore
from tfrecord._reading.view import RecordView
from tfrecord.reader import TFRecordReader

__all__ = ["Split", "make_splits", "reader_of"]

TARGET_BYTES = 64 << 20


def make_splits(
    paths: Any,
    num_splits: int | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    index: Any = "auto",
    **reader_options: Any,
) -> list[Split]:
    """Divide a data set into small picklable parts of equal size, which together hold each record once.

    A split is a range of records. It may hold the end of one file and the beginning of the next. The sizes of
    splits in bytes differ by at most one record. A split contains paths and numbers but neither records nor
    indexes, so wherever it is read, the files and their indexes must be available under the same paths.

    Args:
        paths: what `TFRecordReader` takes, or a reader. For a view (`TFRecordReader.select`) the splits hold
            the view's records in the view's order.
        num_splits: how many; fewer if there are fewer records. None: as many as ``target_bytes`` requires.
        target_bytes: about how many bytes a split holds, if ``num_splits`` is None. This counts whole frames;
            in a compressed file, those of the decompressed stream.
        index, reader_options: as for `TFRecordReader`; not with a reader, which has its own. Without an
            index, the headers of each file are scanned here, once.

    Returns:
        The splits in the order of their records; an empty list for a data set without records.

    Raises:
        CorruptRecordError: a file without an index has a damaged header.

    `TFRecordReader` raises for all else that is wrong with files and options.
    """
    check_options(make_splits, reader_options, list(inspect.signature(TFRecordReader).parameters))
    reader = reader_of(paths, index, reader_options)
    view: RecordView = reader._view
    view.prepare()
    sizes: _Ranges = _StoredRanges(view) if view.selection is None else _SelectedRanges(view)
    wanted = -(-sizes.total // check_count(target_bytes, "target_bytes"))
    if num_splits is not None:
        wanted = check_count(num_splits, "num_splits")
    cuts = _cuts(sizes, len(view), wanted)
    places = sizes.bytes_before(cuts).tolist()
    template, store = copy.copy(reader), view.store
    template._view = replace(view, store=RecordStore((), (), store.options, store.policy), selection=None)
    template._schema = None
    return [
        Split(template, *_parts(view, start, stop), stop - start, end - begin)
        for (start, begin), (stop, end) in pairwise(zip(cuts.tolist(), places, strict=True))
    ]


def reader_of(paths: Any, index: Any, options: dict[str, Any]) -> Any:
    if not hasattr(paths, "_view"):
        return TFRecordReader(paths, index=index, **options)
    given = [*options, *(["index"] if index != "auto" else [])]
    if given:
        raise TypeError(f"a reader already has its options: give {', '.join(given)} when you make the reader")
    if not paths._view.store.has_files:
        raise TypeError(
            "the records of a server cannot be split: split its files, or give each process a view of the "
            "reader, which can be pickled: reader.select(range(start, stop))"
        )
    if type(paths._view) is not RecordView:
        raise TypeError(
            "windows of steps cannot be split: split the episodes, and take the steps of each split.reader()"
        )
    return paths


# ---- where to cut --------------------------------------------------------------------------------------


class _Ranges(ABC):
    """Maps positions to the bytes of the records before them, and back. `total`: bytes of all records."""

    total: int

    @abstractmethod
    def first_at(self, place: int) -> int:
        """The position of the first record that begins at or after a byte."""

    @abstractmethod
    def bytes_before(self, positions: Int64Array) -> Int64Array:
        """Bytes of all records before each of these positions."""


class _StoredRanges(_Ranges):
    """All records of a store, by the offsets that its indexes hold."""

    def __init__(self, view: RecordView) -> None:
        self._store = view.store
        counts = range(len(view.store.paths))
        sizes = [_stream_end(view.store.index(number)) for number in counts]
        self._begins = np.cumsum([0, *sizes], dtype=np.int64)
        self.total = int(self._begins[-1])

    def first_at(self, place: int) -> int:
        number = int(np.searchsorted(self._begins, place, side="right")) - 1
        inside = np.uint64(place - int(self._begins[number]))
        return int(self._store.starts[number] + np.searchsorted(self._store.index(number).offsets, inside))

    def bytes_before(self, positions: Int64Array) -> Int64Array:
        places = []
        for position in positions.tolist():
            number, record = self._store.locate(position)
            inside = 0
            if number < len(self._store.paths):
                index = self._store.index(number)
                inside = int(index.offsets[record]) if record < len(index) else _stream_end(index)
            places.append(int(self._begins[number]) + inside)
        return np.array(places, np.int64)


def _stream_end(index: RecordIndex) -> int:
    return index.frame_end(len(index) - 1) if len(index) else 0


class _SelectedRanges(_Ranges):
    """The records of a view, in its order."""

    def __init__(self, view: RecordView) -> None:
        sizes = view.sizes(np.arange(len(view), dtype=np.int64)) + FRAME_OVERHEAD
        self._begins = np.concatenate(([0], np.cumsum(sizes)))
        self.total = int(self._begins[-1])

    def first_at(self, place: int) -> int:
        return int(np.searchsorted(self._begins, place))

    def bytes_before(self, positions: Int64Array) -> Int64Array:
        return self._begins[positions]


def _cuts(sizes: _Ranges, count: int, wanted: int) -> Int64Array:
    """The position of each split's first record, followed by ``count``: int64, strictly ascending."""
    wanted = min(wanted, count)
    if not wanted:
        return np.zeros(1, np.int64)
    inner = [sizes.first_at(sizes.total * turn // wanted) for turn in range(1, wanted)]
    cuts = np.array([0, *inner, count], np.int64)
    # A record larger than a split would leave other splits empty.
    turns = np.arange(wanted + 1)
    cuts = np.maximum.accumulate(cuts - turns) + turns
    return np.minimum(cuts, count - turns[::-1])


def _parts(view: RecordView, start: int, stop: int) -> tuple[list[_FilePart], Int64Array | None]:
    """The files of a view's records ``start`` up to ``stop``, and the positions of these records in the
    files; None if these are whole ranges of the files."""
    store = view.store
    if view.selection is not None:
        positions = view.selection[start:stop]
        start, stop = int(positions[0]), int(positions[-1]) + 1
        if stop - start != len(positions) or (np.diff(positions) != 1).any():
            numbers, records = store.places(positions)
            used, place = np.unique(numbers, return_inverse=True)
            counts = [len(store.index(number)) for number in used.tolist()]
            firsts = np.concatenate(([0], np.cumsum(counts)[:-1]))
            files = [
                _FilePart.of(store, number, 0, size)
                for number, size in zip(used.tolist(), counts, strict=True)
            ]
            return files, firsts[place] + records
    files = []
    for number in range(store.locate(start)[0], store.locate(stop - 1)[0] + 1):
        first, last = store.starts[number : number + 2].tolist()
        if first < last:
            files.append(_FilePart.of(store, number, max(start - first, 0), min(stop, last) - first))
    return files, None


# ---- one split -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FilePart:
    """Records ``start`` up to ``stop`` of one file, and the data to check later that the file is the same.

    ``digest`` and ``fingerprint`` are those of the file's index. For a file without one, the digest covers
    the first and last bytes from ``begin`` to ``end``: those of the frames of these records, or of the whole
    file if it is compressed.
    """

    path: str
    index_path: str | None
    num_records: int
    start: int
    stop: int
    size: int
    mtime_ns: int | None
    digest: bytes | None
    fingerprint: int | None = None
    begin: int = 0
    end: int = 0

    @classmethod
    def of(cls, store: RecordStore, number: int, start: int, stop: int) -> _FilePart:
        index = store.index(number)
        path = _absolute(store.place(store.paths[number]))
        with open_data(path, mmap=False) as data:
            state = (len(index), start, stop, index.file_size, data.mtime_ns)
            if store.given[number] is not None and index.index_path is not None:
                index_path = _absolute(store.place(index.index_path))
                return cls(path, index_path, *state, index.digest, index.fingerprint)
            begin, end = int(index.offsets[start]), index.frame_end(stop - 1)
            if index.compression:
                begin, end = 0, index.file_size
            return cls(path, None, *state, _ends(data, begin, end), begin=begin, end=end)

    def check(self, index: RecordIndex | None) -> None:
        """Raise `StaleIndexError` if the file or its index is not the one that was split."""
        with open_data(self.path, mmap=False) as data:
            reason = self._misfit(data, index)
        if reason is not None:
            raise StaleIndexError(self.path, None, reason)

    def _misfit(self, data: DataFile, index: RecordIndex | None) -> str | None:
        if data.size != self.size:
            return f"the data had {self.size} bytes when the splits were made, now it has {data.size}"
        other = "its content has changed since the splits were made"
        if index is None:
            return None if _ends(data, self.begin, self.end) == self.digest else other
        known = self.digest is not None and index.digest is not None
        same = index.digest == self.digest if known else index.fingerprint == self.fingerprint
        if not same or len(index) != self.num_records:
            return f"the index {self.index_path} does not belong to the data that was split"
        if data.mtime_ns == self.mtime_ns or not index.digest or index.compression:
            return None  # for a compressed file the fingerprint, which opening compares, is enough
        return None if digest(data, index) == index.digest else other


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)


def _ends(data: DataFile, begin: int, end: int) -> bytes:
    size = min(12, end - begin)
    return bytes(data.view(begin, size)) + bytes(data.view(end - size, size))


class Split:
    """A part of a data set; see `make_splits`. It can be pickled, and opens nothing until it is read.

    Attributes: ``num_rows`` (records, including damaged ones that are skipped later) and ``num_bytes`` (of
    their frames). The first read raises `StaleIndexError` if a file or its index is not the one that was
    split, and `FileNotFoundError` if it is missing.
    """

    def __init__(
        self,
        template: Any,
        files: list[_FilePart],
        positions: Int64Array | None,
        num_rows: int,
        num_bytes: int,
    ) -> None:
        self._template = template
        self._files = files
        self._positions = positions
        self._reader: Any = None
        self.num_rows = num_rows
        self.num_bytes = num_bytes

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold the split's records; absolute paths, or URLs."""
        return tuple(part.path for part in self._files)

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        more = f" and {len(self._files) - 1} more" if len(self._files) > 1 else ""
        return f"<Split {self._files[0].path}{more}, {self.num_rows} records, {self.num_bytes} bytes>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None}

    def reader(self) -> Any:
        """A reader for the split's records: a view of the files in ``paths``, made once.

        It has the options, features and column types of the data set that was split. Its ``num_skipped``
        includes what `batches` skipped.
        """
        if self._reader is None:
            view: RecordView = self._template._view
            options = view.store.options
            policy = DamagePolicy(view.store.policy.on_error, view.store.policy.max_skips)
            names = [part.index_path for part in self._files]
            store = RecordStore(self.paths, [None] * len(names), options, policy)
            store.use_indexes(names)
            for part, index in zip(self._files, store.given, strict=True):
                part.check(index)
            decoder = copy.copy(view.decoder)
            decoder.policy = policy
            selection = self._positions
            if selection is None:
                first = self._files[0].start
                selection = np.arange(first, first + self.num_rows, dtype=np.int64)
            selection.setflags(write=False)
            reader = copy.copy(self._template)
            reader._view = RecordView(store, decoder, selection)
            self._reader = reader
        return self._reader

    @suggests_options
    def batches(self, batch_size: int, columns: Iterable[str] | None = None) -> Iterator[Any]:
        """The records as batches of ``batch_size`` rows (the last may be smaller), in one pass over the
        files; see `TFRecordReader.batches`."""
        size = check_count(batch_size, "batch_size")
        names = self._template._view.decoder.check_columns(columns)
        return (batch for _, batch in self._walk(size, names))

    def _walk(
        self,
        size: int,
        columns: tuple[str, ...] | None,
        by_file: bool = False,
        decode: Callable[[RowBatch], Iterable[Batch]] | None = None,
    ) -> Iterator[tuple[str, Batch]]:
        """Batches, each with the path of its first record's file; with ``by_file`` no batch spans two files.

        ``decode`` makes a batch from payloads, if the reader's decoder should not.
        """
        decoder = self.reader()._view.decoder
        groups = groupby(self._rows_of_files(), _file_of) if by_file else [(0, self._rows())]
        for number, pieces in groups:
            for rows in merge_rows(pieces, size):
                for batch in decode(rows) if decode else decoder.batches(rows, columns, False, 1):
                    yield self._files[number].path, batch

    def __iter__(self) -> Iterator[Any]:
        """The records one by one, as in iteration over a reader."""
        view: RecordView = self.reader()._view
        return chain.from_iterable(chain.from_iterable(map(view.decoder.records, self._rows())))

    def _rows(self) -> Iterator[RowBatch]:
        """The payloads in order."""
        view: RecordView = self.reader()._view
        if self._positions is not None:
            yield from view.rows()
            return
        for number, part in enumerate(self._files):
            seek = (part.begin, part.start) if part.begin else (0, 0)
            for run in view.store.stream(number, part.start, seek=seek, stop=part.stop):
                yield RowBatch.of_run(run, view.store.paths, number)

    def _rows_of_files(self) -> Iterator[RowBatch]:
        for rows in self._rows():
            cuts = [0, *(np.flatnonzero(np.diff(rows.numbers)) + 1).tolist(), len(rows)]
            for start, stop in pairwise(cuts):
                yield rows.part(start, stop)


def _file_of(rows: RowBatch) -> int:
    return int(rows.numbers[0])
