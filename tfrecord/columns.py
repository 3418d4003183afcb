"""Batches of records as columns: `ColumnBatch`, `SequenceBatch`, `Ragged`, `BytesColumn`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tfrecord._arrays import BoolArray, as_position, as_positions
from tfrecord._bytes_column import BytesColumn
from tfrecord._ragged import Ragged, concat_columns, describe, same_column

__all__ = ["BytesColumn", "ColumnBatch", "Ragged", "SequenceBatch", "concat"]


class ColumnBatch(Mapping[str, Any]):
    """n records as columns: a read-only mapping from a feature's name to its column.

    A column is a numpy array `(n, ...)`, a `BytesColumn` or a `Ragged`; which one depends on the feature's
    spec, never on the data. `num_rows` is n. `present` maps a name to a bool array `(n,)`: False where the
    record lacks the feature (or it has no kind), which an empty list is not. Numeric arrays are owned by
    the batch's holder and writable; byte strings point into the buffers that they were read from.

    `batch["name"]` is a column; `batch[a:b]`, `batch[[5, 1, 5]]` and `batch[mask]` are batches of those
    rows; `row(i)` is one record as a dict. `len(batch)` counts columns, as for any mapping.
    """

    __slots__ = ("_columns", "_present", "num_rows")

    def __init__(
        self,
        columns: Mapping[str, Any],
        present: Mapping[str, npt.ArrayLike] | None = None,
        num_rows: int | None = None,
    ) -> None:
        held = {
            name: column if isinstance(column, (Ragged, BytesColumn)) else np.asarray(column)
            for name, column in columns.items()
        }
        if num_rows is None:
            num_rows = len(next(iter(held.values()))) if held else 0
        flags: dict[str, BoolArray] = {}
        for name, column in held.items():
            if isinstance(column, np.ndarray) and column.ndim == 0:
                raise ValueError(f"column {name!r} has no rows: it is a scalar")
            if len(column) != num_rows:
                raise ValueError(f"column {name!r} has {len(column)} rows, not {num_rows}")
            given = None if present is None else present.get(name)
            flags[name] = np.ones(num_rows, np.bool_) if given is None else np.asarray(given)
            if flags[name].dtype != np.bool_ or flags[name].shape != (num_rows,):
                raise ValueError(f"present[{name!r}] must be bool of shape ({num_rows},)")
        for name in present or ():
            if name not in held:
                raise ValueError(f"present names {name!r}, which is no column")
        self._columns: dict[str, Any] = held
        self._present = flags
        self.num_rows = int(num_rows)

    @classmethod
    def _trusted(cls, columns: dict[str, Any], present: dict[str, BoolArray], num_rows: int) -> ColumnBatch:
        """What a kernel has checked already: no check, no copy."""
        self = object.__new__(cls)
        self._columns = columns
        self._present = present
        self.num_rows = num_rows
        return self

    @property
    def present(self) -> Mapping[str, BoolArray]:
        """Per column, which records have the feature: bool (n,)."""
        return MappingProxyType(self._present)

    @property
    def nbytes(self) -> int:
        """Bytes of all values together."""
        return sum(int(column.nbytes) for column in self._columns.values())

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: slice | list[int] | npt.NDArray[Any]) -> ColumnBatch: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return self._columns[key]
            except KeyError:
                raise KeyError(f"no column {key!r}; there are {list(self._columns)}") from None
        if isinstance(key, (slice, list, np.ndarray)):
            rows = key if isinstance(key, slice) else as_positions(key, self.num_rows, "rows")
            count = len(range(*rows.indices(self.num_rows))) if isinstance(rows, slice) else len(rows)
            return ColumnBatch._trusted(
                {name: column[rows] for name, column in self._columns.items()},
                {name: flags[rows] for name, flags in self._present.items()},
                count,
            )
        raise TypeError(f"a batch is indexed by name, slice or array of rows, not {key!r}; one record: row(i)")

    def __contains__(self, key: object) -> bool:
        return key in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, index: int) -> dict[str, Any]:
        """Record `index` as a dict: a dense column gives its row, bytes give bytes, ragged ones that row."""
        i = as_position(index, self.num_rows, "rows")
        return {name: column[i] for name, column in self._columns.items()}

    def select(self, names: Sequence[str]) -> ColumnBatch:
        """A batch of only these columns, in this order."""
        return ColumnBatch._trusted(
            {name: self[name] for name in names}, {name: self._present[name] for name in names}, self.num_rows
        )

    def to_list(self) -> list[dict[str, Any]]:
        """One dict a record of Python values; what a record lacks is not in its dict."""
        lists = {
            name: column.tolist() if isinstance(column, np.ndarray) else column.to_list()
            for name, column in self._columns.items()
        }
        flags = {name: present.tolist() for name, present in self._present.items()}
        return [
            {name: values[i] for name, values in lists.items() if flags[name][i]} for i in range(self.num_rows)
        ]

    def equals(self, other: object) -> bool:
        """Whether `other` has the same columns in any order, with equal values and presence (NaN equals NaN)."""
        if not isinstance(other, ColumnBatch) or self.num_rows != other.num_rows:
            return False
        return self._columns.keys() == other._columns.keys() and all(
            same_column(column, other._columns[name]) and np.array_equal(self._present[name], other._present[name])
            for name, column in self._columns.items()
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ColumnBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnBatch._trusted, (self._columns, self._present, self.num_rows)

    def __repr__(self) -> str:
        lines = [f"  {name!r}: {describe(column)}" for name, column in self._columns.items()]
        return "\n".join([f"ColumnBatch of {self.num_rows} rows", *lines])


class SequenceBatch:
    """n SequenceExamples: `context` and `feature_lists`, two `ColumnBatch`es of n rows each.

    In `feature_lists` a column is a `Ragged` over steps: of `Ragged` where steps differ in length.
    """

    __slots__ = ("context", "feature_lists")

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
        """Bytes of all values together."""
        return self.context.nbytes + self.feature_lists.nbytes

    def __iter__(self) -> Iterator[ColumnBatch]:
        """So that `context, feature_lists = batch` works."""
        return iter((self.context, self.feature_lists))

    def __getitem__(self, rows: slice | list[int] | npt.NDArray[Any]) -> SequenceBatch:
        return SequenceBatch(self.context[rows], self.feature_lists[rows])

    def row(self, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Record `index` as the pair of dicts (context, feature lists)."""
        return self.context.row(index), self.feature_lists.row(index)

    def to_list(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """One pair of dicts a record, of Python values."""
        return list(zip(self.context.to_list(), self.feature_lists.to_list(), strict=True))

    def equals(self, other: object) -> bool:
        """Whether both halves are equal."""
        return isinstance(other, SequenceBatch) and tuple(self) == tuple(other)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, SequenceBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return SequenceBatch, (self.context, self.feature_lists)

    def __repr__(self) -> str:
        return f"SequenceBatch of {self.num_rows} rows\ncontext: {self.context!r}\nfeature_lists: {self.feature_lists!r}"


def concat(batches: Sequence[Any]) -> Any:
    """Batches (or columns) of one type joined along the rows; ValueError names the column that does not join."""
    if not batches:
        raise ValueError("nothing to join: give at least one batch")
    first = batches[0]
    if isinstance(first, SequenceBatch):
        return SequenceBatch(
            concat([batch.context for batch in batches]), concat([batch.feature_lists for batch in batches])
        )
    if not isinstance(first, ColumnBatch):
        return concat_columns(batches)
    columns: dict[str, Any] = {}
    for batch in batches[1:]:
        if set(batch) != set(first):
            raise ValueError(f"batches of the columns {list(first)} and {list(batch)} do not join")
    for name in first:
        try:
            columns[name] = concat_columns([batch[name] for batch in batches])
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    present = {name: np.concatenate([batch.present[name] for batch in batches]) for name in first}
    return ColumnBatch._trusted(columns, present, sum(batch.num_rows for batch in batches))
