"""The schema of features: collected while a file is indexed, and merged over files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from indexer.display import html_table, text_table
from indexer.errors import FeatureKindError
from indexer.index import RecordIndex
from tfrecord._columns.kept import KeptColumns
from tfrecord._kernels.codes import KINDS
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord._kernels.record_type import MESSAGES, RecordType, Sample, check_record_type
from tfrecord.features import FeaturePlan, FixedLenFeature, VarLenFeature, compile_features, no_feature

__all__ = [
    "INVALID_KEPT",
    "NO_VALUES",
    "FeatureSchema",
    "Schema",
    "SchemaCollector",
    "dense_plan",
    "invalid_text",
    "merge_schemas",
]

_RECORDS_AT_ONCE = 1024
# A file with more different keys than this gets no schema, as it would say nothing useful.
_MOST_KEYS = 65_536
# More names than that are no schema either.
_MOST_KEY_BYTES = 4 << 20
# How many numbers of invalid records are kept.
INVALID_KEPT = 16
# The initial minimum number of values, while no record has any.
NO_VALUES = 2**63 - 1


@dataclass(frozen=True)
class FeatureSchema:
    """What is known about one feature over all records.

    ``kind`` is its type: ``"bytes"``, ``"float"``, ``"int64"``, or ``"unknown"`` if no record gives it one.
    ``num_present`` counts the records that have it with a type (for a feature list: that have it),
    ``num_records`` all valid records. ``min_length`` and ``max_length`` are values per record (for a feature
    list: steps), 0 if no record has it. ``shape`` is the shape of one record's values if it is the same in
    all records, ``()`` for one value; else None. ``min_step`` and ``max_step`` are values per step of a
    feature list, else None.
    """

    kind: str
    num_present: int
    num_records: int
    min_length: int
    max_length: int
    min_step: int | None = None
    max_step: int | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        constant = self.num_present == self.num_records and self.min_length == self.max_length
        if not constant or not self.num_records or self.kind == "unknown" or self.max_step is not None:
            return None
        return () if self.max_length == 1 else (self.max_length,)

    def _extent(self) -> str:
        """How many values a record has."""
        if self.max_step is None:
            return _span(self.min_length, self.max_length, "value")
        steps = _span(self.min_length, self.max_length, "step")
        return f"{steps} of {_span(self.min_step or 0, self.max_step, 'value')}"

    def _presence(self) -> str:
        lacking = self.num_present != self.num_records
        return f"{self.num_present:,} of {self.num_records:,}" if lacking else "all"


def _span(least: int, most: int, unit: str) -> str:
    numbers = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"{numbers} {unit}{'s' * (most != 1)}"


class Schema(Mapping[str, FeatureSchema]):
    """Features by key; for SequenceExamples those of the context, with ``feature_lists`` beside them.

    Attributes: ``record_type`` (``"example"``, ``"sequence_example"``, ``"bytes"``), ``num_records`` (all
    records), ``num_invalid`` (records that are not valid messages), ``feature_lists`` (a mapping like this
    one).
    """

    def __init__(
        self,
        features: Mapping[str, FeatureSchema],
        feature_lists: Mapping[str, FeatureSchema],
        record_type: str,
        num_records: int,
        num_invalid: int = 0,
    ) -> None:
        self._features = dict(features)
        self.feature_lists: Mapping[str, FeatureSchema] = MappingProxyType(dict(feature_lists))
        self.record_type = record_type
        self.num_records = num_records
        self.num_invalid = num_invalid

    def __getitem__(self, key: str) -> FeatureSchema:
        try:
            return self._features[key]
        except KeyError:
            raise no_feature(key, self._features) from None

    def __contains__(self, key: object) -> bool:
        return key in self._features

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "feature_lists": dict(self.feature_lists)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.feature_lists = MappingProxyType(state["feature_lists"])

    def _title(self) -> str:
        plural = "s" * (self.num_records != 1)
        invalid = f", {self.num_invalid:,} invalid" if self.num_invalid else ""
        return f"Schema of {self.num_records:,} record{plural} ({self.record_type}{invalid})"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (repr(key), feature.kind, feature._extent(), feature._presence())
            for part in (self._features, self.feature_lists)
            for key, feature in part.items()
        ]

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {line}" for line in text_table(self._rows()))])

    def _repr_html_(self) -> str:
        header = [(name, "") for name in ("feature", "type", "values", "in records")]
        return html_table(self._title(), header, self._rows())


class SchemaCollector:
    """Collects the schema of a file while its index is built; a collector for `indexer.build_index`.

    Args:
        columns: what to keep in the index for each record; see `tfrecord._columns.kept`. None: the columns of
            the index that is replaced, if there is one.

        record_type: as for `tfrecord.build_index`.

    Values are counted, not decoded. The first records decide whether the records are messages at all; if they
    are, invalid ones are counted and left out of the schema.

    Attributes: ``record_type`` (settled by `finish`), ``num_invalid``, ``invalid`` (the numbers of the first
    invalid records).
    """

    def __init__(self, columns: Iterable[str] | None = None, record_type: str = "auto") -> None:
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        self._kept = KeptColumns(names) if names else None
        self._takes_over = columns is None
        self._count = 0
        # A column to keep implies that the records are messages.
        self._declared = MESSAGES if names and record_type == "auto" else check_record_type(record_type)
        self._sample = Sample()
        self._tables: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
        self.record_type = RecordType("example")
        self.num_invalid = 0
        self.invalid: list[int] = []

    def update(self, buffer: Any, payload_offsets: Any, lengths: Any) -> None:
        """Add the records at these positions of a buffer.

        Raises:
            DecodeError: a feature to keep has several values in a record.
            FeatureKindError: a feature to keep has several types.
        """
        offsets = np.asarray(payload_offsets).astype(np.int64)
        sizes = np.asarray(lengths).astype(np.int64)
        self._look(buffer, offsets, sizes)
        for start in range(0, len(offsets), _RECORDS_AT_ONCE):
            part = slice(start, start + _RECORDS_AT_ONCE)
            if self._kept is not None:
                self._kept.update(buffer, offsets[part], sizes[part])
            if self.record_type.name != "bytes":
                self._survey(buffer, offsets[part], sizes[part])
            self._count += len(offsets[part])

    def _look(self, buffer: Any, offsets: Any, lengths: Any) -> None:
        """Settle the record type by the first payloads; until there are enough, they count as messages."""
        if self._sample.is_full:
            return
        data = memoryview(buffer).cast("B")
        places = zip(offsets.tolist(), lengths.tolist(), strict=True)
        self._sample.add(data[offset : offset + length] for offset, length in places)
        if self._sample.is_full:
            self.record_type = self._sample.record_type(self._declared)

    def keep(self, earlier: RecordIndex) -> None:
        """Note what the index holds that will be replaced."""
        if self._takes_over and len(earlier.columns):
            self._kept = KeptColumns(earlier.columns)

    def satisfied_by(self, index: Any) -> bool:
        """Whether an index that matches its data already has what this build would add."""
        names = () if self._kept is None else self._kept.names
        return "record_type" in index.metadata and (
            self._takes_over or sorted(names) == sorted(index.columns)
        )

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Metadata for the index's header (the record type, how it was decided and, for messages, the
        schema), and the columns kept."""
        known = [*self._tables[0], *self._tables[1]]
        columns = self._kept.finish(known) if self._kept is not None else {}
        self.record_type = found = self._sample.record_type(self._declared)
        metadata: dict[str, Any] = {"record_type": found.name, "looked_at": list(found[1:])}
        if found.name == "bytes":
            self.num_invalid, self.invalid = 0, []
            return metadata, columns
        features, lists = ({key: list(entry) for key, entry in table.items()} for table in self._tables)
        if self._declared in ("auto", MESSAGES) and any(map(_is_clean, lists, lists.values())):
            metadata["record_type"] = "sequence_example"  # because of a later record
            self.record_type = found._replace(name="sequence_example")
        key_bytes = sum(map(len, (*features, *lists)))
        if len(features) + len(lists) <= _MOST_KEYS and key_bytes <= _MOST_KEY_BYTES:
            metadata["schema"] = {"num_records": self._count, "features": features, "feature_lists": lists}
            metadata["schema"] |= {"num_invalid": self.num_invalid, "invalid": list(self.invalid)}
        return metadata, columns

    def _survey(self, buffer: Any, offsets: Any, lengths: Any) -> None:
        status, good, _, *found = kernel.survey(buffer, offsets, lengths)
        if status == 10:  # too many different keys
            found = [dict.fromkeys(map(str, range(_MOST_KEYS + 1))), {}]
        elif status:
            self._survey_valid(buffer, offsets, lengths)
            return
        for table, entries in zip(self._tables, found, strict=True):
            if len(table) > _MOST_KEYS:
                continue
            for key, new in entries.items():
                old = table.setdefault(key, [0, 0, NO_VALUES, -1, NO_VALUES, -1])
                if new is not None:
                    merged = (old[0] | new[0], old[1] + new[1], min(old[2], new[2]), max(old[3], new[3]))
                    old[:] = [*merged, min(old[4], new[4]), max(old[5], new[5])]

    def _survey_valid(self, buffer: Any, offsets: Any, lengths: Any) -> None:
        """Survey a batch in which some records are not valid messages."""
        bad = kernel.check_records((buffer,), offsets, lengths) != 0
        self.num_invalid += int(bad.sum())
        rows = np.flatnonzero(bad)[: INVALID_KEPT - len(self.invalid)]
        self.invalid += (rows + self._count).tolist()
        if bad.any() and not bad.all():
            self._survey(buffer, offsets[~bad], lengths[~bad])


