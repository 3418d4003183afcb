"""What a reader is made of, for the datasets: they fetch payloads and decode them in their own order."""

from __future__ import annotations

from typing import NamedTuple

from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.decoder import RecordDecoder
from tfrecord._reading.store import RecordStore

__all__ = ["ReaderParts"]


class ReaderParts(NamedTuple):
    """The parts of one reader.

    `store` gives payloads by their position over all files; `decoder` makes records or columns of them, after
    `TFRecordReader._prepare`; `selection` is the positions of a view's records, None where it is all.
    """

    store: RecordStore
    decoder: RecordDecoder
    selection: Int64Array | None

    def stored(self, positions: Int64Array) -> Int64Array:
        """Positions in the reader as positions in the store."""
        return positions if self.selection is None else self.selection[positions]
