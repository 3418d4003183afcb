"""`TFRecordMapDataset`: any record by position, for samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset

from indexer.compression import Compression
from indexer.errors import TFRecordError
from tfrecord._columns.arrays import as_position, is_integer
from tfrecord._reading.call_text import call_text
from tfrecord._reading.damage import OnError
from tfrecord._reading.decoder import LOCATED_ERRORS
from tfrecord.reader import TFRecordReader
from tfrecord.torch._options import (
    ReaderOptions,
    asked_features,
    check_transform,
    known_options,
    open_source,
)
from tfrecord.torch._producer import Finish
from tfrecord.torch._tf_data import TFDataHints
from tfrecord.torch._workers.errors import for_loader

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TFRecordMapDataset"]


class TFRecordMapDataset(TFDataHints, Dataset[Any]):
    """Records by position: `len`, `[i]`, `[-1]`, slices; for `DataLoader(shuffle=True)` and every sampler.

    Args: as in `TFRecordDataset`. `transform` is called with each record.

    A loader's batch is fetched by `__getitems__` in one step and decoded by the columnar kernel if the
    types of all features are given. Compressed files with an index are read through its points at
    first, then, as all others at once, from a copy in temporary space, which each worker makes.
    """

    def __init__(
        self,
        data_path: Any,
        index_path: Any = None,
        description: Any = None,
        transform: Callable[[Any], Any] | None = None,
        sequence_description: Any = None,
        compression_type: Compression | None = None,
        *,
        features: Any = None,
        sequence_features: Any = None,
        on_error: OnError = "raise",
        max_skips: int | None = None,
        **reader_options: Unpack[ReaderOptions],
    ) -> None:
        self._call = call_text(type(self).__name__, TFRecordMapDataset.__init__, locals())
        super().__init__()
        asked = asked_features(features, description, sequence_features, sequence_description)
        self._reader, self.source = open_source(
            data_path,
            index_path,
            asked,
            compression_type,
            on_error=on_error,
            max_skips=max_skips,
            **known_options(TFRecordMapDataset.__init__, reader_options),
        )
        if self.source.skips:
            raise ValueError("a map-style dataset cannot skip records: on_error must be 'raise'")
        check_transform(transform)
        self.finish = Finish(transform)

    @property
    def reader(self) -> TFRecordReader:
        """The files; `reader.index.columns["label"]` are values stored in the index, for samplers."""
        return self._reader

    def __repr__(self) -> str:
        return self._call

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        """A record for an integer (negative ones from the end); a list of records for a slice or a list."""
        # A scalar tensor has a shape, (), and is an index.
        if is_integer(index) or (getattr(index, "ndim", None) == 0 and hasattr(index, "__index__")):
            return self._records(np.array([as_position(index, len(self), "records")]))[0]
        return self._records(self.source.view.positions(index))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The records of a batch, fetched at once."""
        return self._records(self.source.view.positions(list(indices)))

    def _records(self, positions: Any) -> list[Any]:
        try:
            return self._decoded(positions)
        except TFRecordError as error:
            carried = for_loader(error)
            if carried is error:
                raise
            raise carried from error

    def _decoded(self, positions: Any) -> list[Any]:
        source = self.source
        source.prepare()
        rows = source.fetch(positions)
        made: Iterable[Any] | None = None
        if len(rows) > 1:
            try:
                made = source.view.decoder.dicts(rows.payloads)
            except LOCATED_ERRORS:  # the record that is at fault is found below
                pass
        if made is None:
            made = source.decode_rows(rows)
        return [self.finish.record(record, False, rows.locate, row) for row, record in enumerate(made)]
