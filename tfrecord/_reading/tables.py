"""All records of a reader as one table, or as a stream of record batches of one schema."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from indexer.errors import DecodeError
from indexer.options import suggests_options
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord._columns.tables import TableOptions, Text, pandas_of, table_options
from tfrecord._optional import optional
from tfrecord._reading.decoder import RecordDecoder
from tfrecord._reading.index_columns import first_records
from tfrecord._reading.rows import merge_rows
from tfrecord._reading.view import RecordView
from tfrecord.schema import Schema, merge_schemas, typed_plan

__all__ = ["RECORD", "ReaderTables", "record_stream", "schema_of_all"]

# The column of records that are bytes.
RECORD = "record"
_ROWS = 4096
_ALL = 1 << 62


def record_stream(
    view: RecordView, columns: tuple[str, ...] | None, num_threads: int, text: Text, nullable: bool
) -> Any:
    """A pyarrow RecordBatchReader over all records of a view, in order and in bounded memory.

    If the features requested do not say all types, or `nullable` needs to know how many values there are, the
    files without an extended index are read once beforehand, so that all batches have the same schema.
    """
    pa = optional("pyarrow")
    view.prepare()
    decoder = copy.copy(view.decoder)
    schema = _full_schema(view, decoder, nullable)
    sample = _as_batch(decoder.batch(BytesColumn.from_list([]), _nowhere, columns))
    options = table_options(_names(sample), text=text, nullable=nullable)
    if schema is not None:
        single = {key for key, found in schema.items() if found.min_length == found.max_length == 1}
        options = replace(options, single=frozenset(single))
    arrow_schema = sample._to_arrow(options).schema
    batches = _record_batches(view, decoder, columns, num_threads, options)
    return pa.RecordBatchReader.from_batches(arrow_schema, batches)


def _full_schema(view: RecordView, decoder: RecordDecoder, nullable: bool) -> Schema | None:
    """The schema of all records, which also settles how `decoder` decodes; None if it is not needed."""
    if decoder.record_type == "bytes":
        return None
    is_sequence = decoder.record_type == "sequence_example"
    plan, lists = decoder.dense or (decoder.plan, decoder.sequence_plan)
    if not nullable and plan.is_typed and (lists.is_typed or not is_sequence):
        return None
    schema = schema_of_all(view)
    decoder.dense = (
        typed_plan(plan, schema),
        typed_plan(lists, schema.feature_lists) if is_sequence else lists,
    )
    return schema


def schema_of_all(view: RecordView) -> Schema:
    """The schema of all records of the files; those without an extended index are read once."""
    store, record_type = view.store, view.record_type
    parts = [
        (path, first_records(store, number, _ALL, record_type)) for number, path in enumerate(store.paths)
    ]
    return merge_schemas(parts, record_type)


def _record_batches(
    view: RecordView,
    decoder: RecordDecoder,
    columns: tuple[str, ...] | None,
    num_threads: int,
    options: TableOptions,
) -> Iterator[Any]:
    for rows in merge_rows(view.rows(), _ROWS):
        for batch in decoder.batches(rows, columns, False, num_threads):
            try:
                yield _as_batch(batch)._to_arrow(options)
            except DecodeError as error:  # invalid text; no rows are missing unless damage was skipped
                raise (
                    error.at(*rows.locate(error.record or 0)) if len(batch) == len(rows) else error
                ) from None
    view.end_pass(columns)


def _as_batch(batch: Any) -> ColumnBatch | SequenceBatch:
    """Records of bytes as a batch of one column. TypeError for batches that are not tables."""
    if isinstance(batch, BytesColumn):
        return ColumnBatch({RECORD: batch})
    if not isinstance(batch, (ColumnBatch, SequenceBatch)):
        raise TypeError(
            "nested features do not make a table: open the files with TFRecordReader, or take columns from "
            "read() or batches()"
        )
    return batch


def _names(batch: ColumnBatch | SequenceBatch) -> list[str]:
    return list(batch) if isinstance(batch, ColumnBatch) else [*batch.context, *batch.feature_lists]


def _nowhere(row: int) -> tuple[str, int]:
    raise IndexError(f"there is no row {row}: there are no rows at all")


class ReaderTables(ABC):
    """What a reader offers for all its records together."""

    _view: RecordView

    @abstractmethod
    def _threads(self, num_threads: int | None) -> int:
        """The number of threads that a call asks for, or the reader's default."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """What features there are."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in batches: those requested, else those of `schema`, sorted; for SequenceExamples
        those of the context, then those of the feature lists."""
        if self._view.record_type == "bytes":
            return ()
        decoder = self._view.decoder
        names = list(sorted(self.schema) if decoder.plan.names is None else decoder.plan.names)
        if self._view.record_type == "sequence_example":
            lists = decoder.sequence_plan.names
            names += sorted(self.schema.feature_lists) if lists is None else lists
        return tuple(names)

    @suggests_options
    def to_arrow(
        self,
        columns: Iterable[str] | None = None,
        *,
        text: Text = False,
        nullable: bool = False,
        num_threads: int | None = None,
    ) -> Any:
        """All records as a pyarrow Table, one row each, in order.

        Args:
            columns: names of the features to include; None: all that the reader decodes.
            text: True gives all byte strings as strings; a list of names, those of these features.
            nullable: a feature with exactly one value in every record that has it becomes a plain column, and
                any column is null where a record lacks the feature (as in the Parquet files of
                `tfrecord convert`).

        The types are those of `ColumnBatch.to_arrow`, and the same for all rows. Without an extended index
        and without features, settling them takes one more pass over the records. Byte strings are copied.
        Records of type bytes become one column ``record``. If damage is skipped, its rows are left out.

        Raises:
            FeatureKindError: a feature has different types in different records.
            DecodeError: text is not UTF-8.
        """
        return self._stream(columns, text, nullable, num_threads).read_all()

    @suggests_options
    def to_pandas(
        self, columns: Iterable[str] | None = None, *, text: Text = False, nullable: bool = False
    ) -> Any:
        """All records as a pandas DataFrame; arguments and errors as `to_arrow`.

        With ``nullable``, numbers have pandas' nullable types.
        """
        optional("pandas")
        return pandas_of(self.to_arrow(columns, text=text, nullable=nullable), nullable)

    @suggests_options
    def to_polars(
        self, columns: Iterable[str] | None = None, *, text: Text = False, nullable: bool = False
    ) -> Any:
        """All records as a polars DataFrame; arguments and errors as `to_arrow`."""
        return optional("polars").from_arrow(self.to_arrow(columns, text=text, nullable=nullable))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """All records as a stream in bounded memory, for pyarrow, polars, DuckDB and others."""
        return self._stream(None, False, False, None).__arrow_c_stream__(requested_schema)

    def _stream(self, columns: Iterable[str] | None, text: Text, nullable: bool, num_threads: Any) -> Any:
        names, threads = self._view.decoder.check_columns(columns), self._threads(num_threads)
        return record_stream(self._view, names, threads, text, bool(nullable))
