"""Requested features that no record has; see the table in docs/reading.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Any

from indexer.errors import MissingFeatureError
from indexer.options import known_names, listed, warn_caller
from tfrecord._columns.batch import SequenceBatch
from tfrecord._columns.decoding import decode_record
from tfrecord.features import EMPTY, NAMED, Column, FeaturePlan, compile_features, other_part
from tfrecord.schema import Schema

__all__ = ["Seen", "check_known", "in_no_record", "warn_of_absent"]


def _may_be_absent(plan: FeaturePlan) -> dict[str, Column]:
    """The columns that a record may lack without an error."""
    return {
        column.key: column
        for column in plan.columns or ()
        if column.absent in (EMPTY, NAMED) and (column.shape is None or column.default is not None)
    }


class Seen:
    """Tracks which requested features have appeared in the records read so far.

    Features whose absence is an error are not tracked. Safe to use from several threads.
    """

    def __init__(self, plan: FeaturePlan, sequence_plan: FeaturePlan) -> None:
        self._unseen = set(_may_be_absent(plan))
        self._unseen_lists = set(_may_be_absent(sequence_plan))
        self._order = sorted(self._unseen), sorted(self._unseen_lists)
        self._others: dict[str, bool] = {}
        self._any_record = False
        self.warned = False

    @property
    def is_open(self) -> bool:
        """Whether some features of the plans have not appeared in any record yet."""
        return bool(self._unseen or self._unseen_lists)

    def batch(self, batch: Any, columns: Collection[str] | None) -> None:
        """Record the features of a decoded batch, of which ``columns`` were requested."""
        if columns is None and not self.is_open:
            return
        self._any_record = self._any_record or batch.num_rows > 0
        is_sequence = isinstance(batch, SequenceBatch)
        parts = [(batch.context if is_sequence else batch, self._unseen)]
        if is_sequence:
            parts.append((batch.feature_lists, self._unseen_lists))
        for part, unseen in parts:
            for key in list(unseen):
                if key in part and part.present[key].any():
                    unseen.discard(key)
        for key in columns or ():
            if not self._others.get(key):
                self._others[key] = any(key in part and bool(part.present[key].any()) for part, _ in parts)

    def record(self, payload: Any, is_sequence: bool) -> None:
        """Record the features of a single record."""
        self._any_record = True
        plan = compile_features(list(self._unseen)) if self._unseen else FeaturePlan(())
        lists = compile_features(list(self._unseen_lists)) if self._unseen_lists else FeaturePlan(())
        found: Any = decode_record(payload, plan, lists if is_sequence else None)
        context, steps = found if is_sequence else (found, {})
        self._unseen -= {key for key, value in context.items() if value is not None}
        self._unseen_lists -= {key for key, values in steps.items() if values}

    def flags(self) -> list[bool]:
        """Whether any record was read, then whether each tracked feature has appeared; for `join`."""
        features, lists = self._order
        seen = [name not in self._unseen for name in features]
        return [self._any_record, *seen, *(name not in self._unseen_lists for name in lists)]

    def join(self, flags: Sequence[bool]) -> None:
        """Add what another process has seen: its `flags`."""
        features, lists = self._order
        self._any_record = self._any_record or flags[0]
        self._unseen -= set(compress(features, flags[1:]))
        self._unseen_lists -= set(compress(lists, flags[1 + len(features) :]))

    def absent(self, columns: Collection[str] | None) -> list[str]:
        """The requested features that no record had; only those in ``columns`` if only these were read.

        An empty list if no record was read: an empty file tells nothing about names.
        """
        if not self._any_record:
            return []
        unseen = self._unseen | self._unseen_lists
        if columns is None:
            return sorted(unseen)
        return [key for key in columns if key in unseen or self._others.get(key) is False]


def warn_of_absent(
    path: str, names: Collection[str], context: Collection[str], lists: Collection[str]
) -> None:
    """One warning that no record has these features, where its parts have others."""
    near = "".join(other_part(name, context, lists) for name in names)
    what = "a feature" if len(names) == 1 else "any of the features"
    warn_caller(
        f"{path}: no record that was read has {what} {listed(names)}{near} (allow_missing=True silences this)"
    )


def in_no_record(
    key: str, path: str, context: Collection[str], lists: Collection[str]
) -> MissingFeatureError:
    """The error for a feature that no record has, where its parts have others."""
    known = [*context, *lists]
    hint = other_part(key, context, lists) if key in known else known_names(key, known)
    return MissingFeatureError(f"is in no record{hint}", key=key, path=path)


def check_known(plan: FeaturePlan, sequence_plan: FeaturePlan | None, schema: Schema, path: str) -> None:
    """Compare the requested features with a schema of all records.

    Raises:
        MissingFeatureError: a required feature is in no record.
    """
    absent: list[str] = []
    for part, table in ((plan, schema), (sequence_plan, schema.feature_lists)):
        for key, column in _may_be_absent(part).items() if part is not None else ():
            if key in table:
                continue
            if column.absent == NAMED:
                raise in_no_record(key, path, schema, schema.feature_lists)
            absent.append(key)
    if absent:
        warn_of_absent(path, absent, schema, schema.feature_lists)
