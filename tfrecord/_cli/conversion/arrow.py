"""Parquet and Arrow IPC files to records and back.

A feature is a column: a plain one if every record that has it has one value, else a list. A record that lacks
the feature has null, an empty list is an empty list. SequenceExamples have two struct columns, `context` and
`feature_lists`. The schema's metadata say what the file was, so that converting back is exact.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from indexer.errors import TFRecordError
from indexer.framing import frame_record
from indexer.outputs import Outputs
from tfrecord._cli.conversion.layout import REST, ColumnKinds, Field, Layout, columns_of
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.from_arrow import column_of, named_arrays
from tfrecord._columns.tables import TableOptions
from tfrecord._kernels.record_type import RECORD_TYPES
from tfrecord._optional import optional
from tfrecord._reading.payload_batches import Batch, batch_of_frames
from tfrecord.writer import TFRecordWriter

RECORD = "record"
_PARTS = ("context", "feature_lists")
_METADATA = b"tfrecord"
_ROWS_READ = 4096
# A row group, or an Arrow batch, is written when it reaches this size.
_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


class _Dropped:
    """Keeps an abandoned Parquet writer from writing its footer long after its file was closed."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def close(self) -> None:
        self._writer.is_open = False


class ArrowSink:
    """Writes payloads to one Parquet (`parquet`) or Arrow IPC (`arrow`) file."""

    def __init__(self, outputs: Outputs, path: str, layout: Layout, text: frozenset[str], form: str) -> None:
        self._pa = optional("pyarrow")
        self._layout, self._text, self._form = layout, text, form
        single = frozenset(key for key, found in layout.context.items() if found.single)
        self._options = TableOptions(text=text, nullable=True, single=single)
        self._schema = self._make_schema()
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        self._file = outputs.open(path)
        self._writer: Any
        if form == "parquet":
            self._writer = optional("pyarrow.parquet").ParquetWriter(
                self._file, self._schema, compression="zstd"
            )
            outputs.keep(_Dropped(self._writer))
        else:
            self._writer = self._pa.ipc.new_file(self._file, self._schema)

    def _make_schema(self) -> Any:
        pa, layout = self._pa, self._layout
        fields = []
        if layout.record_type == "bytes":
            fields = [pa.field(RECORD, pa.binary(), nullable=False)]
        elif layout.record_type == "sequence_example":
            context = [pa.field(key, self._type(key, found)) for key, found in layout.context.items()]
            lists = [pa.field(key, pa.list_(self._item(key, found))) for key, found in layout.lists.items()]
            parts = zip(_PARTS, (context, lists), strict=True)
            fields = [pa.field(name, pa.struct(part), nullable=False) for name, part in parts if part]
        else:
            fields = [pa.field(key, self._type(key, found)) for key, found in layout.context.items()]
        if layout.rest or not fields:
            fields.append(pa.field(REST, pa.binary()))
        document = {"version": 1, "record_type": layout.record_type}
        return pa.schema(fields, metadata={_METADATA: json.dumps(document).encode()})

    def _value(self, key: str, kind: str | None) -> Any:
        pa = self._pa
        if kind == "bytes":
            return pa.string() if key in self._text else pa.binary()
        return pa.int64() if kind == "int64" else pa.float32()

    def _type(self, key: str, found: Field) -> Any:
        value = self._value(key, found.kind)
        return value if found.single else self._pa.list_(value)

    def _item(self, key: str, found: Field) -> Any:
        return self._pa.list_(self._value(key, found.kind))

    def write(self, payloads: BytesColumn) -> None:
        pa, layout = self._pa, self._layout
        rest: list[bytes | None] | None = None
        arrays: list[Any] = []
        if layout.record_type == "bytes":
            arrays = [self._cast(payloads.to_arrow(), pa.binary())]
        else:
            decoded, rest = columns_of(payloads, layout)
            if isinstance(decoded, SequenceBatch):
                for name, part in zip(_PARTS, (decoded.context, decoded.feature_lists), strict=True):
                    if name in self._schema.names:
                        kind = self._schema.field(name).type
                        children = [self._array(part, kind.field(i)) for i in range(kind.num_fields)]
                        arrays.append(pa.StructArray.from_arrays(children, fields=list(kind)))
            else:
                arrays = [self._array(decoded, item) for item in self._schema if item.name != REST]
        if REST in self._schema.names:
            arrays.append(pa.array(rest or [None] * len(payloads), pa.binary()))
        self._held.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += len(payloads)
        self._bytes += payloads.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _array(self, batch: ColumnBatch, item: Any) -> Any:
        """A column as an array of the field's type; null if a record lacks the feature."""
        return self._cast(
            self._options.array(item.name, batch[item.name], batch.present[item.name]), item.type
        )

    def _cast(self, array: Any, kind: Any) -> Any:
        try:
            return array.cast(kind)
        except self._pa.ArrowInvalid:  # from 64-bit offsets to those of 32 bits
            raise TFRecordError(
                "the values of one batch are larger than this format allows (2 GiB)"
            ) from None

    def _flush(self) -> None:
        if not self._held:
            return
        table = self._pa.Table.from_batches(self._held, self._schema)
        self._held, self._rows, self._bytes = [], 0, 0
        if self._form == "parquet":
            self._writer.write_table(table, row_group_size=_GROUP_ROWS)
        else:
            self._writer.write_table(table.combine_chunks())

    def close(self) -> None:
        self._flush()
        self._writer.close()