def invalid_text(num_invalid: int, num_records: int, first: Sequence[int]) -> str:
    """How many records are not valid messages, and the numbers of the first."""
    are = "is not a valid message" if num_invalid == 1 else "are not valid messages"
    shown = ", ".join(map(str, first)) + (", ..." if num_invalid > len(first) else "")
    return f"{num_invalid:,} of {num_records:,} records {are}: record {shown}"


def _is_clean(key: str, entry: list[int] | None) -> bool:
    """Whether a key is text and some record gives its feature a kind."""
    return bool(entry and entry[0]) and min(key, default=" ") >= " "


def merge_schemas(parts: Sequence[tuple[str, Mapping[str, Any]]], record_type: str) -> Schema:
    """The combined schema of several files.

    Args:
        parts: for each file its path and the metadata of its index (or from `SchemaCollector.finish`);
            without a schema, its ``num_records`` is the number of records.
        record_type: the record type; records of type bytes have no features.

    Raises:
        FeatureKindError: a feature has different types; the message names key, types and files. Unknown (no
            record has a type) is compatible with any.
    """
    tables: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    origins: dict[tuple[int, str, int], str] = {}
    records = invalid = 0
    for path, metadata in parts:
        schema = metadata.get("schema") or {}
        records += schema.get("num_records", metadata.get("num_records", 0))
        if record_type == "bytes":
            continue
        invalid += schema.get("num_invalid", 0)
        for place, name in enumerate(("features", "feature_lists")):
            for key, new in schema.get(name, {}).items():
                for kind in (1, 2, 3):
                    if new[0] & 1 << kind:
                        origins.setdefault((place, key, kind), path)
                old = tables[place].setdefault(key, [0, 0, NO_VALUES, -1, NO_VALUES, -1])
                merged = (old[0] | new[0], old[1] + new[1], min(old[2], new[2]), max(old[3], new[3]))
                old[:] = [*merged, min(old[4], new[4]), max(old[5], new[5])]
    made = [
        {key: _feature(key, entry, place, records - invalid, origins) for key, entry in table.items()}
        for place, table in enumerate(tables)
    ]
    return Schema(made[0], made[1], record_type, records, invalid)


