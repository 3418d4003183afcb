"""Random access to compressed files through the points of their indexes, without temporary files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from indexer.datafile import Gathered
from indexer.errors import CompressionError, CorruptRecordError, IndexFileError, TFRecordError
from indexer.files import BytesFile, DataFile
from indexer.framing import FRAME_OVERHEAD, UInt64Array, check_frame, corrupt_error
from indexer.index import RecordIndex
from indexer.inputstream import InputStream, open_stream
from indexer.streams import most_record_bytes
from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.runs import ReadOptions, RecordRun, stream_records

__all__ = ["FoundRows", "PointedFile", "stream_through_points"]

_PIECE = 1 << 20
# So much of a remote file is asked for in one go; more is read as a stream.
_MOST_ASKED = 32 << 20
_NOWHERE = np.iinfo(np.uint64).max


class FoundRows(NamedTuple):
    """Frames in one buffer, and for those that could not be read the error; they have no place in it."""

    frames: Gathered
    errors: dict[int, CorruptRecordError | CompressionError]


class _Run(NamedTuple):
    """Neighbouring frames: from ``start`` to ``end`` of the decompressed stream."""

    start: int
    end: int


class _Part(NamedTuple):
    """What one pass from a point gave: pieces, how many bytes of each run, and why it ended early."""

    pieces: list[bytes]
    sizes: list[int]
    error: CompressionError | None


class PointedFile(DataFile):
    """The decompressed content of a compressed file. Each read begins at the point before it, or where this
    thread's last read ended.

    Records read through it must be checked completely, because a point that does not fit gives wrong bytes.
    ``inflated``: bytes that were decompressed so far.
    """

    compression = "compressed"  # the kind of source, for messages

    def __init__(
        self, data: DataFile, index: RecordIndex, max_record_bytes: int | None, num_threads: int
    ) -> None:
        super().__init__(data.path, index.stream_size)
        assert index.points is not None
        self.remote = data.remote
        self.index = index
        self.inflated = 0
        self._data = data
        self._points = index.points
        self._most = min(most_record_bytes() if max_record_bytes is None else max_record_bytes, 1 << 62)
        self._num_threads = num_threads
        self._last = threading.local()
        self._fits = False

    def check_size(self) -> None:
        self._data.check_size()

    def stream(self, offset: int) -> InputStream:
        """The content from the point at or before ``offset`` on."""
        return self._enter(self._points.before(offset))

    def head(self, length: int) -> bytes:
        try:
            return self._enter(0).read(length)
        except CompressionError:
            return b""

    def _enter(self, number: int, stored: memoryview | None = None) -> InputStream:
        """``stored``: the stored bytes from there on, if they were read already."""
        point = self._points[number]
        file = self._data.reader(point.bit // 8) if stored is None else BytesFile(self.path, stored).reader()
        return InputStream(file, self.path, self.index.compression, owned=False, point=point)

    def _read(self, offset: int, length: int) -> memoryview:
        starts = np.array([offset], np.uint64)
        return self.start_gather(starts, starts + np.uint64(length))().buffers[0]

    def start_gather(
        self, starts: UInt64Array, ends: UInt64Array, *, again: bool = False
    ) -> Callable[[], Gathered]:
        def finish() -> Gathered:
            found = self.find(starts, ends, again=again)
            for error in found.errors.values():
                raise error
            return found.frames

        return finish

    def find(self, starts: UInt64Array, ends: UInt64Array, *, again: bool = False) -> FoundRows:
        """The frames from ``starts`` to ``ends``, each inside the content; equal ones are read once.

        ``again``: do not use what a store gave earlier.
        """
        firsts, rows = np.unique(starts, return_inverse=True)
        lasts = np.empty_like(firsts)
        lasts[rows] = ends
        errors: dict[int, CorruptRecordError | CompressionError] = {}
        long = np.flatnonzero(lasts - firsts > np.uint64(self._most + FRAME_OVERHEAD))
        if len(long):
            for place in long.tolist():
                errors |= dict.fromkeys(
                    np.flatnonzero(rows == place).tolist(), self._too_long(firsts, lasts, place)
                )
            lasts[long] = firsts[long]
        runs, run_of = _runs(firsts, lasts)
        groups = self._groups(runs)
        parts = self._read_groups(groups, again)
        got = np.array([size for part in parts for size in part.sizes], np.int64)
        bases = np.cumsum(got) - got
        buffer = memoryview(b"".join(piece for part in parts for piece in part.pieces))
        begins = np.array([run.start for run in runs], np.int64)
        inside = firsts.astype(np.int64) - begins[run_of]
        whole = inside + (lasts - firsts).astype(np.int64) <= got[run_of]
        places = np.where(whole, (bases[run_of] + inside).astype(np.uint64), _NOWHERE)[rows]
        if not whole.all():
            reasons = [part.error for part in parts for _ in part.sizes]
            for row in np.flatnonzero(~whole[rows]).tolist():
                errors.setdefault(row, reasons[int(run_of[rows[row]])] or self._cut(int(starts[row])))
        places[list(errors)] = _NOWHERE
        return FoundRows(Gathered((buffer,), places), errors)

    def _too_long(self, firsts: UInt64Array, lasts: UInt64Array, place: int) -> CorruptRecordError:
        offset, size = int(firsts[place]), int(lasts[place] - firsts[place]) - FRAME_OVERHEAD
        detail = f"{size} bytes, max_record_bytes is {self._most}"
        return corrupt_error("record_too_long", path=self.path, record=None, offset=offset, detail=detail)

    def _cut(self, offset: int) -> CorruptRecordError:
        return corrupt_error("truncated_record", path=self.path, record=None, offset=offset)

    def _groups(self, runs: list[_Run]) -> list[tuple[int, list[_Run]]]:
        """Runs that one pass reads, with the point that it begins at."""
        outs = self._points.outs
        entered = np.searchsorted(outs, np.array([run.start for run in runs], np.uint64), side="right") - 1
        groups: list[tuple[int, list[_Run]]] = []
        end = -1
        for number, run in zip(entered.tolist(), runs, strict=True):
            if int(outs[number]) > end or run.start < end:  # a wrong index may have frames that overlap
                groups.append((number, []))
            groups[-1][1].append(run)
            end = run.end
        return groups

    def _read_groups(self, groups: list[tuple[int, list[_Run]]], again: bool) -> list[_Part]:
        if self.remote:
            return self._read_remote(groups, again)
        first = [self._read_group(*groups[0], keep=len(groups) == 1)]
        rest = groups[1:]
        if self._num_threads < 2 or len(rest) < 2:
            return first + [self._read_group(*group, keep=group is rest[-1]) for group in rest]
        with ThreadPoolExecutor(self._num_threads) as pool:
            return first + list(pool.map(lambda group: self._read_group(*group), rest))

    def _read_remote(self, groups: list[tuple[int, list[_Run]]], again: bool) -> list[_Part]:
        """Ask a store for what several passes need at once."""
        parts: list[_Part] = []
        at = 0
        while at < len(groups):
            ranges: list[tuple[int, int]] = []
            size = 0
            for number, runs in groups[at:]:
                start = self._points[number].bit // 8
                end = self._points.stored_end(self._points.before(max(runs[-1].end - 1, 0)) + 1)
                size += end - start
                if size > _MOST_ASKED:
                    break
                ranges.append((start, end))
            if not ranges:
                parts.append(self._read_group(*groups[at]))
                at += 1
                continue
            table = np.array(ranges, np.uint64)
            found = self._data.start_gather(table[:, 0], table[:, 1], again=again)()
            ids = [0] * len(ranges) if found.ids is None else found.ids.tolist()
            for (start, end), id_, begin, group in zip(
                ranges, ids, found.places.tolist(), groups[at : at + len(ranges)], strict=True
            ):
                stored = found.buffers[id_][begin : begin + end - start]
                parts.append(self._read_group(*group, stored=stored))
            at += len(ranges)
        return parts

    def _read_group(
        self, number: int, runs: list[_Run], *, stored: memoryview | None = None, keep: bool = False
    ) -> _Part:
        """One pass from a point, or from where this thread's last pass ended. ``keep``: the next may go on
        from here."""
        stream: InputStream | None = getattr(self._last, "stream", None)
        self._last.stream = None
        begin = int(self._points.outs[number])
        if stored is not None or stream is None or not begin <= stream.position <= runs[0].start:
            stream = self._enter(number, stored)
        before = stream.position
        part = _Part([], [], None)
        try:
            for run in runs:
                part.sizes.append(0)
                stream.skip(run.start - stream.position)
                left = run.end - run.start
                while left and (piece := stream.read_some(min(left, _PIECE))):
                    part.pieces.append(piece)
                    part.sizes[-1] += len(piece)
                    left -= len(piece)
        except CompressionError as error:
            part.sizes.extend([0] * (len(runs) - len(part.sizes)))
            return part._replace(error=error)
        finally:
            self.inflated += stream.position - before
        if keep:
            self._last.stream = stream
        return part

    def blame(self, record: int) -> None:
        """Raise `IndexFileError` if a record that cannot be read through points can be read from the start of
        the file: then the points are wrong, not the data. The first record to fail decides for all."""
        offset, length = self.index.entry(record)
        if self._fits or length > self._most:
            return
        try:
            with open_stream(self._data.reader(), self.index.compression) as stream:
                stream.skip(offset)
                frame = stream.read(length + FRAME_OVERHEAD)
            good = len(frame) == length + FRAME_OVERHEAD and check_frame(frame, 0, length) is None
        except (CompressionError, CorruptRecordError):
            good = False
        if good:
            reason = f"its points do not fit the data: record {record} is another one when read through them"
            raise IndexFileError(self.path, self.index.index_path, reason)
        self._fits = True


def _runs(firsts: UInt64Array, lasts: UInt64Array) -> tuple[list[_Run], Int64Array]:
    """Frames in ascending order, joined where they adjoin; and which run holds each."""
    begins = np.concatenate(([True], firsts[1:] != lasts[:-1]))
    heads = np.flatnonzero(begins)
    tails = np.append(heads[1:], len(firsts)) - 1
    pairs = zip(firsts[heads].tolist(), lasts[tails].tolist(), strict=True)
    return [_Run(start, end) for start, end in pairs], np.cumsum(begins) - 1


class _Blaming(DamagePolicy):
    """Handles damage as another policy does, once it is clear that the points are not to blame."""

    def __init__(self, policy: DamagePolicy, file: PointedFile) -> None:
        super().__init__(policy.on_error, policy.max_skips)
        self._policy, self._file = policy, file

    def handle(self, error: TFRecordError) -> None:
        _blame(self._file, error)
        self._policy.handle(error)


def _blame(file: PointedFile, error: TFRecordError) -> None:
    record = getattr(error, "record", None)
    if record is not None and record < len(file.index):
        file.blame(record)


def stream_through_points(
    file: PointedFile, options: ReadOptions, policy: DamagePolicy, start: int, step: int
) -> Iterator[RecordRun]:
    """`stream_records` of a compressed file, from the point before record ``start`` on. All are checked."""
    offset = file.index.entry(start)[0]
    options = replace(options, verify=True, compression_type=file.index.compression)
    try:
        yield from stream_records(
            file.stream(offset),
            options,
            _Blaming(policy, file),
            path=file.path,
            start=start,
            step=step,
            seek=(offset, start),
        )
    except (CompressionError, CorruptRecordError) as error:
        _blame(file, error)
        raise
