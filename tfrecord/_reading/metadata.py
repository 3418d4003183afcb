"""The metadata of an index, which may come from anybody: whether it has the form that this library writes."""

from __future__ import annotations

from typing import Any, TypeVar

from indexer.errors import IndexFileError
from indexer.index import IndexSummary, RecordIndex
from tfrecord._kernels.record_type import SAMPLE
from tfrecord.schema import INVALID_KEPT, NO_VALUES

__all__ = ["check_metadata"]

_Index = TypeVar("_Index", RecordIndex, IndexSummary)


def check_metadata(index: _Index) -> _Index:
    """The index, if its metadata has the form that `SchemaCollector` makes; else `IndexFileError`."""
    kind, schema = index.metadata.get("record_type"), index.metadata.get("schema")
    looked = index.metadata.get("looked_at")
    if not (kind is None or isinstance(kind, str)) or not (
        schema is None or _is_schema(schema, len(index), index.stream_size) and _is_looked_at(looked)
    ):
        raise IndexFileError(index.path, index.index_path, "its schema of the records is not valid")
    return index


def _is_schema(schema: Any, records: int, size: int) -> bool:
    if not isinstance(schema, dict) or schema.get("num_records") != records:
        return False
    invalid, first = schema.get("num_invalid", 0), schema.get("invalid", [])
    if not _is_count(invalid, records) or not isinstance(first, list) or len(first) > INVALID_KEPT:
        return False
    if not all(_is_count(record, records - 1) for record in first):
        return False
    tables = schema.get("features"), schema.get("feature_lists")
    return all(
        isinstance(table, dict)
        and all(isinstance(key, str) and _is_entry(entry, records, size) for key, entry in table.items())
        for table in tables
    )


def _is_count(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_looked_at(value: Any) -> bool:
    """Whether this is the content of a `RecordType` apart from its name; 2.0.0 stored nothing."""
    return value is None or (
        isinstance(value, list)
        and len(value) == 3
        and all(_is_count(number, SAMPLE) for number in value[:2])
        and isinstance(value[2], str)
    )


def _is_entry(entry: Any, records: int, size: int) -> bool:
    """Whether this is [bits of types, records that have it, min and max values, min and max per step].

    A value or step takes at least one byte, so dense columns of such a schema are no larger than the data
    allows.
    """
    if not isinstance(entry, list) or len(entry) != 6 or any(type(number) is not int for number in entry):
        return False
    bits, present, least, most, least_step, most_step = entry
    if most >= 0 and least * present > size:
        return False
    ranges = (bits, 0, 15), (present, 0, records), (least, 0, NO_VALUES), (most, -1, size)
    steps = (least_step, 0, NO_VALUES), (most_step, -1, size)
    return all(low <= number <= high for number, low, high in (*ranges, *steps))
