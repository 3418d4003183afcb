"""Records as columns of one table without loss: the values that fit the columns, and the rest.

A dataset gets one layout, decided in a pass over all of it: a kind for each key, and whether every record
that has the key has exactly one value. What does not fit (features or steps without a kind, or of a kind
other than the column's) goes into an extra column, as a separate message. A record is its columns plus its
rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from indexer.errors import DecodeError, FeatureKindError
from tfrecord._cli.describe import kind_of
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.decoding import decode_batch, decode_record
from tfrecord._reading.payload_batches import Batch
from tfrecord._writing.encoder import encode_example, encode_sequence_example
from tfrecord.example_pb2 import Example, Feature, FeatureList, SequenceExample
from tfrecord.features import FeaturePlan, VarLenFeature, compile_features

REST = "__tfrecord_rest__"
_ALL = compile_features(None)

Record = tuple[dict[str, Any], dict[str, Any] | None]


@dataclass
class Field:
    """One column: its kind (None: unknown), and the least and most values of a record that has it."""

    kind: str | None = None
    least: int = 1 << 62
    most: int = 0

    @property
    def single(self) -> bool:
        return self.least == self.most == 1


@dataclass
class Layout:
    """How a dataset becomes columns. `lists` are the feature lists of SequenceExamples.

    `rest`: some record has values that no column holds. `unknown`: some keys never have a kind.
    """

    record_type: str = "example"
    context: dict[str, Field] = field(default_factory=dict)
    lists: dict[str, Field] = field(default_factory=dict)
    rest: bool = False
    unknown: bool = False
    rows: int = 0


def exact_record(payload: Any, record_type: str) -> Record:
    """One record without loss: None is a feature or a step without a kind."""
    if record_type != "sequence_example":
        return decode_record(payload, _ALL), None  # type: ignore[return-value]
    try:
        record: Any = decode_record(payload, _ALL, _ALL)
    except FeatureKindError:  # steps of one list differ in kind
        message = SequenceExample.FromString(bytes(payload))
        context = {key: _values(feature) for key, feature in message.context.feature.items()}
        return context, {key: _steps(steps) for key, steps in message.feature_lists.feature_list.items()}
    context, lists = record
    vague = [key for key, steps in lists.items() if any(step is None or not len(step) for step in steps)]
    if vague:  # a step without a kind looks like an empty one
        message = SequenceExample.FromString(bytes(payload))
        lists |= {key: _steps(message.feature_lists.feature_list[key]) for key in vague}
    return context, lists


def _steps(steps: FeatureList) -> list[Any]:
    return [_values(step) for step in steps.feature]


def _values(feature: Feature) -> Any:
    member = feature.WhichOneof("kind")
    if member is None:
        return None
    values = getattr(feature, member).value
    if member == "int64_list":
        return np.array(values, np.int64)
    if member == "float_list":
        return np.array(values, np.float32)
    made = np.empty(len(values), object)
    made[:] = list(values)
    return made


def build_message(context: dict[str, Any], lists: dict[str, Any] | None) -> bytes:
    """The message of such a record; the inverse of `exact_record`."""
    told = {key: (value, kind_of(value)) for key, value in context.items() if value is not None}
    silent = [key for key, value in context.items() if value is None]
    if lists is None:
        example = Example()
        for key in silent:
            example.features.feature[key].SetInParent()
        return encode_example(told) + example.SerializeToString()
    sequence = SequenceExample()
    for key in silent:
        sequence.context.feature[key].SetInParent()
    plain = {}
    for key, steps in lists.items():
        kinds = {kind_of(step) for step in steps} or {"bytes"}
        if len(kinds) == 1 and all(step is not None for step in steps):
            plain[key] = steps, next(iter(kinds))
        else:
            _fill_steps(sequence.feature_lists.feature_list[key], steps)
    return encode_sequence_example(told, plain) + sequence.SerializeToString()


def _fill_steps(target: FeatureList, steps: list[Any]) -> None:
    """Write steps without a kind or of several kinds, which only the message classes can do."""
    target.SetInParent()
    for step in steps:
        feature = target.feature.add()
        if step is not None:
            feature.MergeFromString(_one_feature(step))


def _one_feature(value: Any) -> bytes:
    example = Example.FromString(encode_example({"": (value, kind_of(value))}))
    return example.features.feature[""].SerializeToString()


# The pass that decides the layout.


def survey(source: Iterable[Batch]) -> Layout:
    """The layout of a dataset. Raises DecodeError, with file and record, if a payload is not a valid
    message."""
    layout = Layout()
    for batch in source:
        if not layout.rows:
            layout.record_type = batch.record_type
        layout.rows += len(batch.payloads)
        if layout.record_type == "bytes":
            continue
        sequence = _ALL if layout.record_type == "sequence_example" else None
        try:
            decoded = decode_batch(batch.payloads, _ALL, sequence_plan=sequence)
        except FeatureKindError:
            layout.rest = True
            _survey_slowly(batch.payloads, layout)
            continue
        except DecodeError as error:
            raise error.at(batch.path, batch.first + (error.record or 0)) from None
        context = decoded.context if isinstance(decoded, SequenceBatch) else decoded
        _note_columns(layout, layout.context, context)
        if isinstance(decoded, SequenceBatch):
            _note_columns(layout, layout.lists, decoded.feature_lists)
        if not layout.rest:
            layout.rest = any(_oddities(batch.payloads.view(row), layout) for row in _suspects(decoded))
    if REST in layout.context:  # no column may have this name
        layout.context[REST].kind = None
    fields = [*layout.context.values(), *layout.lists.values()]
    layout.unknown = any(found.kind is None for found in fields)
    layout.rest = layout.rest or layout.unknown
    layout.context = {key: found for key, found in layout.context.items() if found.kind is not None}
    layout.lists = {key: found for key, found in layout.lists.items() if found.kind is not None}
    return layout


def _note_columns(layout: Layout, fields: dict[str, Field], columns: ColumnBatch) -> None:
    for key, column in columns.items():
        found = fields.setdefault(key, Field())
        kind = _column_kind(column)
        if found.kind is None:
            found.kind = kind
        if kind not in (None, found.kind):
            layout.rest = True
        counts = column.lengths()[columns.present[key]]
        if len(counts) and kind == found.kind:
            found.least, found.most = min(found.least, int(counts.min())), max(found.most, int(counts.max()))


def _column_kind(column: Any) -> str | None:
    values = column
    while isinstance(values, Ragged):
        values = values.values
    if isinstance(values, BytesColumn):
        return "bytes"
    return {"i": "int64", "u": "int64", "b": "int64", "f": "float"}.get(values.dtype.kind)


class ColumnKinds:
    """The kind of each column, which is one in all files that make one output."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, str]] = {}

    def check(self, path: str, name: str, column: Any) -> None:
        """Raise ValueError if the column has another kind in an earlier file."""
        kind = _column_kind(column)
        if kind is None:
            return
        known, where = self._found.setdefault(name, (kind, path))
        if kind != known:
            raise ValueError(
                f"column {name!r} holds {kind} values here, and {known} values in {where}; "
                "a feature has one kind: cast one of them"
            )


