"""Batches of records as columns: `ColumnBatch`, `SequenceBatch`, `Ragged`, `BytesColumn`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tfrecord._columns.arrays import BoolArray, as_position, as_positions, is_integer
from tfrecord._columns.batch_text import html, lines, title
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.from_arrow import column_of
from tfrecord._columns.ragged import (
    Ragged,
    TensorRagged,
    arrow_of,
    as_column,
    concat_columns,
    same_column,
)
from tfrecord._columns.tensors import tensor_of
from tfrecord._optional import optional

__all__ = ["BytesColumn", "ColumnBatch", "Ragged", "SequenceBatch", "TensorRagged", "concat"]

# So that a RecordBatch of SequenceExamples is known again, also after it went through a Parquet file.
_SEQUENCE = {b"tfrecord.record_type": b"sequence_example"}
_PREFIXES = ("context/", "feature_lists/")


class ColumnBatch(Mapping[str, Any]):
    """n records as columns: a read-only mapping from a feature's name to its column.

    A column is a numpy array `(n, ...)`, a `BytesColumn` or a `Ragged`; which one depends on the feature's
    spec, never on the data. `num_rows` is n. `present` maps a name to a bool array `(n,)`: False where the
    record lacks the feature (or it has no kind), which an empty list is not. Numeric arrays are owned by
    the batch's holder and writable; byte strings point into the buffers that they were read from.

    `batch["name"]` is a column; `batch[a:b]`, `batch[[5, 1, 5]]` and `batch[mask]` are batches of those
    rows; `row(i)` is one record as a dict. `len(batch)` counts columns, as for any mapping.
    """

    __slots__ = ("_columns", "_flags", "num_rows")

    def __init__(
        self,
        columns: Mapping[str, Any],
        present: Mapping[str, npt.ArrayLike] | None = None,
        num_rows: int | None = None,
    ) -> None:
        held = {name: as_column(column, f"column {name!r}") for name, column in columns.items()}
        if num_rows is None:
            num_rows = len(next(iter(held.values()))) if held else 0
        flags: dict[str, BoolArray] = {}
        for name, column in held.items():
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
        self._flags: dict[str, BoolArray] | BoolArray = flags
        self.num_rows = int(num_rows)

    @classmethod
    def _trusted(
        cls, columns: dict[str, Any], present: dict[str, BoolArray] | BoolArray, num_rows: int
    ) -> ColumnBatch:
        """What a kernel has checked already: no check, no copy. `present` may be an array (columns, rows)."""
        self = object.__new__(cls)
        self._columns = columns
        self._flags = present
        self.num_rows = num_rows
        return self

    @property
    def _present(self) -> dict[str, BoolArray]:
        # Few batches are asked for it, so an array a column is made only then.
        flags = self._flags  # read once: another thread may replace it
        if not isinstance(flags, dict):
            self._flags = flags = dict(zip(self._columns, flags, strict=True))
        return flags

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
    def __getitem__(self, key: slice | Sequence[int] | npt.NDArray[Any]) -> ColumnBatch: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return self._columns[key]
            except KeyError:
                raise KeyError(f"no column {key!r}; there are {list(self._columns)}") from None
        if is_integer(key) or isinstance(key, bytes):
            raise TypeError(
                f"a batch is indexed by name, slice or array, not {key!r}; a record is batch.row(i)"
            )
        rows = key if isinstance(key, slice) else as_positions(key, self.num_rows, "rows")
        return ColumnBatch._trusted(
            {name: column[rows] for name, column in self._columns.items()},
            {name: flags[rows] for name, flags in self._present.items()},
            len(range(*rows.indices(self.num_rows))) if isinstance(rows, slice) else len(rows),
        )

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
        """One dict a record of Python values, without the ragged features that the record lacks."""
        lists = {
            name: column.tolist() if isinstance(column, np.ndarray) else column.to_list()
            for name, column in self._columns.items()
        }
        lacking = [
            (name, np.flatnonzero(~self._present[name]).tolist())
            for name, column in self._columns.items()
            if isinstance(column, Ragged)
        ]
        rows = [{name: values[i] for name, values in lists.items()} for i in range(self.num_rows)]
        for name, numbers in lacking:
            for i in numbers:
                del rows[i][name]
        return rows

    def equals(self, other: object) -> bool:
        """Whether `other` has the same columns, values and presence, in any order (NaN equals NaN)."""
        if not isinstance(other, ColumnBatch) or self.num_rows != other.num_rows:
            return False
        return self._columns.keys() == other._columns.keys() and all(
            same_column(column, other[name]) and np.array_equal(self._present[name], other._present[name])
            for name, column in self._columns.items()
        )

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, ColumnBatch) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnBatch._trusted, (self._columns, self._present, self.num_rows)

    def to_torch(
        self, *, ragged: str = "ragged", fill_value: Any = 0, max_length: Any = None
    ) -> dict[str, Any]:
        """A dict of tensors (dense columns share memory with the batch), lists of bytes, and ragged columns.

        `ragged="ragged"` gives these as `TensorRagged`; `"nested"` as nested tensors; `"pad"` as padded
        tensors, `x` with a bool tensor `x_mask`, filled by `fill_value` and as wide as `max_length` (both as
        in `Ragged.to_padded`). Raises ImportError with the pip command where torch is missing.
        """
        if ragged not in ("ragged", "pad", "nested"):
            raise ValueError(f"ragged must be 'ragged', 'pad' or 'nested', got {ragged!r}")
        result: dict[str, Any] = {}
        for name, column in self._columns.items():
            made = tensor_of(column) if isinstance(column, np.ndarray) else column.to_torch()
            if isinstance(made, TensorRagged) and ragged == "nested":
                made = made.to_nested()
            elif isinstance(made, TensorRagged) and ragged == "pad":
                if f"{name}_mask" in self._columns:
                    raise ValueError(f"the mask of {name!r} has the name of a column, '{name}_mask'")
                result[f"{name}_mask"] = tensor_of(column.mask(max_length))
                made = tensor_of(column.to_padded(fill_value, max_length))
            result[name] = made
        return result

    def to_arrow(self, *, binary_views: bool = True) -> Any:
        """A pyarrow RecordBatch: numbers and lists share memory with the batch, bytes are views.

        Ragged columns are large lists, null where the record lacks the feature. Dense columns become
        fixed-size lists (scalars: plain arrays) without nulls: a missing feature has its default there.
        `binary_views=False` makes bytes `large_binary`, for what knows no views. Raises ImportError with the
        pip command where pyarrow is missing.
        """
        arrays = [
            column.to_arrow(present=self._present[name], binary_views=binary_views)
            if isinstance(column, Ragged)
            else arrow_of(column, binary_views)
            for name, column in self._columns.items()
        ]
        return _record_batch(list(self._columns), arrays, self.num_rows)

    @classmethod
    def from_arrow(cls, batch: Any) -> ColumnBatch:
        """The columns of a pyarrow RecordBatch or Table.

        Lists become ragged, fixed-size lists and plain values dense, binary and strings (UTF-8) bytes over
        Arrow's buffers, each column by its Arrow type alone. A null row is not present; an empty list is
        present with no values. Raises ValueError for a null within a list, TypeError for a type that no
        feature can hold, both naming the column.
        """
        pa = optional("pyarrow")
        if isinstance(batch, pa.Table):
            parts = batch.to_batches() or [pa.RecordBatch.from_pylist([], schema=batch.schema)]
            joined: ColumnBatch = concat([cls.from_arrow(part) for part in parts])
            return joined
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise ValueError(f"two columns of one name among {names}")
        found = {name: column_of(array, name) for name, array in zip(names, batch.columns, strict=True)}
        return cls._trusted(
            {name: column for name, (column, _) in found.items()},
            {name: present for name, (_, present) in found.items()},
            batch.num_rows,
        )

    def to_pandas(self) -> Any:
        """A pandas DataFrame, through Arrow; ImportError says how to install what is missing."""
        optional("pandas")
        return self.to_arrow(binary_views=False).to_pandas()

    def to_polars(self) -> Any:
        """A polars DataFrame, through Arrow; ImportError says how to install what is missing."""
        return optional("polars").from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        return "\n".join([title(self), *lines(self)])

    def _repr_html_(self) -> str:
        return html(self)


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

    def to_torch(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both halves as `ColumnBatch.to_torch` gives them."""
        return self.context.to_torch(**options), self.feature_lists.to_torch(**options)

    def to_arrow(self, *, binary_views: bool = True) -> Any:
        """One pyarrow RecordBatch with columns `context/NAME` and `feature_lists/NAME`.

        They are as `ColumnBatch.to_arrow` makes them; the schema's metadata says that it is a sequence.
        """
        halves = [half.to_arrow(binary_views=binary_views) for half in self]
        names = [
            prefix + name
            for prefix, half in zip(_PREFIXES, halves, strict=True)
            for name in half.schema.names
        ]
        made = _record_batch(names, [array for half in halves for array in half.columns], self.num_rows)
        return made.replace_schema_metadata(_SEQUENCE)

    @classmethod
    def from_arrow(cls, batch: Any) -> SequenceBatch:
        """What `to_arrow` made, or any RecordBatch or Table of such names (ValueError for others)."""
        whole = ColumnBatch.from_arrow(batch)
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

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the columns of `to_arrow`."""
        optional("pandas")
        return self.to_arrow(binary_views=False).to_pandas()

    def to_polars(self) -> Any:
        """A polars DataFrame with the columns of `to_arrow`."""
        return optional("polars").from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        halves = [" context", *lines(self.context), " feature_lists", *lines(self.feature_lists)]
        return "\n".join([f"SequenceBatch: {self.num_rows:,} rows", *halves])

    def _repr_html_(self) -> str:
        return html(self.context) + html(self.feature_lists)


def _record_batch(names: list[str], arrays: list[Any], num_rows: int) -> Any:
    pa = optional("pyarrow")
    if not names:  # of no columns a RecordBatch would forget the number of rows
        return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, names)


def concat(batches: Sequence[Any]) -> Any:
    """Batches (or columns) of one type joined along the rows; ValueError names what does not join."""
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
