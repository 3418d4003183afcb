"""`RemoteView`: records that the server decodes where it can, so that only the wanted columns travel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfrecord._columns.arrays import Int64Array
from tfrecord._columns.batch import ColumnBatch, SequenceBatch, concat
from tfrecord._optional import optional
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import Batch
from tfrecord._reading.view import RecordView
from tfrecord.flight.store import RemoteStore
from tfrecord.flight.tickets import feature_words

__all__ = ["RemoteView"]

# Every column costs some time on its way, so that more of them are sooner decoded here from payloads.
_FEW = 8


class RemoteView(RecordView):
    """The records of a remote reader.

    The server decodes if few columns are wanted, or less than half of those that there are, and if that gives
    what this process would get from the payloads: the type of every column is known, and damage raises.
    """

    def read(
        self, positions: Int64Array, columns: tuple[str, ...] | None = None, num_threads: int | None = None
    ) -> Batch:
        what = self._decoded_there(columns)
        if what is None or not len(positions):
            return super().read(positions, columns, num_threads)
        parts = [_columns(*part) for part in self._store.ask(what, self.stored(positions))]
        return self._seen(parts, columns)

    def ready_batches(
        self, size: int, columns: tuple[str, ...] | None, drop_last: bool
    ) -> Iterator[Batch] | None:
        what = None if self.selection is not None else self._decoded_there(columns)
        return None if what is None else self._batches(what, size, columns, drop_last)

    def _batches(
        self, what: Mapping[str, Any], size: int, columns: tuple[str, ...] | None, drop_last: bool
    ) -> Iterator[Batch]:
        held: list[Any] = []
        count = 0
        failure: Exception | None = None
        found = self._store.scan({**what, "batch_size": size}, 0, len(self), 1, DamagePolicy())
        while True:
            try:
                part = next(found, None)
            except Exception as error:  # raised below, after the good records
                failure, part = error, None
            if part is None:
                break
            made = _columns(*part[1:])
            while len(made):
                taken = made[: size - count]
                made = made[size - count :]
                held.append(taken)
                count += len(taken)
                if count == size:
                    yield self._seen(held, columns)
                    held, count = [], 0
        if held and not drop_last:
            yield self._seen(held, columns)
        if failure is not None:
            raise failure
        if not held or not drop_last:
            self.end_pass(columns)

    def _seen(self, parts: list[Any], columns: tuple[str, ...] | None) -> Batch:
        batch: Any = parts[0] if len(parts) == 1 else concat(parts)
        self.decoder.seen.batch(batch, columns)
        return batch  # type: ignore[no-any-return]

    @property
    def _store(self) -> RemoteStore:
        assert isinstance(self.store, RemoteStore)
        return self.store

    def _decoded_there(self, columns: tuple[str, ...] | None) -> dict[str, Any] | None:
        """What a ticket says of the columns; None if this process decodes."""
        self.prepare()
        decoder = self.decoder
        is_sequence = decoder.record_type == "sequence_example"
        same_type = decoder.record_type == self._store.known["record_type"] != "bytes"
        if type(decoder).__name__ != "RecordDecoder" or not same_type or decoder.policy.skips:
            return None
        plan, lists = decoder.dense or (decoder.plan, decoder.sequence_plan)
        if decoder.allow_missing or (columns is not None and is_sequence):
            return None
        if columns is not None:
            if plan.columns is None or any(name not in (plan.names or ()) for name in columns):
                return None
            plan = plan.select(columns)
        plans = {"features": plan, "sequence_features": lists} if is_sequence else {"features": plan}
        wanted = sum(len(one.columns or ()) for one in plans.values())
        known = self._store.known["schema"] or {"features": {}}
        if wanted > max(_FEW, len(known["features"]) / 2):
            return None
        found = {}
        for name, one in plans.items():
            if not one.columns or any(column.kind is None or column.raw for column in one.columns):
                return None
            found[name] = feature_words(one)
            if found[name] is None:
                return None
        return found


def _columns(batch: Any, told: Mapping[str, Any]) -> Any:
    """The columns of a record batch from the server, which is checked first."""
    pa = optional("pyarrow")
    batch.validate(full=True)
    absent = told.get("absent", {})
    if batch.schema.names and pa.types.is_struct(batch.schema.types[0]):
        halves = [pa.RecordBatch.from_struct_array(column) for column in batch.columns]
        names = batch.schema.names
        made = [_half(half, absent, f"{name}/") for half, name in zip(halves, names, strict=True)]
        return SequenceBatch(*made)
    return _half(batch, absent, "")


def _half(batch: Any, absent: Mapping[str, list[int]], prefix: str) -> ColumnBatch:
    made = ColumnBatch.from_arrow(batch)
    for name, rows in absent.items():
        name = name.removeprefix(prefix)
        if name in made:
            present = np.array(made.present[name])
            present[rows] = False
            made._present[name] = present
    return made
