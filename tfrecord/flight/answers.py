"""From a ticket to record batches: which records, in which order, and as which columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from indexer.errors import MissingFeatureError
from indexer.options import known_names
from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord._columns.decoding import forget_decoders
from tfrecord._columns.tables import TableOptions
from tfrecord._optional import optional
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import RecordDecoder
from tfrecord._reading.tables import RECORD
from tfrecord._reading.view import RecordView
from tfrecord.features import NAMED, FeaturePlan
from tfrecord.flight.served import Generation
from tfrecord.flight.tickets import Ticket, matches
from tfrecord.sampling.orders import shuffled_order
from tfrecord.sampling.share import Share
from tfrecord.schema import FeatureSchema, dense_plan

__all__ = ["Answer", "Limits"]

# What stands in every index: the bytes of a payload, and where its frame begins in its file (decompressed).
FRAME_COLUMNS = ("len()", "offset()")
# Payload bytes of a record batch, unless one record is larger. The number of calls bounds what is under way.
_CHUNK_BYTES = 8 << 20
_CHUNK_ROWS = 4096


class Limits(NamedTuple):
    """Of a record batch of an answer."""

    max_rows: int = 65_536
    max_bytes: int = 256 << 20


class Answer:
    """Everything about a ticket but its positions, made once for all messages of an exchange.

    Raises:
        KeyError, TFRecordError: the features or columns are not those of the data.
        ValueError: a row of the answer would be larger than allowed.
    """

    def __init__(self, generation: Generation, view: RecordView, ticket: Ticket, limits: Limits) -> None:
        pa = optional("pyarrow")
        self.generation, self.limits = generation, limits
        self._index: dict[str, Any] = {}
        self._names: tuple[str, ...] = ()
        self._raw = ticket.raw or (view.record_type == "bytes" and not ticket.index)
        self._columns: tuple[str, ...] | None = None
        self._most_rows = limits.max_rows
        self._is_heavy = ticket.is_heavy
        if ticket.index:
            columns = generation.reader.index.columns
            self._index = {name: columns[name] for name in ticket.index if name not in FRAME_COLUMNS}
            self._names = ticket.index
            self.view = view
            self.schema = self._index_batch(np.zeros(0, np.int64)).schema
        elif self._raw:
            self.view = replace(view, decoder=_decoder(view, ticket, "bytes"))
            self._columns = self.view.decoder.check_columns(ticket.columns)
            self.schema = pa.schema([(RECORD, pa.large_binary())])
        else:
            self.view = _decoding(generation, view, ticket)
            plans = self.view.decoder.dense or ()
            row = sum(_row_bytes(plan) for plan in plans)
            if row > limits.max_bytes:
                raise ValueError(
                    f"a row of these features has {row:,} bytes; this server sends at most max_bytes"
                )
            most = min(limits.max_bytes, 8 * _CHUNK_BYTES)
            self._most_rows = min(limits.max_rows, max(1, most // max(row, 1)))
            self._columns = self.view.decoder.check_columns(ticket.columns)
            empty = self.view.decoder.batch(BytesColumn.from_list([]), _nowhere, self._columns)
            self.schema = _arrow_batch(empty)[0].schema
            self._forget()

    def batches(self, ticket: Ticket) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Record batches in the order that the ticket asks for, each with what the client is told about it:
        ``rows``, ``absent`` (rows of dense columns that hold a default), ``padding`` (rows at its end).

        Good records come before the error of one that is not.
        """
        try:
            yield from self._batches(ticket)
        finally:
            self._forget()

    def _batches(self, ticket: Ticket) -> Iterator[tuple[Any, dict[str, Any]]]:
        view = self.view
        if ticket.where:
            view = view.select(self._matching(view, ticket))
        for positions, padding in _chunks(view, ticket, self._most_rows):
            if self._names:
                yield self._index_batch(view.stored(positions)), {"rows": len(positions)}
                continue
            done = 0
            for stop in self._cuts(view, positions):
                pad = max(0, min(stop - (len(positions) - padding), stop - done))
                for batch, told in self._some(view, positions[done:stop]):
                    yield batch, told | ({"padding": min(pad, told["rows"])} if pad else {})
                done = stop

    def _forget(self) -> None:
        """Clients must not fill the memory with what is kept of features that nobody asks for again."""
        if self._is_heavy:
            forget_decoders()

    def _index_batch(self, positions: Int64Array) -> Any:
        """Of these positions of the store: columns of the index, and sizes and offsets of the frames."""
        pa, store = optional("pyarrow"), self.view.store
        arrays = []
        for name in self._names:
            if name == "len()":
                arrays.append(pa.array(store.sizes(positions)))
            elif name == "offset()":
                numbers, records = store.places(positions)
                offsets = [int(store.index(n).offsets[r]) for n, r in zip(numbers, records, strict=True)]
                arrays.append(pa.array(offsets, pa.int64()))
            else:
                arrays.append(_index_array(self._index[name], positions))
        return pa.RecordBatch.from_arrays(arrays, list(self._names))

    def _matching(self, view: RecordView, ticket: Ticket) -> Int64Array:
        keep = np.ones(len(view), np.bool_)
        columns = self.generation.reader.index.columns
        for name, sign, wanted in ticket.where:
            column = columns[name]
            keep &= matches(column if view.selection is None else column[view.selection], sign, wanted, name)
        return np.flatnonzero(keep).astype(np.int64, copy=False)

    def _cuts(self, view: RecordView, positions: Int64Array) -> Iterator[int]:
        """Where to cut positions so that the payloads of a part have few bytes."""
        ends = np.cumsum(view.sizes(positions))
        limit = min(_CHUNK_BYTES, self.limits.max_bytes)
        start, before = 0, 0
        while start < len(positions):
            stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
            size = int(ends[stop - 1]) - before
            if size > self.limits.max_bytes:
                path, record = view.locate(int(positions[start]))
                raise ValueError(
                    f"{self.generation.names[path]}: record {record} has {size:,} bytes, more than this "
                    f"server sends at once (max_bytes={self.limits.max_bytes:,})"
                )
            yield stop
            start, before = stop, int(ends[stop - 1])

    def _some(self, view: RecordView, positions: Int64Array) -> Iterator[tuple[Any, dict[str, Any]]]:
        if self._raw:
            for found in view.store.fetch_in_order(view.stored(positions)):
                yield _arrow_batch(found.payloads)[0], {"rows": len(found.payloads)}
            return
        for rows in view.fetch_in_order(positions):
            for batch in view.decoder.batches(rows, self._columns, False, 1):
                made, absent = _arrow_batch(batch)
                yield from self._within_limits(made, absent)

    def _within_limits(
        self, batch: Any, absent: dict[str, list[int]]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The batch, in halves if its columns are much larger than its payloads were."""
        rows = batch.num_rows
        if rows > 1 and batch.nbytes > self.limits.max_bytes and not absent:
            yield from self._within_limits(batch.slice(0, rows // 2), absent)
            yield from self._within_limits(batch.slice(rows // 2), absent)
            return
        yield batch, {"rows": rows} | ({"absent": absent} if absent else {})


def _decoder(view: RecordView, ticket: Ticket, record_type: str) -> RecordDecoder:
    decoder = RecordDecoder(ticket.plan, ticket.sequence_plan, "auto", DamagePolicy())
    decoder.record_type = record_type
    return decoder


def _decoding(generation: Generation, view: RecordView, ticket: Ticket) -> RecordView:
    """The view, with a decoder for the features of the ticket whose columns have the same types in each
    batch."""
    record_type = view.record_type
    is_sequence = record_type == "sequence_example"
    if ticket.sequence_plan is not None and not is_sequence:
        raise ValueError("sequence_features needs SequenceExamples, which these records are not")
    decoder = _decoder(view, ticket, record_type)
    plan, lists, schema = decoder.plan, decoder.sequence_plan, generation.known_schema
    plans = (plan, lists) if is_sequence else (plan,)
    if any(one.columns is None or any(column.kind is None for column in one.columns) for one in plans):
        schema = generation.full_schema()
    if schema is not None:
        plan = _settled(plan, schema)
        lists = _settled(lists, schema.feature_lists) if is_sequence else lists
        decoder.keys = frozenset((*schema, *schema.feature_lists))
    decoder.dense = plan, lists
    return replace(view, decoder=decoder)


def _settled(plan: FeaturePlan, schema: Mapping[str, FeatureSchema]) -> FeaturePlan:
    """The plan with a type for each column that some record has.

    Raises:
        MissingFeatureError: no record has a feature that was named.
    """
    known = dense_plan(schema)
    if plan.columns is None:
        return known
    types = {column.key: column for column in known.columns or ()}
    columns = []
    for column in plan.columns:
        found = types.get(column.key)
        if found is None and column.absent == NAMED:
            raise MissingFeatureError(f"is in no record{known_names(column.key, schema)}", key=column.key)
        if column.kind is None and found is not None:
            column = replace(column, kind=found.kind, dtype=found.dtype)
        columns.append(column)
    return FeaturePlan(tuple(columns))


def _row_bytes(plan: FeaturePlan) -> int:
    """Bytes of a row that the request decides, and not the data."""
    size = 0
    for column in plan.columns or ():
        if column.shape is None:
            size += 16  # where the row ends, here and in Arrow
        else:
            width = 8 if column.dtype is None else np.dtype(column.dtype).itemsize
            size += width * math.prod(map(abs, column.shape))
    return size


def _nowhere(row: int) -> tuple[str, int]:
    raise IndexError(row)


def _chunks(view: RecordView, ticket: Ticket, most: int) -> Iterator[tuple[Int64Array, int]]:
    """Positions of each record batch, and how many at the end of them are padding."""
    step = min(ticket.batch_size or _CHUNK_ROWS, most)
    if ticket.order is not None:
        yield from _ordered(view, ticket, step)
    elif ticket.positions is not None:
        positions = view.positions(ticket.positions)
        for first in range(0, len(positions), step):
            yield positions[first : first + step], 0
    else:
        chosen = range(*(ticket.slice or slice(None)).indices(len(view)))
        for first in range(0, len(chosen), step):
            part = chosen[first : first + step]
            yield np.arange(part.start, part.stop, part.step, dtype=np.int64), 0


def _ordered(view: RecordView, ticket: Ticket, step: int) -> Iterator[tuple[Int64Array, int]]:
    asked = ticket.order
    assert asked is not None
    order = shuffled_order(len(view), asked.shuffle, None, seed=asked.seed, epoch=asked.epoch)
    share = Share(len(view), asked.rank, asked.world_size, split=asked.split)
    stop = len(share)
    if asked.drop_last:
        stop -= stop % step
    for first in range(asked.start, stop, step):
        places, padding = share.wrap(share.places(first, min(first + step, stop)))
        yield order.positions(places), int(padding.sum())


# ---- Arrow ---------------------------------------------------------------------------------------------


def _arrow_batch(batch: Any) -> tuple[Any, dict[str, list[int]]]:
    """The record batch of columns, and the rows of dense columns that hold a default."""
    pa = optional("pyarrow")
    if isinstance(batch, BytesColumn):
        return pa.RecordBatch.from_arrays([batch.to_arrow()], [RECORD]), {}
    options = TableOptions()
    if isinstance(batch, ColumnBatch):
        return batch._to_arrow(options), _absent(batch, "")
    assert isinstance(batch, SequenceBatch)
    halves = (("context", batch.context), ("feature_lists", batch.feature_lists))
    arrays, absent = [], {}
    for name, half in halves:
        made = half._to_arrow(options)
        kind = pa.struct([made.schema.field(place) for place in range(made.num_columns)])
        arrays.append(pa.Array.from_buffers(kind, len(batch), [None], children=made.columns))
        absent.update(_absent(half, f"{name}/"))
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in halves]), absent


def _absent(batch: ColumnBatch, prefix: str) -> dict[str, list[int]]:
    found = {}
    for name, column in batch.items():
        present = batch.present[name]
        if (isinstance(column, np.ndarray) or isinstance(column, BytesColumn)) and not present.all():
            found[prefix + name] = np.flatnonzero(~present).tolist()
    return found


def _index_array(column: Any, positions: Int64Array) -> Any:
    """Values of an index column; missing ones are null."""
    pa = optional("pyarrow")
    values = np.ascontiguousarray(np.ma.getdata(column)[positions])
    kind = pa.from_numpy_dtype(values.dtype) if values.dtype.kind != "S" else pa.binary(values.dtype.itemsize)
    validity = None
    if isinstance(column, np.ma.MaskedArray):
        validity = pa.py_buffer(np.packbits(~np.ma.getmaskarray(column)[positions], bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])
