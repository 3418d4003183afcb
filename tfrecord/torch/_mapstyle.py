"""`TFRecordMapDataset`: any record by position, for samplers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from indexer.errors import TFRecordError
from tfrecord._columns.arrays import as_position, as_positions, is_integer
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged
from tfrecord.reader import TFRecordReader
from tfrecord.torch._options import make_finish, one_of, open_source
from tfrecord.torch._workers.errors import for_loader

__all__ = ["TFRecordMapDataset"]


class TFRecordMapDataset(Dataset[Any]):
    """Records by position: `len`, `[i]`, `[-1]`, slices; for `DataLoader(shuffle=True)` and every sampler.

    Args: as in `TFRecordDataset`. `transform` is called with each record.

    A loader's batch is fetched by `__getitems__` in one step and decoded by the columnar kernel where the
    kinds of all features are given. Compressed files are decompressed to temporary space first, in every
    worker.
    """

    def __init__(
        self,
        data_path: Any,
        index_path: Any = None,
        description: Any = None,
        transform: Callable[[Any], Any] | None = None,
        sequence_description: Any = None,
        compression_type: str | None = None,
        *,
        features: Any = None,
        sequence_features: Any = None,
        **reader_options: Any,
    ) -> None:
        super().__init__()
        features = one_of(features, description)
        sequence_features = one_of(sequence_features, sequence_description, "sequence_")
        self._reader, self.source = open_source(
            data_path, index_path, features, sequence_features, compression_type, **reader_options
        )
        if self.source.skips:
            raise ValueError("a map-style dataset cannot leave records out: on_error must be 'raise'")
        self.finish = make_finish(transform, False, "ragged", "exact")

    @property
    def reader(self) -> TFRecordReader:
        """The files; `reader.index.columns["label"]` are values kept in the index, for samplers."""
        return self._reader

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Any) -> Any:
        """A record for an integer (negative ones from the end); a list of records for a slice or a list."""
        # A scalar tensor has dimensions, none, and is an index.
        if is_integer(index) or (getattr(index, "ndim", None) == 0 and hasattr(index, "__index__")):
            return self._records(np.array([as_position(index, len(self), "records")]))[0]
        if isinstance(index, slice):
            return self._records(np.arange(*index.indices(len(self)), dtype=np.int64))
        return self._records(as_positions(index, len(self), "records"))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The records of a batch, fetched at once."""
        return self._records(as_positions(list(indices), len(self), "records"))

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
        count = len(rows)
        plan = source.plan.columns
        if count > 1 and plan and all(column.kind is not None for column in plan):
            batch = source.decode_batch(rows.payloads, rows.locate)
            if isinstance(batch, ColumnBatch) and (made := records_of(batch)) is not None:
                return [self.finish.record(record, False, *rows.locate(i)) for i, record in enumerate(made)]
        out = []
        for row in range(count):
            path, record = rows.locate(row)
            item = source.decode_one(rows.payloads.view(row), path, record)
            out.append(self.finish.record(item, False, path, record))
        return out


def records_of(batch: ColumnBatch) -> list[dict[str, Any]] | None:
    """The rows of a batch as dicts, as they are decoded one by one; arrays are views of the columns.

    None where a record lacks a feature: what is due then depends on the record.
    """
    columns: dict[str, Any] = {}
    for name, column in batch.items():
        if isinstance(column, Ragged):
            if not batch.present[name].all():
                return None
            splits = column.row_splits.tolist()
            values = column.values.to_numpy() if isinstance(column.values, BytesColumn) else column.values
            rows: Any = [values[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]
            if isinstance(column.values, BytesColumn):  # one byte string is bytes, several are an array
                rows = [row[0] if len(row) == 1 else row for row in rows]
        elif isinstance(column, BytesColumn):
            rows = column.to_numpy()
        else:
            rows = [column[i, ...] for i in range(len(column))]
        columns[name] = list(rows)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
