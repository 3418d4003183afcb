"""Column statistics, gathered batch by batch and merged, in constant memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from indexer.errors import DecodeError, FeatureKindError
from indexer.framing import FRAME_OVERHEAD
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.describe import kind_of
from tfrecord._cli.histogram import Histogram
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.decoding import decode_batch
from tfrecord._reading.payload_batches import Batch
from tfrecord.features import compile_features

# How many different values are counted at once; the rarest are dropped.
_TRACKED = 4096
# Longer byte strings, and lists with more values per record, are content and not counted as values.
_LONGEST = 64
_MOST_VALUES = 64
# A column whose values almost all differ is not counted further.
_GIVE_UP = 20_000
_MANY = 1000
_MOST_NAMES = 10_000
_ALL = compile_features(None)


class Top:
    """The most frequent values; with many different values, counts may be too low by up to `error`."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()
        self.error = self.seen = 0
        self.all_differ = False

    def add(self, counts: Any, total: int) -> None:
        """Add counts of values, out of `total` values."""
        if self.all_differ:
            return
        self.seen += total
        self.counts.update(counts)
        if len(self.counts) > _TRACKED:
            if self.seen <= _GIVE_UP and len(self.counts) > 0.9 * self.seen:
                self.all_differ, self.counts = True, Counter()
                return
            kept = self.counts.most_common(_TRACKED // 2)
            self.error = max(self.error, kept[-1][1])
            self.counts = Counter(dict(kept))

    def merge(self, other: Top) -> None:
        if other.all_differ:
            self.all_differ, self.counts = True, Counter()
            return
        self.error += other.error
        self.add(other.counts, other.seen)


@dataclass
class Counts:
    """How many values, or steps, records have. `buckets` counts records by that number, in powers of two
    (`0`, `1`, `2-3`, ...)."""

    records: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, counts: Any) -> None:
        """Add the numbers of more records."""
        if not len(counts):
            return
        places = np.where(counts > 0, np.floor(np.log2(np.maximum(counts, 1))) + 1, 0).astype(np.int64)
        found = np.bincount(places)
        buckets = Counter({int(i): int(found[i]) for i in np.flatnonzero(found)})
        self.merge(Counts(len(counts), int(counts.sum()), int(counts.min()), int(counts.max()), buckets))

    def merge(self, other: Counts) -> None:
        if not other.records:
            return
        self.least = min(self.least, other.least) if self.records else other.least
        self.most = max(self.most, other.most)
        self.records += other.records
        self.total += other.total
        self.buckets.update(other.buckets)

    @property
    def mean(self) -> float | None:
        return self.total / self.records if self.records else None


@dataclass
class ColumnStats:
    """One feature of one kind: how many values per record (and steps, for a feature list), over the records
    that have it. For byte strings, `least`, `greatest`, `total` and `histogram` refer to sizes."""

    kind: str
    present: int = 0
    values: int = 0
    counts: Counts = field(default_factory=Counts)
    steps: Counts = field(default_factory=Counts)
    least: Any = None
    greatest: Any = None
    total: float = 0.0
    not_finite: int = 0
    top: Top = field(default_factory=Top)
    histogram: Histogram = field(default_factory=Histogram)

    def add(self, values: Any, counts: Any) -> None:
        """Add the concatenated values of some records, and how many each has."""
        self.present += len(counts)
        self.counts.add(counts)
        size = len(values.offsets) if isinstance(values, BytesColumn) else len(values)
        self.values += size
        if not size:
            return
        if isinstance(values, BytesColumn):
            self._add_numbers(values.lengths)
            if int(values.lengths.max()) <= _LONGEST and not self.top.all_differ:
                self.top.add(Counter(values.ravel_list()), size)
            else:
                self.top.all_differ = True
            return
        self._add_numbers(values)
        if size > _MOST_VALUES * max(len(counts), 1):
            self.top.all_differ = True
        if self.top.all_differ:
            return
        unique, numbers = np.unique(values, return_counts=True)
        if size >= _MANY and len(unique) > 0.9 * size:
            self.top.all_differ = True
        else:
            self.top.add(dict(zip(unique.tolist(), numbers.tolist(), strict=True)), size)

    def _add_numbers(self, values: Any) -> None:
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            if not finite.all():
                self.not_finite += int((~finite).sum())
                values = values[finite]
                if not len(values):
                    return
        low, high = values.min().item(), values.max().item()
        self.least = low if self.least is None else min(self.least, low)
        self.greatest = high if self.greatest is None else max(self.greatest, high)
        self.total += float(values.sum(dtype=np.float64))
        self.histogram.add(values)

    def merge(self, other: ColumnStats) -> None:
        self.present += other.present
        self.values += other.values
        self.counts.merge(other.counts)
        self.steps.merge(other.steps)
        self.total += other.total
        self.not_finite += other.not_finite
        self.top.merge(other.top)
        self.histogram.merge(other.histogram)
        for name, choose in (("least", min), ("greatest", max)):
            mine, its = getattr(self, name), getattr(other, name)
            if its is not None:
                setattr(self, name, its if mine is None else choose(mine, its))

    @property
    def mean(self) -> float | None:
        counted = self.values - self.not_finite
        return self.total / counted if counted else None


