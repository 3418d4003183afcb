"""The records that a reader reads: which ones, where their bytes come from, and how they are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexer.errors import MissingFeatureError, TFRecordError
from tfrecord._columns.arrays import Int64Array, as_positions
from tfrecord._reading.decoder import Batch, RecordDecoder
from tfrecord._reading.index_columns import dense_plans, find_type, known_schema, read_schema
from tfrecord._reading.missing import check_known, in_no_record, warn_of_absent
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.store import Fetched, RecordStore

__all__ = ["RecordView"]

_WINDOW = 512  # records of a selection that are fetched at once when it is iterated


@dataclass(frozen=True, eq=False)
class RecordView:
    """The records of a reader or dataset.

    `store` returns payloads by their position over all files. `decoder` turns them into records or columns.
    `selection` holds the store positions of the view's records, int64 (n,) and read-only; None means all.
    The methods take positions within the view.
    """

    store: RecordStore
    decoder: RecordDecoder
    selection: Int64Array | None = None

    def __post_init__(self) -> None:
        self.decoder.offset_of = self.store.offset_of

    def __len__(self) -> int:
        return len(self.store) if self.selection is None else len(self.selection)

    @property
    def length_known(self) -> bool:
        """Whether `len` is known without a pass over the data."""
        return self.selection is not None or self.store.has_index

    def select(self, positions: Int64Array) -> RecordView:
        """The view of some of these records, in this order."""
        selection = self.stored(positions)
        if selection is positions:
            selection = positions.copy()
        selection.setflags(write=False)
        return replace(self, selection=selection)

    def positions(self, positions: Any) -> Int64Array:
        """Positions as users give them (list, array, mask, range, slice), checked, as an array."""
        if isinstance(positions, slice):
            return np.arange(*positions.indices(len(self)), dtype=np.int64)
        if isinstance(positions, str | bytes | Set | Mapping) or not hasattr(positions, "__len__"):
            raise TypeError(
                "positions are a list or array of integers, a slice or a mask, not "
                f"{type(positions).__name__}; reader[5] is one record, and reader[:][name] is a column"
            )
        return as_positions(positions, len(self), "records")

    def stored(self, positions: Int64Array) -> Int64Array:
        """Positions in the view as positions in the store."""
        return positions if self.selection is None else self.selection[positions]

    def locate(self, position: int) -> tuple[str, int]:
        """The path of a record, and its number within that file."""
        number, record = self.store.locate(self._stored_one(position))
        return self.store.paths[number], record

    def _stored_one(self, position: int) -> int:
        return position if self.selection is None else int(self.selection[position])

    # ---- bytes ---------------------------------------------------------------------------------------------

    def fetch_one(self, position: int) -> tuple[memoryview, int, int]:
        """Payload, file number, record number; damage always raises."""
        return self.store.fetch_one(self._stored_one(position))

    def fetch(self, positions: Int64Array) -> RowBatch:
        """The payloads at these positions; damaged ones are left out if damage is skipped."""
        return self._located(self.store.fetch(self.stored(positions)))

    def fetch_in_order(self, positions: Int64Array) -> Iterator[RowBatch]:
        """`fetch` in one or more parts: if it raises, the payloads before the damage come first."""
        return map(self._located, self.store.fetch_in_order(self.stored(positions)))

    def _located(self, fetched: Fetched) -> RowBatch:
        return RowBatch(fetched.payloads, self.store.paths, *self.store.places(fetched.positions))

    def rows(self) -> Iterator[RowBatch]:
        """All payloads in order, as they arrive; good ones come before the damage after them raises."""
        if self.selection is None:
            yield from self.store.rows()
            return
        for first in range(0, len(self), _WINDOW):
            yield from self.fetch_in_order(np.arange(first, min(first + _WINDOW, len(self)), dtype=np.int64))

    def ready_batches(
        self, size: int, columns: tuple[str, ...] | None, drop_last: bool
    ) -> Iterator[Batch] | None:
        """All records as batches in stored order, where payloads are decoded elsewhere; else None."""
        return None

    def sizes(self, positions: Int64Array) -> Int64Array:
        """Payload lengths, int64."""
        return self.store.sizes(self.stored(positions))

    # ---- decoding ------------------------------------------------------------------------------------------

    @property
    def record_type(self) -> str:
        """The record type; examines some records if it is not known yet."""
        decoder = self.decoder
        if decoder.record_type is None:
            found = find_type(self.store, decoder.declared)
            decoder.record_type = "sequence_example" if decoder.wants_lists else found
        return decoder.record_type

    def prepare(self) -> None:
        """Settle the record type and the form of batches, and check that requested features exist.

        Raises:
            MissingFeatureError: the indexes show that no record has a feature that was requested by name.
        """
        decoder = self.decoder
        record_type = self.record_type
        if decoder.dense is not None:
            return
        schema = known_schema(self.store, record_type)
        if schema is not None and schema.num_records > schema.num_invalid:
            decoder.keys = frozenset((*schema, *schema.feature_lists))
            if not decoder.allow_missing:
                lists = decoder.sequence_plan if record_type == "sequence_example" else None
                check_known(decoder.plan, lists, schema, self.store.paths[0])
                decoder.seen.warned = True
        decoder.dense = dense_plans(decoder, schema)

    @property
    def is_whole(self) -> bool:
        """Whether the view has every record of its files."""
        return self.selection is None or len(np.unique(self.selection)) == len(self.store)

    def end_pass(self, columns: tuple[str, ...] | None = None) -> None:
        """Call after all records of the view were read, with the requested ``columns``: warns, once, if no
        record of the files has one of them."""
        absent = self.absent(columns)
        if absent and self.is_whole:
            self.warn_of_absent(absent)

    def absent(self, columns: tuple[str, ...] | None = None) -> list[str]:
        """The requested features to warn of, if the records read so far are all that the files have."""
        decoder = self.decoder
        if decoder.allow_missing or decoder.seen.warned or decoder.record_type == "bytes":
            return []
        # A damaged record may have had the feature.
        return [] if decoder.policy.num_skipped else decoder.seen.absent(columns)

    def warn_of_absent(self, names: list[str]) -> None:
        """Warn that no record has these features, if there are any."""
        if names:
            self.decoder.seen.warned = True
            warn_of_absent(self.store.paths[0], names, *self._known_keys())

    def in_no_record(self, key: str) -> MissingFeatureError:
        """The error for a feature that none of these records has."""
        return in_no_record(key, self.store.paths[0], *self._known_keys())

    def _known_keys(self) -> tuple[list[str], list[str]]:
        """Names of features and of feature lists, for hints; from the first records if no index has them."""
        try:
            schema = read_schema(self.store, self.record_type)
        except TFRecordError:
            return [], []
        return [*schema], [*schema.feature_lists]

    def read(
        self, positions: Int64Array, columns: tuple[str, ...] | None = None, num_threads: int | None = None
    ) -> Batch:
        """The records at these positions as columns; damaged ones are left out if damage is skipped."""
        self.prepare()
        rows = self.fetch(positions)
        return self.decoder.batch(rows.payloads, rows.locate, columns, num_threads)