def _feature(
    key: str, entry: list[int], place: int, records: int, origins: Mapping[tuple[int, str, int], str]
) -> FeatureSchema:
    bits, present, least, most, least_step, most_step = entry
    kinds = [name for name, number in KINDS.items() if bits & 1 << number]
    if len(kinds) > 1:
        files = [origins[place, key, KINDS[name]] for name in kinds]
        where = ", ".join(f"{name} in {file}" for name, file in zip(kinds, files, strict=True))
        if len(set(files)) == 1:
            where = f"{' and '.join(kinds)} in different records of {files[0]}"
        raise FeatureKindError(f"is of different kinds: {where}", key=key)
    kind = kinds[0] if kinds else "unknown"
    sizes = (0, 0) if most < 0 else (least, most)
    if not place:
        return FeatureSchema(kind, present, records, *sizes)
    steps = (0, 0) if most_step < 0 else (least_step, most_step)
    return FeatureSchema(kind, present, records, *sizes, *steps)


def typed_plan(plan: FeaturePlan, features: Mapping[str, FeatureSchema]) -> FeaturePlan:
    """A plan in which each column of any type has the type that the schema of all records says.

    A plan for every feature becomes `dense_plan`.
    """
    if plan.columns is None:
        return dense_plan(features)
    kinds = {key: VarLenFeature(found.kind) for key, found in features.items() if found.kind != "unknown"}
    typed = {column.key: column for column in compile_features(kinds).columns or ()}
    return FeaturePlan(
        tuple(
            replace(typed[column.key], absent=column.absent)
            if column.kind is None and column.key in typed
            else column
            for column in plan.columns
        )
    )


def dense_plan(features: Mapping[str, FeatureSchema]) -> FeaturePlan:
    """The plan for all features of a schema, sorted by name: dense if all records have the same shape, else
    ragged. So every batch has the same columns."""
    specs: dict[str, Any] = {}
    for key, feature in sorted(features.items()):
        if feature.kind == "unknown":
            specs[key] = None
        elif feature.shape is not None:
            specs[key] = FixedLenFeature(feature.shape, feature.kind)
        else:
            specs[key] = VarLenFeature(feature.kind)
    return compile_features(specs) if specs else FeaturePlan(())