Key = tuple[str, str, str]  # where ("" or "feature_lists"), name, kind


class BatchStats:
    """The statistics of one batch: rows, bytes, the names of all features, and per feature and kind its
    `ColumnStats`."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self.names: set[str] = set()
        self.columns: dict[Key, ColumnStats] = {}
        self.payloads = ColumnStats("bytes")

    def column(self, where: str, name: str, kind: str) -> ColumnStats:
        return self.columns.setdefault((where, name, kind), ColumnStats(kind))

    def merge(self, other: BatchStats) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        if len(self.names) < _MOST_NAMES:
            self.names |= other.names
        self.payloads.merge(other.payloads)
        for (where, name, kind), stats in other.columns.items():
            self.column(where, name, kind).merge(stats)


def stats_of(batch: Batch, names: list[str] | None, so_far: BatchStats | None = None) -> BatchStats:
    """The statistics of a batch; the other arguments are those of `payload_stats`.

    Raises DecodeError, with file and record, if a payload is not a valid message.
    """
    try:
        result = payload_stats(batch.payloads, batch.record_type, names, so_far)
    except DecodeError as error:
        raise error.at(batch.path, batch.first + (error.record or 0)) from None
    result.bytes = batch.num_bytes
    return result


def payload_stats(
    payloads: BytesColumn, kind: str, names: list[str] | None = None, so_far: BatchStats | None = None
) -> BatchStats:
    """The statistics of payloads of a record type; `names` limits them to some features. `so_far` only shows
    which columns need not be counted further.

    Raises DecodeError, with the row as its record, if a payload is not a valid message.
    """
    result = BatchStats()
    result.rows, result.bytes = len(payloads), int(payloads.lengths.sum()) + FRAME_OVERHEAD * len(payloads)
    if len(payloads):
        result.payloads._add_numbers(payloads.lengths)
    result.payloads.values = result.rows
    if kind == "bytes":
        return result
    sequence = _ALL if kind == "sequence_example" else None
    try:
        decoded = decode_batch(payloads, _ALL, sequence_plan=sequence)
    except FeatureKindError:
        _one_by_one(payloads, kind, names, result)
        return result
    if isinstance(decoded, SequenceBatch):
        _add_columns(result, "", decoded.context, names, so_far)
        _add_columns(result, "feature_lists", decoded.feature_lists, names, so_far)
    else:
        _add_columns(result, "", decoded, names, so_far)
    return result


def _add_columns(
    result: BatchStats, where: str, batch: ColumnBatch, names: list[str] | None, so_far: BatchStats | None
) -> None:
    result.names.update(batch)
    for name, column in batch.items():
        if names is not None and name not in names:
            continue
        values = column
        while isinstance(values, Ragged):
            values = values.values
        kind = (
            "bytes"
            if isinstance(values, BytesColumn)
            else {"i": "int64", "f": "float"}.get(values.dtype.kind)
        )
        present = batch.present[name]
        stats = result.column(where, name, kind or "no kind")
        counts = steps = column.lengths()
        if where:
            counts = np.diff(column.values.row_splits[column.row_splits])
            stats.steps.add(steps[present])
        if kind is None:
            stats.present += int(present.sum())
            stats.counts.add(counts[present])
        else:
            known = None if so_far is None else so_far.columns.get((where, name, kind))
            stats.top.all_differ = known is not None and known.top.all_differ
            stats.add(values, counts[present])


def _one_by_one(payloads: BytesColumn, record_type: str, names: list[str] | None, result: BatchStats) -> None:
    """Handle a batch in which a feature's kind differs between records, or between the steps of a list."""
    found: dict[Key, list[tuple[list[Any], int]]] = {}  # per record: the values and the number of steps
    for row in range(len(payloads)):
        context, lists = exact_record(payloads.view(row), record_type)
        for where, features in (("", context), ("feature_lists", lists or {})):
            result.names.update(features)
            for name, value in features.items():
                if value is None or names is not None and name not in names:
                    continue
                steps = value if isinstance(value, list) else [value]
                kinds = {kind_of(step) for step in steps} - {"no kind"} or {"no kind"}
                for kind in kinds:
                    told = [step for step in steps if step is not None and kind_of(step) == kind]
                    found.setdefault((where, name, kind), []).append((told, len(steps)))
    for (where, name, kind), rows in found.items():
        stats = result.column(where, name, kind)
        if where:
            stats.steps.add(np.array([num_steps for _, num_steps in rows], np.int64))
        parts = [[_values(step) for step in told] for told, _ in rows]
        counts = np.array([sum(map(len, part)) for part in parts], np.int64)
        flat = [values for part in parts for values in part]
        if kind == "bytes":
            stats.add(BytesColumn.from_list([item for values in flat for item in values]), counts)
        else:
            stats.add(np.concatenate(flat) if flat else np.zeros(0, np.int64), counts)


def _values(value: Any) -> Any:
    """The values of one feature of a record's dict."""
    return [value] if isinstance(value, (bytes, memoryview)) else value