def read_arrow(path: str, form: str, kinds: ColumnKinds, round_floats: bool = False) -> Iterator[Batch]:
    """The rows of a Parquet or Arrow IPC file as records.

    Raises TFRecordError, with the column, for values that no feature can hold.
    """
    pa = optional("pyarrow")
    first = 0
    for table in _tables(path, form, pa):
        try:
            frames = _frames(table, partial(kinds.check, path), round_floats)
        except (TypeError, ValueError) as error:
            raise TFRecordError(f"{path}: rows from {first} on: {error}") from None
        yield batch_of_frames(path, first, frames)
        first += table.num_rows


def _tables(path: str, form: str, pa: Any) -> Iterator[Any]:
    try:
        if form == "parquet":
            with optional("pyarrow.parquet").ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=_ROWS_READ)
            return
        with pa.OSFile(path) as source:
            try:
                reader: Any = pa.ipc.open_file(source)
                stored = (reader.get_batch(i) for i in range(reader.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                stored = iter(pa.ipc.open_stream(source))
            for batch in stored:
                batch.validate(full=True)  # Arrow trusts what a damaged file says about its buffers
                for start in range(0, batch.num_rows, _ROWS_READ):
                    yield batch.slice(start, _ROWS_READ)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:  # the system's, not Arrow's
            raise
        raise TFRecordError(f"{path}: not a valid {form} file: {' '.join(str(error).split())}") from None


def _frames(table: Any, check: Callable[[str, Any], None], round_floats: bool) -> bytes:
    """The frames of a RecordBatch's rows; `check` gets the name and the values of each column."""
    arrays, record_type = named_arrays(table.schema.names, table.columns), _record_type(table.schema)
    rest = arrays.pop(REST).to_pylist() if REST in arrays else None

    def batch_of(arrays: dict[str, Any], prefix: str = "") -> ColumnBatch:
        columns, present = {}, {}
        for name, array in arrays.items():
            column, present[name] = column_of(array, name)
            columns[name] = _narrowed(name, column, round_floats)
            check(prefix + name, column)
        return ColumnBatch(columns, present, table.num_rows)

    if record_type == "bytes":
        column = column_of(arrays[RECORD], RECORD)[0] if RECORD in arrays else None
        if not isinstance(column, BytesColumn):
            raise ValueError(f"records of bytes need a binary column {RECORD!r}")
        return b"".join(frame_record(column.view(i)) for i in range(len(column)))
    if record_type == "example":
        return encode_rows(batch_of(arrays), rest)
    parts = [batch_of(_children(arrays, name), f"{name}.") for name in _PARTS]
    return encode_rows(SequenceBatch(*parts), rest)


def _record_type(schema: Any) -> str:
    """The record type that a file's metadata give; ValueError if they give no valid one."""
    metadata = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
    found = metadata.get("record_type", "example") if isinstance(metadata, dict) else None
    if found not in RECORD_TYPES[1:]:
        raise ValueError("the file's metadata 'tfrecord' give no valid record type")
    return str(found)


def _children(arrays: dict[str, Any], name: str) -> dict[str, Any]:
    """The columns of a struct column; none if there is no such column."""
    if name not in arrays:
        return {}
    if not optional("pyarrow").types.is_struct(arrays[name].type):
        raise ValueError(f"SequenceExamples need a struct column {name!r}, not {arrays[name].type}")
    return named_arrays([child.name for child in arrays[name].type], arrays[name].flatten())


def encode_rows(batch: Any, rest: list[bytes | None] | None) -> bytes:
    """The frames of a batch's rows; a row's rest is added to its message."""
    held = io.BytesIO()
    writer = TFRecordWriter(held)
    writer.write_batch(batch)
    writer.flush()
    frames = held.getvalue()
    if rest is None or not any(rest):
        return frames
    payloads = batch_of_frames("", 0, frames).payloads
    return b"".join(frame_record(payloads[i] + (rest[i] or b"")) for i in range(len(payloads)))


def _narrowed(name: str, column: Any, round_floats: bool) -> Any:
    """float64 as the float32 that a feature holds: exact, unless rounding was requested."""
    if isinstance(column, Ragged):
        return Ragged(_narrowed(name, column.values, round_floats), column.row_splits)
    if isinstance(column, BytesColumn) or column.dtype != np.float64:
        return column
    with np.errstate(over="ignore"):
        narrow = column.astype(np.float32)
    wrong = (narrow != column) & ~np.isnan(column)
    if round_floats:
        wrong &= np.isinf(narrow)
    if wrong.any():
        value = column[wrong].flat[0].item()
        hint = (
            "is too large for a float"
            if round_floats
            else "is not exact as float32; --round-floats takes the nearest"
        )
        raise ValueError(f"column {name!r}: {value!r} {hint}")
    return narrow