def _survey_slowly(payloads: BytesColumn, layout: Layout) -> None:
    for row in range(len(payloads)):
        context, lists = exact_record(payloads.view(row), layout.record_type)
        for fields, features in ((layout.context, context), (layout.lists, lists or {})):
            for key, value in features.items():
                found = fields.setdefault(key, Field())
                steps = value if isinstance(value, list) else [value]
                kinds = {kind_of(step) for step in steps if step is not None}
                if found.kind is None and len(kinds) == 1:
                    found.kind = next(iter(kinds))
                if kinds == {found.kind}:
                    count = len(value) if not isinstance(value, (bytes, memoryview)) else 1
                    found.least, found.most = min(found.least, count), max(found.most, count)


# Batches by the layout.


def _suspects(decoded: ColumnBatch | SequenceBatch) -> Any:
    """Rows that may hold values that no column shows: without a kind, a feature looks absent and a step
    looks empty."""
    context = decoded.context if isinstance(decoded, SequenceBatch) else decoded
    flags = np.zeros(decoded.num_rows, np.bool_)
    for present in context.present.values():
        flags |= ~present
    if isinstance(decoded, SequenceBatch):
        for key, column in decoded.feature_lists.items():
            empty = np.concatenate(([0], np.cumsum(column.values.lengths() == 0)))
            flags |= empty[column.row_splits[1:]] > empty[column.row_splits[:-1]]
            flags |= (column.lengths() == 0) & decoded.feature_lists.present[key]
    return np.flatnonzero(flags)


