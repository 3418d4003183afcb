"""The indexes of many files as one: columns, schema, and selection by value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexer.display import html_table
from indexer.errors import FeatureKindError, TFRecordError
from indexer.files import is_url
from indexer.index import IndexSummary, RecordIndex
from indexer.options import listed, near_matches, warn_caller
from tfrecord._kernels.record_type import MESSAGES, RecordType, sample_places, settle
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import RecordDecoder
from tfrecord._reading.html import index_text
from tfrecord._reading.store import RecordStore
from tfrecord.features import FeaturePlan
from tfrecord.schema import Schema, SchemaCollector, dense_plan, merge_schemas

__all__ = [
    "COMPARISONS",
    "MergedIndex",
    "as_stored",
    "dense_plans",
    "find_type",
    "first_records",
    "known_schema",
    "matching",
    "read_schema",
    "settled_type",
]

# Without an index, a schema comes from this many records of this many files, spread over all of them.
_SAMPLED_FILES = 64
_SAMPLED_RECORDS = 4096
# What conditions of the command line and of tickets compare with.
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class MergedIndex:
    """The index of all files of a reader, in the order of its positions.

    ``columns`` maps the name of a column that the build kept (``columns=``) to an array with one entry per
    record, read-only. It is a masked array if some records lack the value.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    def __repr__(self) -> str:
        """What the index files say; nothing is read for it."""
        if self._store.all_given:
            return f"<MergedIndex: each of {len(self._store.paths):,} files has an index file>"
        given = [index for index in self._store.given if index is not None]
        if len(given) < len(self._store.paths):
            return f"<MergedIndex: {len(given)} of {len(self._store.paths)} files have an index file>"
        names = [name for name in given[0].columns if all(name in index.columns for index in given)]
        return f"<MergedIndex: {sum(map(len, given)):,} records, columns: {listed(names)}>"

    def _repr_html_(self) -> str:
        is_known = self._store.has_index and not self._store.closed
        rows = [(name,) for name in self.columns] if is_known else []
        return html_table(f"Index of {index_text(self._store)}", [("columns", "")], rows)

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
                if self._store.has_files:
                    data = repr(path) if len(self._store.paths) == 1 else "reader.paths"
                    then = ", then open the reader again"
                else:
                    data, then = "DATA", " where the files are, then connect again"
                raise KeyError(
                    f"the index of {path} has no column {name!r} (it has {listed(index.columns)}{near}); "
                    f"build it: tfrecord.build_index({data}, columns={[*index.columns, name]!r}){then}"
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
    """Where a column matches: a value, any of several, or the result of a callable. A missing value never
    matches."""
    if isinstance(column, np.ma.MaskedArray) and not callable(wanted):
        return matching(column.data, wanted, name) & ~np.ma.getmaskarray(column)
    if callable(wanted):
        found = wanted(column)
        found = found.filled(False) if isinstance(found, np.ma.MaskedArray) else np.asarray(found)
        if found.dtype != np.bool_ or found.shape != column.shape[:1]:
            raise ValueError(f"the condition on {name!r} must give a bool array of shape {column.shape[:1]}")
        return found
    many = isinstance(wanted, list | tuple | set | frozenset | range | np.ndarray)
    values = as_stored(list(wanted) if many else [wanted], column, name)
    return np.isin(column, values) if len(values) else np.zeros(len(column), np.bool_)


def as_stored(values: Sequence[Any], column: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Values as an index column stores them, to be compared with it. TypeError for those of another type."""
    if column.dtype.kind == "S":
        values = [value.encode() if isinstance(value, str) else value for value in values]
    expected = (bytes,) if column.dtype.kind == "S" else (int, float, np.number, np.bool_)
    for value in values:
        if not isinstance(value, expected):
            raise TypeError(
                f"index column {name!r} has type {column.dtype}; it cannot be compared with {value!r}"
            )
    # Stored floats are float32: 0.1 means the nearest float32.
    return np.array(values, column.dtype if column.dtype.kind == "f" else None)


def find_type(store: RecordStore, declared: str) -> str:
    """The record type, as in `settled_type`; warns if some records do not fit it."""
    found = settled_type(store, declared)
    if found.warning:
        warn_caller(found.warning)
    return found.name


class StoreType(NamedTuple):
    """The record type of all files, and a warning for the user, ``""`` for none."""

    name: str
    warning: str


def settled_type(store: RecordStore, declared: str) -> StoreType:
    """The record type, file by file: from the extended indexes, else from some payloads.

    Files without an extended index are examined in order until one is conclusive.
    """
    known: dict[str, RecordType] = {}
    for number in range(len(store.paths)):
        index = store.summary(number)
        if index is not None and len(index) and index.metadata.get("looked_at") is not None:
            known[store.paths[number]] = _kept_type(index.metadata, declared)
    for number, path in enumerate(store.paths):
        if path in known or any(found.speaks for found in known.values()):
            continue
        known[path] = settle(_some_payloads(store, number), declared)
    names = {found.name for found in known.values() if found.speaks} or {
        found.name for found in known.values()
    }
    name = next((one for one in ("sequence_example", "example", "bytes") if one in names), "example")
    for path, found in known.items():
        if found.name == "bytes" != name:
            told = f"{found.num_against} of the {found.num_for + found.num_against} records looked at are"
            return StoreType(
                name, f"{path}: {told} not valid messages; they are read as messages, as in the other files"
            )
    return StoreType(name, next((f"{path}: {one.warning}" for path, one in known.items() if one.warning), ""))


def _kept_type(metadata: Mapping[str, Any], declared: str) -> RecordType:
    """What an index records about the record type."""
    found = RecordType(metadata["record_type"], *metadata["looked_at"])
    if declared not in ("auto", MESSAGES):
        return RecordType(declared)
    if declared == MESSAGES:
        return found._replace(name="example") if found.name == "bytes" else found._replace(num_against=0)
    return found


def _some_payloads(store: RecordStore, number: int) -> Iterator[memoryview]:
    """Good payloads of one file: from its beginning, middle and end if positions are known and cheap to
    reach, else the first ones. Damage is left for later."""
    path = store.place(store.paths[number])
    index = store.given[number]
    if index is not None and not index.compression and not is_url(path):
        for record in sample_places(len(index)):
            try:
                yield store.fetch_from(number, record)
            except TFRecordError:
                continue
        return
    for run in store.stream(number, policy=DamagePolicy("skip")):
        yield from run.payloads()


def read_schema(store: RecordStore, record_type: str) -> Schema:
    """The schema of all files: from their extended indexes; for files without one, from some records."""
    unknown = [number for number in range(len(store.paths)) if not _has_schema(store.summary(number))]
    step = -(-len(unknown) // _SAMPLED_FILES) or 1
    sampled = set(unknown[::step])
    share = -(-_SAMPLED_RECORDS // (len(sampled) or 1))
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for number, path in enumerate(store.paths):
        index = store.summary(number)
        if number in sampled:
            parts.append((path, first_records(store, number, share, record_type)))
        elif index is not None and len(index) and _has_schema(index):
            parts.append((path, index.metadata))
    return merge_schemas(parts, record_type)


def _has_schema(index: RecordIndex | IndexSummary | None) -> bool:
    return index is not None and (not len(index) or "schema" in index.metadata)


def first_records(
    store: RecordStore, number: int, count: int, record_type: str = "auto"
) -> Mapping[str, Any]:
    """The schema of one file: from its extended index, else from its first ``count`` records."""
    index = store.summary(number)
    if index is not None and len(index) and _has_schema(index):
        return index.metadata
    collector = SchemaCollector(record_type=record_type)
    left = count
    for run in store.stream(number):
        taken = min(left, len(run.offsets))
        collector.update(run.buffer, run.starts()[:taken], run.lengths[:taken])
        left -= taken
        if not left:
            break
    return {"num_records": count - left, **collector.finish()[0]}


def known_schema(store: RecordStore, record_type: str) -> Schema | None:
    """The schema of all records if every file has an extended index, else None; None also if a feature's type
    differs between files, so that no single plan fits."""
    if record_type == "bytes" or not all(map(_has_schema, map(store.summary, range(len(store.paths))))):
        return None
    try:
        return read_schema(store, record_type)
    except FeatureKindError:  # a batch that mixes two types raises anyway
        return None


def dense_plans(decoder: RecordDecoder, schema: Schema | None) -> tuple[FeaturePlan, FeaturePlan]:
    """The plans for decoding batches: the features asked for, or every feature if none was.

    In that case the schema of all data, if known, gives each column the same type in every batch.
    """
    plan, lists = decoder.plan, decoder.sequence_plan
    if schema is None:
        return plan, lists
    if plan.columns is None and len(schema):
        plan = dense_plan(schema)
    if decoder.record_type == "sequence_example" and lists.columns is None and len(schema.feature_lists):
        lists = dense_plan(schema.feature_lists)
    return plan, lists
