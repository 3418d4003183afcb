"""What a reader reads: which records, where their bytes come from, and how they are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfrecord._columns.arrays import Int64Array, as_positions
from tfrecord._reading.decoder import Batch, RecordDecoder
from tfrecord._reading.index_columns import dense_plans, find_type
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.store import RecordStore

__all__ = ["RecordView"]

_WINDOW = 512  # records of a selection that are fetched at once when it is iterated


@dataclass(frozen=True, eq=False)
class RecordView:
    """The records of a reader or dataset.

    `store` gives payloads by their position over all files. `decoder` turns them into records or columns.
    `selection` holds the store positions of the view's records, int64 (n,) and read-only; None means all.
    Positions that the methods take count within the view.
    """

    store: RecordStore
    decoder: RecordDecoder
    selection: Int64Array | None = None

    def __len__(self) -> int:
        return len(self.store) if self.selection is None else len(self.selection)

    @property
    def length_known(self) -> bool:
        """Whether `len` needs no pass over data."""
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
            raise TypeError(f"positions are integers, a slice or a mask, not {type(positions).__name__}")
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
        """The payloads at these positions; the damaged ones are left out where damage is skipped."""
        fetched = self.store.fetch(self.stored(positions))
        return RowBatch(fetched.payloads, self.store.paths, *self.store.places(fetched.positions))

    def rows(self) -> Iterator[RowBatch]:
        """All payloads in order, as they come; the good ones before damage come before it raises."""
        store = self.store
        if self.selection is None:
            for number in range(len(store.paths)):
                for run in store.stream(number):
                    yield RowBatch.of_run(run, store.paths, number)
            return
        for first in range(0, len(self.selection), _WINDOW):
            for fetched in store.fetch_in_order(self.selection[first : first + _WINDOW]):
                yield RowBatch(fetched.payloads, store.paths, *store.places(fetched.positions))

    def sizes(self, positions: Int64Array) -> Int64Array:
        """Payload lengths, int64."""
        sizes = np.empty(len(positions), np.int64)
        numbers, records = self.store.places(self.stored(positions))
        for number in np.unique(numbers).tolist():
            here = numbers == number
            sizes[here] = self.store.index(number).lengths[records[here]]
        return sizes

    # ---- decoding ------------------------------------------------------------------------------------------

    @property
    def record_type(self) -> str:
        """What the records are; looks at the first ones where nothing has said so yet."""
        if self.decoder.record_type is None:
            self.decoder.record_type = find_type(self.store, wants_features=self.decoder.wants_features)
        return self.decoder.record_type

    def prepare(self) -> None:
        """Settle what the records are, and how batches of them look."""
        self.decoder.record_type = self.record_type
        if self.decoder.dense is None:
            self.decoder.dense = dense_plans(self.decoder, self.store)

    def read(
        self, positions: Int64Array, columns: tuple[str, ...] | None = None, num_threads: int | None = None
    ) -> Batch:
        """The records at these positions as columns; those of damaged records are left out where skipped."""
        rows = self.fetch(positions)
        self.prepare()
        return self.decoder.batch(rows.payloads, rows.locate, columns, num_threads)
