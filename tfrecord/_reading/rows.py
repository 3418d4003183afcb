"""Payloads in order, each with its file and its record number there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from indexer.framing import slices
from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.runs import GROUP, RecordRun

__all__ = ["RowBatch", "join_sources", "merge_rows"]


class RowBatch:
    """``payloads`` of n records; ``numbers`` (of the files in ``paths``) and ``records`` say where each comes
    from."""

    __slots__ = ("numbers", "paths", "payloads", "records", "runs")

    def __init__(
        self,
        payloads: BytesColumn,
        paths: Sequence[str],
        numbers: Int64Array,
        records: Int64Array,
        runs: tuple[RecordRun, ...] = (),
    ) -> None:
        self.payloads = payloads
        self.paths = paths
        self.numbers = numbers
        self.records = records
        self.runs = runs  # the runs they come from, if the data is read forward

    @classmethod
    def of_run(cls, run: RecordRun, paths: Sequence[str], number: int) -> RowBatch:
        count = len(run.offsets)
        starts = run.starts().view(np.int64)
        payloads = BytesColumn._trusted((run.buffer,), starts, run.lengths.view(np.int64))
        records = np.arange(run.first, run.first + count * run.step, run.step, dtype=np.int64)
        return cls(payloads, paths, np.broadcast_to(np.int64(number), (count,)), records, (run,))

    @classmethod
    def of_payloads(cls, payloads: Sequence[tuple[str, int, Any]]) -> RowBatch:
        """From (path, record, payload) of each."""
        paths = list(dict.fromkeys(path for path, _, _ in payloads))
        numbers = np.array([paths.index(path) for path, _, _ in payloads], np.int64)
        records = np.array([record for _, record, _ in payloads], np.int64)
        return cls(BytesColumn.from_list(payload for _, _, payload in payloads), paths, numbers, records)

    def __len__(self) -> int:
        return len(self.records)

    def locate(self, row: int) -> tuple[str, int]:
        """Path and record number of a row."""
        return self.paths[int(self.numbers[row])], int(self.records[row])

    def check(self, row: int = 0) -> None:
        """Raise if a file has shrunk since it was checked; call this before reading payloads.

        ``row``: the first that will be read, which belongs to the first run.
        """
        for place, run in enumerate(self.runs):
            run.check(0 if place else (int(self.records[row]) - run.first) // run.step)

    def groups(self) -> Iterator[list[memoryview]]:
        """The payloads as read-only views that stay valid, several at a time."""
        column = self.payloads
        in_one_buffer = getattr(column, "buffer_ids", True) is None  # windows of steps have no buffers
        for at in range(0, len(self), GROUP):
            end = min(at + GROUP, len(self))
            if in_one_buffer:
                offsets, lengths = (part[at:end].view(np.uint64) for part in (column.offsets, column.lengths))
                yield slices(column.buffers[0], offsets, lengths)
            else:
                yield [column.view(row) for row in range(at, end)]

    def row_of(self, path: str | None, record: int | None) -> int:
        """The row that comes from a place, 0 if none does."""
        for row in np.flatnonzero(self.records == (-1 if record is None else record)).tolist():
            if self.locate(row)[0] == path:
                return int(row)
        return 0

    def part(self, start: int, stop: int) -> RowBatch:
        return self.take(slice(start, stop))

    def take(self, rows: Any) -> RowBatch:
        """Some of the rows: a slice, positions or a mask."""
        return RowBatch(self.payloads[rows], self.paths, self.numbers[rows], self.records[rows], self.runs)


def merge_rows(source: Iterable[RowBatch], size: int) -> Iterator[RowBatch]:
    """The same rows in portions of ``size``. The remainder comes last, or before an error of ``source``."""
    held: list[RowBatch] = []
    count = 0
    failure: Exception | None = None
    rows_of = iter(source)
    while True:
        try:
            rows = next(rows_of, None)
        except Exception as error:
            failure = error
            break
        if rows is None:
            break
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + size - count)
            held.append(rows.part(start, stop))
            count += stop - start
            start = stop
            if count == size:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)
    if failure is not None:
        raise failure


def join_sources(parts: Sequence[RowBatch]) -> RowBatch:
    """The rows of several stores, one part after another."""
    firsts = np.cumsum([0, *(len(part.paths) for part in parts)])
    return RowBatch(
        type(parts[0].payloads).concat([part.payloads for part in parts]),
        [path for part in parts for path in part.paths],
        np.concatenate([part.numbers + first for part, first in zip(parts, firsts, strict=False)]),
        np.concatenate([part.records for part in parts]),
    )


def _joined(parts: list[RowBatch]) -> RowBatch:
    if len(parts) == 1:
        return parts[0]
    return RowBatch(
        type(parts[0].payloads).concat([part.payloads for part in parts]),
        parts[0].paths,
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.records for part in parts]),
        tuple(run for part in parts for run in part.runs),
    )
