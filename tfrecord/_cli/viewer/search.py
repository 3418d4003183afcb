"""Finding records: by index columns at once, and by reading in the background."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from indexer.errors import TFRecordError
from indexer.options import near_matches
from tfrecord._cli.choosing import Condition, parse_condition, rows_that_fit
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.viewer.data import NotFound, Positions, ViewData, byte_values
from tfrecord._cli.viewer.jobs import Job
from tfrecord._columns.batch import BytesColumn
from tfrecord._columns.decoding import decode_batch
from tfrecord.features import compile_features

_KEPT = 8
_PAGES = 64
_PIECE = 16 << 20
# A search that takes less than this is complete in the first answer.
_PATIENCE = 0.03


class Found:
    """The records that a search found so far; ``job`` is None if it was answered at once."""

    def __init__(self, positions: Positions | range, job: Job | None = None) -> None:
        self._parts: list[Any] = [positions]
        self._ends = [len(positions)]
        self.job = job
        self.unseen: set[str] = set()  # features that no record had so far

    def __len__(self) -> int:
        return self._ends[-1]

    def add(self, positions: Positions) -> None:
        if len(positions):
            self._parts.append(positions)
            self._ends.append(self._ends[-1] + len(positions))

    def all(self) -> Positions | range:
        """Every position so far, in the order of the records."""
        if len(self._parts) == 1:
            return self._parts[0]  # type: ignore[no-any-return]
        return np.concatenate(self._parts[: len(self._ends)])

    def some(self, start: int, stop: int) -> list[int]:
        """Positions by their place among those found."""
        found: list[int] = []
        stop = min(stop, len(self))
        while start < stop:
            part = bisect_right(self._ends, start)
            first = self._ends[part - 1] if part else 0
            piece = self._parts[part][start - first : stop - first]
            found += list(piece) if isinstance(piece, range) else piece.tolist()
            start += len(piece)
        return found


class Searches:
    """Answers searches, and keeps the latest answers. One search reads at a time: a new one stops it."""

    def __init__(self, data: ViewData) -> None:
        self.data = data
        self._found: OrderedDict[str, Found] = OrderedDict()
        self._pages: OrderedDict[tuple[str, str, int, int, int], list[int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, text: str, stop: bool = False) -> Found:
        """What a search finds: ``label=3``, conditions joined by ``and``, or a text that a record contains.

        ``stop`` stops the reading; otherwise it begins, or continues.
        """
        text = text.strip()
        if not unquoted(text):
            return Found(range(self.data.count))
        with self._lock:
            found = self._found.get(text)
            if found is None:
                found = self._found[text] = self._begin(text)
                while len(self._found) > _KEPT:
                    self._end(self._found.popitem(last=False)[1])
            self._found.move_to_end(text)
            if found.job is not None and stop:
                found.job.stop()
            elif found.job is not None and not found.job.has_ended:
                for other in self._found.values():
                    if other is not found:
                        self._end(other)
                found.job.start()
        if found.job is not None and not stop:
            found.job.wait(_PATIENCE)
        return found

    @staticmethod
    def _end(found: Found) -> None:
        if found.job is not None:
            found.job.stop()

    def _begin(self, text: str) -> Found:
        conditions = conditions_of(text)
        candidates: Positions | range = range(self.data.count)
        indexed = [one for one in conditions if one.column in self.data.columns]
        if indexed:
            keep = np.ones(self.data.count, np.bool_)
            for condition in indexed:
                keep &= condition.holds(self.data.column(condition.column))
            candidates = np.flatnonzero(keep).astype(np.int64, copy=False)
        rest = [one for one in conditions if one not in indexed]
        if conditions and not rest:
            return Found(candidates)
        if rest and self.data.record_type == "bytes":
            raise NotFound("the records have no features; to find text, put it in quotes")
        found = Found(np.zeros(0, np.int64))
        if rest:
            found.unseen = {one.column for one in rest}
            steps = self._by_features(found, candidates, rest)
        else:
            steps = self._by_text(found, candidates, unquoted(text).encode("utf-8", "surrogateescape"))
        found.job = Job(steps, len(candidates))
        return found

    def _by_text(self, found: Found, candidates: Positions | range, needle: bytes) -> Iterator[int]:
        for piece in self.data.chunks(candidates):
            payloads, places = self.data.payloads(piece)
            found.add(places[rows_with(payloads, needle)])
            yield len(piece)

    def _by_features(
        self, found: Found, candidates: Positions | range, conditions: list[Condition]
    ) -> Iterator[int]:
        plan = compile_features({one.column: None for one in conditions})
        for piece in self.data.chunks(candidates):
            payloads, places = self.data.payloads(piece)
            found.add(places[self._fits(found, payloads, plan, conditions)])
            yield len(piece)

    def _fits(
        self, found: Found, payloads: BytesColumn, plan: Any, conditions: list[Condition]
    ) -> npt.NDArray[np.bool_]:
        lists = compile_features({}) if self.data.record_type == "sequence_example" else None
        try:
            decoded: Any = decode_batch(payloads, plan, sequence_plan=lists)
        except TFRecordError:  # a record is not a message, or kinds differ
            return np.array(
                [self._one_fits(found, payloads.view(i), conditions) for i in range(len(payloads))]
            )
        batch = getattr(decoded, "context", decoded)
        keep = np.ones(len(payloads), np.bool_)
        for condition in conditions:
            if condition.column not in batch:
                return np.zeros(len(payloads), np.bool_)
            if batch.present[condition.column].any():
                found.unseen.discard(condition.column)
            keep &= rows_that_fit(batch[condition.column], condition)
        return keep

    def _one_fits(self, found: Found, payload: Any, conditions: list[Condition]) -> bool:
        try:
            context = exact_record(payload, self.data.record_type)[0]
        except TFRecordError:
            return False
        found.unseen -= context.keys()
        return all(_holds(context.get(one.column), one) for one in conditions)

    # ---- order ---------------------------------------------------------------------------------------------

    def page(self, found: Found, text: str, sort: str, start: int, stop: int) -> list[int]:
        """Positions by their place: in the order of the records, or by an index column (``-label``: from the
        greatest). Records that lack the value come last."""
        if not sort:
            return found.some(start, stop)
        name = sort.removeprefix("-")
        if name not in self.data.columns:
            raise NotFound(f"the index has no column {name!r}{near_matches(name, self.data.columns)}")
        key = text.strip(), sort, len(found), start, stop
        with self._lock:
            if key in self._pages:
                return self._pages[key]
        positions, column = found.all(), self.data.column(name)
        is_all = isinstance(positions, range)
        places = ordered(column if is_all else column[positions], sort[0] == "-", start, stop)
        page: list[int] = (places if is_all else np.asarray(positions)[places]).tolist()
        with self._lock:
            self._pages[key] = page
            while len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        return page


def ordered(values: npt.NDArray[Any], backwards: bool, start: int, stop: int) -> Positions:
    """Where the values are that have the places from ``start`` to ``stop`` in ascending or descending order,
    without sorting all of them. Equal ones keep their order; masked ones and NaNs come last."""
    missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    plain = np.ma.getdata(values)
    if plain.dtype.kind == "f":
        missing = np.isnan(plain) if missing is None else missing | np.isnan(plain)
    there: Positions | None = None
    lost = np.zeros(0, np.int64)
    if missing is not None and missing.any():
        there, lost = np.flatnonzero(~missing), np.flatnonzero(missing)
    known = plain if there is None else plain[there]
    count = len(known)
    start, stop = max(0, min(start, len(plain))), max(0, min(stop, len(plain)))
    rest = lost[max(0, start - count) : max(0, stop - count)]
    stop = min(stop, count)
    if start >= stop:
        return rest
    ranks = (count - stop, count - 1 - start) if backwards else (start, stop - 1)
    low, high = np.partition(known, ranks)[list(ranks)]
    inside = np.flatnonzero((known > low) & (known < high))
    between = known[inside]
    if backwards:
        inside = inside[len(between) - 1 - np.argsort(between[::-1], kind="stable")[::-1]]
        before, first, last = int((known > high).sum()), high, low
    else:
        inside = inside[np.argsort(between, kind="stable")]
        before, first, last = int((known < low).sum()), low, high
    ends = [np.flatnonzero(known == first)]
    ends += [inside, np.flatnonzero(known == last)] if low < high else []
    page = np.concatenate(ends)[start - before : stop - before]
    return np.concatenate([page if there is None else there[page], rest])


def rows_with(payloads: BytesColumn, needle: bytes) -> list[int]:
    """Which payloads contain these bytes."""
    starts, ends = payloads.offsets, payloads.offsets + payloads.lengths
    is_run = payloads.buffer_ids is None and len(starts) and bool((starts[1:] >= ends[:-1]).all())
    if not is_run or ends[-1] - starts[0] > min(2 * payloads.lengths.sum() + 64 * len(starts), 2 * _PIECE):
        return [row for row in range(len(starts)) if _contains(payloads.view(row), needle)]
    first = int(starts[0])
    whole = bytes(payloads.buffers[0][first : int(ends[-1])])
    rows = []
    at = whole.find(needle)
    while at >= 0:
        row = int(np.searchsorted(starts, first + at, "right")) - 1
        is_inside = first + at + len(needle) <= ends[row]
        if is_inside:
            rows.append(row)
            if row + 1 == len(starts):
                break
        at = whole.find(needle, int(starts[row + 1]) - first if is_inside else at + 1)
    return rows


def _contains(data: memoryview, needle: bytes) -> bool:
    """Whether the bytes are in the data, of which a piece at a time is copied."""
    step = max(1, len(needle) - 1)
    return any(needle in bytes(data[at : at + _PIECE + step]) for at in range(0, max(1, len(data)), _PIECE))


def _holds(value: Any, condition: Condition) -> bool:
    if value is None:
        return False
    values = byte_values(value)
    column = value if values is None else np.array([bytes(one) for one in values], object)
    try:
        return bool(len(column)) and bool(condition.holds(column).any())
    except click.UsageError:  # a text, where this record has numbers
        return False


def unquoted(text: str) -> str:
    """The text without quotes around it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def conditions_of(text: str) -> list[Condition]:
    """The conditions of a search; none if it is a text to look for."""
    if text[0] == '"':
        return []
    try:
        return [parse_condition(part) for part in text.split(" and ")]
    except click.BadParameter:
        return []