def _oddities(payload: Any, layout: Layout) -> Record | None:
    """The part of a record that its columns do not hold; None if there is no such part."""
    context, lists = exact_record(payload, layout.record_type)
    odd = {key: value for key, value in context.items() if not _fits(layout.context.get(key), [value])}
    if lists is None:
        return (odd, None) if odd else None
    odd_lists = {key: steps for key, steps in lists.items() if not _fits(layout.lists.get(key), steps)}
    return (odd, odd_lists) if odd or odd_lists else None


def _fits(column: Field | None, values: list[Any]) -> bool:
    return (
        column is not None
        and column.kind is not None
        and all(kind_of(value) == column.kind for value in values)
    )


def columns_of(
    payloads: BytesColumn, layout: Layout
) -> tuple[ColumnBatch | SequenceBatch, list[bytes | None] | None]:
    """The columns of some records, and the rest of each record (None: nothing), or None if no record has a
    rest.

    When a record's message is rebuilt, its rest comes last and so overrides a column with the same key.
    """
    plan = _plan(layout.context)
    lists = _plan(layout.lists) if layout.record_type == "sequence_example" else None
    try:
        decoded = decode_batch(payloads, plan, sequence_plan=lists)
    except FeatureKindError:
        decoded = None
    if decoded is not None and not layout.rest:
        return decoded, None
    if decoded is not None and not layout.unknown:
        rows = _suspects(decoded).tolist()
    else:
        rows = list(range(len(payloads)))
    rest: list[bytes | None] = [None] * len(payloads)
    cleaned = [payloads.view(row) for row in range(len(payloads))] if decoded is None else []
    for row in rows:
        odd = _oddities(payloads.view(row), layout)
        if odd is None:
            continue
        rest[row] = build_message(*odd)
        if decoded is None:
            cleaned[row] = memoryview(_without(payloads.view(row), odd, layout))
    if decoded is None:
        decoded = decode_batch(_column(cleaned), plan, sequence_plan=lists)
    return decoded, rest


def _plan(fields: dict[str, Field]) -> FeaturePlan:
    if not fields:
        return _ALL.select(())
    return compile_features({key: VarLenFeature(str(found.kind)) for key, found in fields.items()})


def _column(values: list[Any]) -> BytesColumn:
    lengths = np.array([len(value) for value in values], np.int64)
    return BytesColumn(
        values, np.zeros(len(values), np.int64), lengths, np.arange(len(values), dtype=np.int32)
    )


def _without(payload: Any, odd: Record, layout: Layout) -> bytes:
    context, lists = exact_record(payload, layout.record_type)
    context = {key: value for key, value in context.items() if key not in odd[0]}
    if lists is None:
        return build_message(context, None)
    return build_message(context, {key: value for key, value in lists.items() if key not in (odd[1] or {})})


__all__ = [
    "REST",
    "ColumnKinds",
    "Field",
    "Layout",
    "build_message",
    "columns_of",
    "exact_record",
    "survey",
]
