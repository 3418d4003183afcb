"""`SequenceBatch`: n SequenceExamples as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from indexer.options import suggests_options
from tfrecord._columns.batch_text import html, lines
from tfrecord._columns.column_batch import ColumnBatch, record_batch
from tfrecord._columns.exports import ArrowBatch
from tfrecord._columns.tables import TableOptions, Text, table_options

__all__ = ["SequenceBatch"]

# Marks a RecordBatch of SequenceExamples, also when it is read back from a Parquet file.
_SEQUENCE = {b"tfrecord.record_type": b"sequence_example"}
_PREFIXES = ("context/", "feature_lists/")


class SequenceBatch(ArrowBatch):
    """n SequenceExamples: `context` and `feature_lists`, two `ColumnBatch`es of n rows each.

    In `feature_lists` a column is a `Ragged` of steps; if steps differ in length, a `Ragged` of `Ragged`.
    `len(batch)` is the number of rows.
    """

    __slots__ = ("context", "feature_lists")
    __module__ = "tfrecord.columns"

    def __init__(self, context: ColumnBatch, feature_lists: ColumnBatch) -> None:
        if context.num_rows != feature_lists.num_rows:
            raise ValueError(f"context has {context.num_rows} rows, feature_lists {feature_lists.num_rows}")
        self.context = context
        self.feature_lists = feature_lists

    @property
    def num_rows(self) -> int:
        """Number of records."""
        return self.context.num_rows

    @property
    def nbytes(self) -> int:
        """Total bytes of all values."""
        return self.context.nbytes + self.feature_lists.nbytes

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[ColumnBatch]:
        """Allows `context, feature_lists = batch`."""
        return iter((self.context, self.feature_lists))

    def __getitem__(self, rows: slice | Sequence[int] | npt.NDArray[Any]) -> SequenceBatch:
        if isinstance(rows, str):
            raise KeyError(
                f"columns are in .context {list(self.context)} and .feature_lists {list(self.feature_lists)}"
            )
        return SequenceBatch(self.context[rows], self.feature_lists[rows])

    def row(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Record `index` as the pair of dicts (context, feature lists)."""
        return self.context.row(index), self.feature_lists.row(index)

    def to_list(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """One pair of dicts per record, of Python values."""
        return list(zip(self.context.to_list(), self.feature_lists.to_list(), strict=True))

    def equals(self, other: object) -> bool:
        """Whether both halves are equal."""
        return isinstance(other, SequenceBatch) and tuple(self) == tuple(other)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, SequenceBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return SequenceBatch, (self.context, self.feature_lists)

    @suggests_options
    def to_torch(
        self, *, ragged: str = "ragged", fill_value: Any = 0, max_length: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """`ColumnBatch.to_torch` of both halves."""
        context, lists = (
            part.to_torch(ragged=ragged, fill_value=fill_value, max_length=max_length)
            for part in (self.context, self.feature_lists)
        )
        return context, lists

    @suggests_options
    def to_arrow(self, *, binary_views: bool = False, text: Text = False, nullable: bool = False) -> Any:
        """One pyarrow RecordBatch with columns `context/NAME` and `feature_lists/NAME`.

        `ColumnBatch.to_arrow` describes the columns. Names in `text` are those of features, and `nullable`
        applies to the context only. The schema's metadata marks the batch as one of sequences.
        """
        names = dict.fromkeys((*self.context, *self.feature_lists))
        return self._to_arrow(table_options(names, binary_views=binary_views, text=text, nullable=nullable))

    def _to_arrow(self, options: TableOptions) -> Any:
        halves = [
            self.context._to_arrow(options),
            self.feature_lists._to_arrow(replace(options, nullable=False)),
        ]
        names = [
            prefix + name
            for prefix, half in zip(_PREFIXES, halves, strict=True)
            for name in half.schema.names
        ]
        made = record_batch(names, [array for half in halves for array in half.columns], self.num_rows)
        return made.replace_schema_metadata(_SEQUENCE)

    @classmethod
    def from_arrow(cls, batch: Any) -> SequenceBatch:
        """The inverse of `to_arrow`, for any Arrow data with such column names (ValueError for others); see
        `ColumnBatch.from_arrow`."""
        return cls._from_whole(ColumnBatch.from_arrow(batch))

    @staticmethod
    def _is_named(names: Iterable[str]) -> bool:
        """Whether columns of these names are both halves of a `SequenceBatch`."""
        held = list(names)
        return any(name.startswith(_PREFIXES[1]) for name in held) and all(
            name.startswith(_PREFIXES) for name in held
        )

    @classmethod
    def _from_whole(cls, whole: ColumnBatch) -> SequenceBatch:
        """The batch whose halves are the columns of one batch, told apart by their prefixes."""
        halves = []
        for prefix in _PREFIXES:
            names = [name for name in whole if name.startswith(prefix)]
            columns = {name[len(prefix) :]: whole[name] for name in names}
            flags = {name[len(prefix) :]: whole.present[name] for name in names}
            halves.append(ColumnBatch._trusted(columns, flags, whole.num_rows))
        for name in whole:
            if not name.startswith(_PREFIXES):
                raise ValueError(f"column {name!r} starts with neither {_PREFIXES[0]!r} nor {_PREFIXES[1]!r}")
        return cls(*halves)

    def __repr__(self) -> str:
        halves = [" context", *lines(self.context), " feature_lists", *lines(self.feature_lists)]
        return "\n".join([f"SequenceBatch: {self.num_rows:,} rows", *halves])

    def _repr_html_(self) -> str:
        return html(self.context, self.feature_lists)
