"""The indexes of many files as one: columns, schema, and choosing by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import FeatureKindError
from indexer.framing import HEADER_SIZE
from indexer.index import RecordIndex
from indexer.options import listed, near_matches, warn_caller
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import SAMPLE, RecordDecoder, settle_type
from tfrecord._reading.store import RecordStore
from tfrecord.features import FeaturePlan
from tfrecord.schema import Schema, SchemaCollector, dense_plan, merge_schemas

__all__ = ["MergedIndex", "dense_plans", "find_type", "first_records", "matching", "read_schema"]

# A schema without an index is made of so many records of so many files, spread over all of them.
_SAMPLED_FILES = 64
_SAMPLED_RECORDS = 4096


class MergedIndex:
    """The index of all files of a reader, in the order of its positions.

    ``columns`` maps the name of a column that was kept at the build (``columns=``) to an array of one entry a
    record, read-only: a masked one where records lack the value.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """Arrays by name."""
        return _Columns(self._store)


class _Columns(Mapping[str, npt.NDArray[Any]]):
    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        parts = []
        for number, path in enumerate(self._store.paths):
            index = self._store.index(number)
            if name in index.columns:
                parts.append(index.columns[name])
            elif len(index):
                near = near_matches(name, index.columns)
                raise KeyError(
                    f"the index of {path} has no column {name!r} (it has {listed(index.columns)}{near}); "
                    f"build it: tfrecord.build_index({path!r}, columns={[*index.columns, name]!r})"
                )
        if len(parts) == 1:
            return parts[0]
        masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
        joined: npt.NDArray[Any] = np.empty(0, np.int64)
        if parts:
            joined = _joined_masked(parts) if masked else np.concatenate(parts)
        joined.flags.writeable = False
        return joined

    def __iter__(self) -> Iterator[str]:
        names: dict[str, None] | None = None
        for number in range(len(self._store.paths)):
            index = self._store.index(number)
            if len(index):
                here = dict.fromkeys(index.columns)
                names = here if names is None else {name: None for name in names if name in here}
        return iter(names or ())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _joined_masked(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    values = np.concatenate([np.ma.getdata(part) for part in parts])
    return np.ma.MaskedArray(values, np.concatenate([np.ma.getmaskarray(part) for part in parts]))


def matching(column: npt.NDArray[Any], wanted: Any, name: str) -> npt.NDArray[np.bool_]:
    """Where a column is what is wanted: a value, any of several, or what a callable says. Never where the
    value is missing."""
    if isinstance(column, np.ma.MaskedArray) and not callable(wanted):
        return matching(column.data, wanted, name) & ~np.ma.getmaskarray(column)
    if callable(wanted):
        found = wanted(column)
        found = found.filled(False) if isinstance(found, np.ma.MaskedArray) else np.asarray(found)
        if found.dtype != np.bool_ or found.shape != column.shape[:1]:
            raise ValueError(f"the condition on {name!r} must give a bool array of shape {column.shape[:1]}")
        return found
    many = isinstance(wanted, list | tuple | set | frozenset | range | np.ndarray)
    values: list[Any] = list(wanted) if many else [wanted]
    if column.dtype.kind == "S":
        values = [value.encode() if isinstance(value, str) else value for value in values]
    expected = (bytes,) if column.dtype.kind == "S" else (int, float, np.number, np.bool_)
    for value in values:
        if not isinstance(value, expected):
            raise TypeError(f"index column {name!r} is of type {column.dtype}; it cannot be {value!r}")
    if not values:
        return np.zeros(len(column), np.bool_)
    # Stored floats are float32: 0.1 is meant as the float32 next to it.
    asked = np.array(values, column.dtype if column.dtype.kind == "f" else None)
    return np.isin(column, asked)


def find_type(store: RecordStore, *, wants_features: bool) -> str:
    """What the records are: by the indexes, else by the first that are good."""
    indexes = [index for index in store.given if index is not None and len(index)]
    known = {index.metadata.get("record_type") for index in indexes}
    if "sequence_example" in known:
        return "sequence_example"
    # An index calls a file bytes for one record that is no message; most of them may be.
    found = "example" if "example" in known else settle_type(_first_payloads(store))
    if found in ("example", "sequence_example"):
        return found
    if wants_features:
        return "example"
    warn_caller(
        f"{store.paths[0]}: the records are no tf.train.Example; they are given as bytes "
        "(record_type='bytes' says so and silences this)"
    )
    return "bytes"


def _first_payloads(store: RecordStore) -> list[memoryview]:
    """Some good records that are not empty, of the first file that has such; damage is left for later."""
    quiet = DamagePolicy("skip")
    for number in range(len(store.paths)):
        for run in store.stream(number, policy=quiet):
            found = [payload for payload in islice(run.payloads(), SAMPLE) if len(payload)]
            if found:
                return found
    return []


def read_schema(store: RecordStore) -> Schema:
    """The schema of all files: of those with an extended index from it, of the others from some records."""
    unknown = [number for number in range(len(store.paths)) if not _has_schema(store.given[number])]
    step = -(-len(unknown) // _SAMPLED_FILES) or 1
    sampled = set(unknown[::step])
    share = -(-_SAMPLED_RECORDS // (len(sampled) or 1))
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for number, path in enumerate(store.paths):
        index = store.given[number]
        if number in sampled:
            parts.append((path, first_records(store, number, share)))
        elif index is not None and len(index) and _has_schema(index):
            parts.append((path, index.metadata))
    return merge_schemas(parts)


def _has_schema(index: RecordIndex | None) -> bool:
    return index is not None and (not len(index) or "schema" in index.metadata)


def first_records(store: RecordStore, number: int, count: int) -> Mapping[str, Any]:
    """What an index of a file would say of its features: that of its extended index, else of its first
    records, as many as ``count``."""
    index = store.given[number]
    if index is not None and len(index) and _has_schema(index):
        return index.metadata
    collector = SchemaCollector()
    left = count
    for run in store.stream(number):
        taken = min(left, len(run.offsets))
        collector.update(run.buffer, run.offsets[:taken] + np.uint64(HEADER_SIZE), run.lengths[:taken])
        left -= taken
        if not left:
            break
    return {"num_records": count - left, **collector.finish()[0]}


def dense_plans(decoder: RecordDecoder, store: RecordStore) -> tuple[FeaturePlan, FeaturePlan]:
    """The plans that batches are decoded by: those asked for; every feature where none was, by the schema of
    all data where that is known, so that the type of a column is that of every batch."""
    plan, lists = decoder.plan, decoder.sequence_plan
    if decoder.record_type == "bytes" or not all(map(_has_schema, store.given)):
        return plan, lists
    try:
        schema = read_schema(store)
    except FeatureKindError:  # no one plan fits all records; a batch that holds two kinds says so
        return plan, lists
    if plan.columns is None and len(schema):
        plan = dense_plan(schema)
    if decoder.record_type == "sequence_example" and lists.columns is None and len(schema.feature_lists):
        lists = dense_plan(schema.feature_lists)
    return plan, lists
