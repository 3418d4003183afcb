"""Turns payloads into what a reader returns: settles the record type, and adds the place to errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import numpy as np

from indexer.errors import DecodeError, FeatureKindError, ImageError, MissingFeatureError, TFRecordError
from indexer.options import warn_caller
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord._columns.decoding import bad_rows, decode_batch, decode_record, decode_records
from tfrecord._kernels.record_type import MESSAGES, SAMPLE, check_record_type, has_lists, is_valid
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.missing import Seen
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.runs import GROUP
from tfrecord.features import Column, FeaturePlan, no_feature

__all__ = [
    "LOCATED_ERRORS",
    "Batch",
    "RecordDecoder",
    "decoded_ahead",
    "is_damage",
    "warn_of_feature_lists",
]

Batch = ColumnBatch | SequenceBatch | BytesColumn
LocatedError = DecodeError | MissingFeatureError | FeatureKindError
Locate = Callable[[int], tuple[str, int]]

LOCATED_ERRORS = (DecodeError, MissingFeatureError, FeatureKindError)
# How many records are decoded ahead of a loop over records.
_AHEAD = 32
_AHEAD_BYTES = 1 << 16


def is_damage(payload: Any, error: TFRecordError) -> bool:
    """Whether the payload is at fault (not a valid message, or a damaged image), and not the request."""
    return isinstance(error, ImageError) or isinstance(error, DecodeError) and not is_valid(payload)


def warn_of_feature_lists(path: str, payloads: Iterable[Any]) -> None:
    """Warn if records with feature lists are read as plain Examples, which drops the lists."""
    if any(has_lists(payload) for payload in payloads):
        warn_caller(
            f"{path}: the records are SequenceExamples but are read as plain Examples, so their feature "
            "lists are left out. To read them too, use sequence_features (sequence_description, "
            "record_type='sequence_example')"
        )


def decoded_ahead(
    views: Iterable[memoryview],
    first: int,
    check: Callable[[int], object],
    decode: Callable[[memoryview], Any],
    decode_many: Callable[[tuple[memoryview, ...]], list[Any]],
    failed: Callable[[int, memoryview, LocatedError], object],
) -> Iterator[list[Any]]:
    """``decode`` of each payload, some ahead of the consumer: one ``check`` of the file covers several.

    ``decode_many`` decodes the first of several payloads, up to one that it leaves to ``decode``. ``check``
    gets the position of the next record (counted from ``first``). ``failed`` gets the position, the payload
    and the error, after the records before it were returned; it raises, or returns to skip the record.
    """
    row = first
    for few in _portions(views):
        check(row)
        done: list[Any] = []
        while few:
            found = decode_many(few)
            done += found
            row += len(found)
            few = few[len(found) :]
            if not few:
                break
            try:
                done.append(decode(few[0]))
            except LOCATED_ERRORS as error:
                yield done
                done = []
                failed(row, few[0], error)
            row += 1
            few = few[1:]
        yield done


def _portions(views: Iterable[memoryview]) -> Iterator[tuple[memoryview, ...]]:
    """Several payloads at a time, of which only the last may exceed a limit of bytes: decoded records of
    large payloads are not held."""
    payloads = iter(views)
    while some := list(islice(payloads, _AHEAD)):
        start = size = 0
        for end, payload in enumerate(some, 1):
            size += len(payload)
            if size > _AHEAD_BYTES or end == len(some):
                yield tuple(some[start:end])
                start, size = end, 0


class RecordDecoder:
    """Decodes records of one type by compiled features.

    ``record_type`` is None until it is settled; ``declared`` is what the user says about the records.
    ``dense`` holds the plans that batches use if every feature is wanted and a schema of all the data is
    known; ``keys`` then holds its names. ``offset_of`` returns the offset of a record of a file, or None if
    that would take a pass over the data. ``num_threads`` share a batch, unless a call gives another number.
    """

    def __init__(
        self,
        plan: FeaturePlan,
        sequence_plan: FeaturePlan | None,
        record_type: str,
        policy: DamagePolicy,
        *,
        allow_missing: bool = False,
    ) -> None:
        declared = check_record_type(record_type)
        wants_lists = sequence_plan is not None
        if wants_lists and declared not in ("auto", "sequence_example"):
            raise ValueError(f"sequence_features needs SequenceExamples, but record_type is {record_type!r}")
        if plan.columns is not None and declared == "bytes":
            raise ValueError("features needs Examples or SequenceExamples, but record_type is 'bytes'")
        if declared == "auto" and (wants_lists or plan.columns is not None):
            declared = MESSAGES
        self.plan = plan
        self.sequence_plan = FeaturePlan(None) if sequence_plan is None else sequence_plan
        self.wants_lists = wants_lists
        self.declared = declared
        self.record_type: str | None = None if declared in ("auto", MESSAGES) else declared
        self.policy = policy
        self.num_threads = 1
        self.allow_missing = allow_missing
        self.dense: tuple[FeaturePlan, FeaturePlan] | None = None
        self.keys: frozenset[str] | None = None
        self.seen = Seen(self.plan, self.sequence_plan)
        self.offset_of: Callable[[str, int], int | None] = _unknown_offset
        self._looked = declared != "example"

    def check_columns(self, columns: Iterable[str] | None) -> tuple[str, ...] | None:
        """``columns`` as a tuple of names.

        Raises:
            KeyError: a name is neither among the features nor in a schema of all the data.
        """
        if columns is None:
            return None
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if self.record_type == "bytes":
            raise ValueError("records of type bytes have no columns to choose from")
        plans = (self.plan, self.sequence_plan) if self.record_type != "example" else (self.plan,)
        known = {name for plan in plans for name in plan.names or ()}
        if any(plan.columns is None for plan in plans):
            if self.keys is None or self.allow_missing:
                return names
            known |= self.keys
        for name in names:
            if name not in known:
                raise no_feature(name, sorted(known))
        return names

    def look(self, path: str, payloads: Iterable[Any]) -> None:
        """Check once whether the records are what ``record_type="example"`` says."""
        if not self._looked:
            self._looked = True
            warn_of_feature_lists(path, islice(payloads, SAMPLE))

    def located(self, error: LocatedError, path: str, record: int) -> LocatedError:
        """The error with its place added: file, record and offset."""
        return error.at(path, record, self.offset_of(path, record))

    def one(self, payload: memoryview) -> Any:
        """One record: a dict, a pair of dicts, or bytes. Errors do not have a place yet."""
        if self.record_type == "bytes":
            return payload.tobytes()
        lists = self.sequence_plan if self.record_type == "sequence_example" else None
        record = decode_record(payload, self.plan, lists)
        if self.seen.is_open:
            self.seen.record(payload, lists is not None)
        return record

    def many(self, payloads: tuple[memoryview, ...]) -> list[Any]:
        """`one` of the first payloads, up to one that `one` must be asked for."""
        if self.seen.is_open or self.record_type != "example":
            return []
        return decode_records(payloads, self.plan)

    def dicts(self, payloads: BytesColumn) -> list[Any] | None:
        """All records as `one` returns them if decoding them together is faster, else None."""
        return None

    def records(self, rows: RowBatch) -> Iterator[list[Any]]:
        """`one` of each row in turn, some at a time; an invalid message goes to the policy."""

        def failed(row: int, payload: memoryview, error: LocatedError) -> None:
            located = self.located(error, *rows.locate(row))
            if not self.policy.skips or not is_damage(payload, error):
                raise located from None
            self.policy.handle(located)

        for first, views in zip(count(0, GROUP), rows.groups(), strict=False):
            if self.record_type == "bytes":
                rows.check(first)
                yield [view.tobytes() for view in views]
            else:
                self.look(rows.paths[0], views)
                yield from decoded_ahead(views, first, rows.check, self.one, self.many, failed)

    def batches(
        self, rows: RowBatch, columns: tuple[str, ...] | None, drop_last: bool, num_threads: int
    ) -> Iterator[Batch]:
        """`batch` of the rows; if that raises, a batch of the rows before the bad one comes first, unless
        ``drop_last``."""
        rows.check()
        try:
            batch = self.batch(rows.payloads, rows.locate, columns, num_threads)
        except LOCATED_ERRORS as error:
            first = rows.row_of(error.path, error.record)
            if first and not drop_last:
                good = rows.part(0, first)
                yield self.batch(good.payloads, good.locate, columns, num_threads)
            raise
        yield batch

    def batch(
        self,
        payloads: BytesColumn,
        locate: Locate,
        columns: tuple[str, ...] | None = None,
        num_threads: int | None = None,
    ) -> Batch:
        """The columns of a batch. If damage is skipped, payloads that are not valid messages are left out.

        ``locate`` returns the path and record number of a row of ``payloads``.
        """
        if self.record_type == "bytes":
            return payloads
        if len(payloads) and not self._looked:
            self.look(locate(0)[0], map(payloads.view, range(len(payloads))))
        bad: list[DecodeError] | None = [] if self.policy.skips else None
        num_threads = num_threads or self.num_threads
        try:
            batch = self._decode(payloads, columns, num_threads, bad)
        except LOCATED_ERRORS as error:
            row = error.record or 0
            if not self.policy.skips or not is_damage(payloads.view(row), error):
                raise self.located(error, *locate(row)) from None
        else:
            for damage in bad or ():
                self.policy.handle(self.located(damage, *locate(damage.record or 0)))
            return batch
        rows = self._good_rows(payloads, locate)
        bad = []
        try:
            batch = self._decode(payloads[rows], columns, num_threads, bad)
        except LOCATED_ERRORS as error:
            raise self.located(error, *locate(int(rows[error.record or 0]))) from None
        for damage in bad:
            self.policy.handle(self.located(damage, *locate(int(rows[damage.record or 0]))))
        return batch

    def _decode(
        self,
        payloads: BytesColumn,
        columns: tuple[str, ...] | None,
        num_threads: int,
        bad: list[DecodeError] | None = None,
    ) -> ColumnBatch | SequenceBatch:
        plan, lists = self.dense or (self.plan, self.sequence_plan)
        is_sequence = self.record_type == "sequence_example"
        if columns is not None:
            # With allow_missing, a name that no record has is an empty column.
            strange = [name for name in columns if name not in (plan.names or ())]
            if is_sequence:
                strange = [name for name in strange if name not in (lists.names or ())]
            if self.plan.columns is None and plan.columns is not None:
                plan = FeaturePlan(plan.columns + tuple(Column(name, None) for name in strange))
            if is_sequence and self.sequence_plan.columns is None and lists.columns is not None:
                lists = FeaturePlan(lists.columns + tuple(Column(name, None) for name in strange))
        batch = decode_batch(
            payloads,
            plan,
            sequence_plan=lists if is_sequence else None,
            columns=columns,
            num_threads=num_threads,
            bad=bad,
        )
        self.seen.batch(batch, columns)
        return batch

    def _good_rows(self, payloads: BytesColumn, locate: Locate) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows that are valid messages; the others go to the policy."""
        bad = bad_rows(payloads)
        for row, error in bad:
            self.policy.handle(self.located(error, *locate(row)))
        keep = np.ones(len(payloads), np.bool_)
        keep[[row for row, _ in bad]] = False
        return np.flatnonzero(keep)


def _unknown_offset(path: str, record: int) -> int | None:
    return None
