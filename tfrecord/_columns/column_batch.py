"""`ColumnBatch`: n records as columns."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from indexer.options import known_names, near_matches, suggests_options
from tfrecord._columns.arrays import BoolArray, as_position, as_positions, is_integer
from tfrecord._columns.batch_text import html, lines, title
from tfrecord._columns.exports import ArrowBatch
from tfrecord._columns.frames import record_batches
from tfrecord._columns.from_arrow import columns_of
from tfrecord._columns.ragged import Ragged, TensorRagged, as_column, concat_columns, nbytes_of, same_column
from tfrecord._columns.tables import TableOptions, Text, table_options
from tfrecord._columns.tensors import tensor_of, tensors_of
from tfrecord._optional import optional

__all__ = ["ColumnBatch", "record_batch"]


class ColumnBatch(ArrowBatch, Mapping[str, Any]):
    """n records as columns: a read-only mapping from a feature's name to its column.

    A column is a numpy array `(n, ...)`, a `BytesColumn` or a `Ragged`; which one depends on the feature's
    spec, never on the data. `num_rows` is n. `present` maps a name to a bool array `(n,)`: False if the
    record lacks the feature or the feature has no type; an empty list is present. Numeric arrays belong to
    the caller and are writable; byte strings point into the buffers from which they were read.

    `batch["name"]` is a column; `batch[a:b]`, `batch[[5, 1, 5]]` and `batch[mask]` are batches of those
    rows; `row(i)` is one record as a dict. `len(batch)` is the number of rows. Iteration, `in`, `keys()`,
    `values()` and `items()` work as for a mapping of columns.

    pyarrow, polars, DuckDB and others take a batch directly, through the Arrow C interface.
    """

    __slots__ = ("_columns", "_flags", "num_rows")
    __module__ = "tfrecord.columns"

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
                raise ValueError(f"present names {name!r}, which is not a column")
        self._columns: dict[str, Any] = held
        self._flags: dict[str, BoolArray] | BoolArray = flags
        self.num_rows = int(num_rows)

    @classmethod
    def _trusted(
        cls, columns: dict[str, Any], present: dict[str, BoolArray] | BoolArray, num_rows: int
    ) -> ColumnBatch:
        """Data that a kernel has already checked: no check, no copy. `present` may be an array (columns,
        rows)."""
        self = object.__new__(cls)
        self._columns = columns
        self._flags = present
        self.num_rows = num_rows
        return self

    @property
    def _present(self) -> dict[str, BoolArray]:
        # Rarely requested, so the array is split by column only on demand.
        flags = self._flags  # read once: another thread may replace it
        if not isinstance(flags, dict):
            self._flags = flags = dict(zip(self._columns, flags, strict=True))
        return flags

    @property
    def present(self) -> Mapping[str, BoolArray]:
        """For each column, which records have the feature: bool (n,)."""
        return MappingProxyType(self._present)

    @property
    def nbytes(self) -> int:
        """Total bytes of all values."""
        return sum(map(nbytes_of, self._columns.values()))

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | npt.NDArray[Any]) -> ColumnBatch: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            try:
                return self._columns[key]
            except KeyError:
                raise KeyError(f"no column {key!r}{known_names(key, self._columns)}") from None
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
        return self.num_rows

    def keys(self) -> KeysView[str]:
        """The names of the columns."""
        return self._columns.keys()

    def values(self) -> ValuesView[Any]:
        """The columns."""
        return self._columns.values()

    def items(self) -> ItemsView[str, Any]:
        """Pairs of a name and its column."""
        return self._columns.items()

    def row(self, index: int) -> dict[str, Any]:
        """Record `index` as a dict: dense and ragged columns give their row, byte columns give bytes."""
        i = as_position(index, self.num_rows, "rows")
        return {name: column[i] for name, column in self._columns.items()}

    def select(self, names: Sequence[str]) -> ColumnBatch:
        """A batch of only these columns, in this order."""
        return ColumnBatch._trusted(
            {name: self[name] for name in names}, {name: self._present[name] for name in names}, self.num_rows
        )

    def to_list(self) -> list[dict[str, Any]]:
        """One dict per record, of Python values, without the ragged features that the record lacks."""
        lists = {
            name: column.tolist() if isinstance(column, np.ndarray) else column.to_list()
            for name, column in self._columns.items()
        }
        lacking = [
            (name, np.flatnonzero(~column._filled(self._present[name])).tolist())
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

    @suggests_options
    def to_torch(
        self, *, ragged: str = "ragged", fill_value: Any = 0, max_length: Any = None
    ) -> dict[str, Any]:
        """A dict of tensors (dense columns share memory with the batch), lists of bytes, and ragged columns.

        `ragged="ragged"` gives these as `TensorRagged`; `"nested"` as nested tensors; `"pad"` as padded
        tensors, `x` with a bool tensor `x_mask`, filled by `fill_value` and as wide as `max_length` (both as
        in `Ragged.to_padded`). Raises ImportError with the pip command if torch is missing.
        """
        if ragged not in ("ragged", "pad", "nested"):
            near = near_matches(ragged, ("ragged", "pad", "nested"))
            raise ValueError(f"ragged must be 'ragged', 'pad' or 'nested', got {ragged!r}{near}")
        result: dict[str, Any] = {}
        for name, column in self._columns.items():
            made = tensors_of(column) if isinstance(column, np.ndarray) else column.to_torch()
            if isinstance(made, TensorRagged) and ragged == "nested":
                made = made.to_nested()
            elif isinstance(made, TensorRagged) and ragged == "pad":
                if f"{name}_mask" in self._columns:
                    raise ValueError(
                        f"the mask of {name!r} needs the name '{name}_mask', which is already a column"
                    )
                result[f"{name}_mask"] = tensor_of(column.mask(max_length))
                made = tensor_of(column.to_padded(fill_value, max_length))
            result[name] = made
        return result

    @suggests_options
    def to_arrow(self, *, binary_views: bool = False, text: Text = False, nullable: bool = False) -> Any:
        """A pyarrow RecordBatch of n rows. Numbers and lists share memory with the batch; bytes are copied.

        Args:
            binary_views: bytes are views into the batch's buffers, uncopied: see `BytesColumn.to_arrow`.
            text: True gives all byte strings as strings, names those of these columns. They are checked to
                be UTF-8, and copied.
            nullable: a ragged column becomes a plain column if each row with the feature has one value, and
                every column is null for records that lack the feature. The rows of this
                batch decide; the type may differ from that of other batches of the same file.

        Ragged columns become large lists, null if the record lacks the feature. Dense columns become
        fixed-size lists (scalars: plain arrays). Without `nullable` these have no nulls: a missing feature
        has its default there.

        Raises:
            DecodeError: a value in a `text` column is not UTF-8; the error names the column and the row.
            KeyError: `text` names an unknown column. ImportError: pyarrow is missing.
        """
        return self._to_arrow(
            table_options(self._columns, binary_views=binary_views, text=text, nullable=nullable)
        )

    def _to_arrow(self, options: TableOptions) -> Any:
        arrays = [options.array(name, column, self._present[name]) for name, column in self._columns.items()]
        return record_batch(list(self._columns), arrays, self.num_rows)

    @classmethod
    def from_arrow(cls, batch: Any) -> ColumnBatch:
        """The columns of a RecordBatch, a Table, or anything that exports Arrow data: a polars DataFrame, a
        DuckDB relation, a pandas DataFrame (without its index).

        Lists become ragged, fixed-size lists and plain values dense, binary and strings (UTF-8) bytes over
        Arrow's buffers, depending only on the Arrow type of each column; categories become their values. A
        null row is not present; an empty list is present with no values. In pandas, a NaN in a column of
        floats is a value, and in a column of objects a null.

        Raises ValueError for a null within a list and for two columns with the same name, and TypeError for a
        type that no feature can hold. All errors name the column.
        """
        parts = [
            cls._trusted(
                {name: column for name, (column, _) in found.items()},
                {name: present for name, (_, present) in found.items()},
                part.num_rows,
            )
            for part in record_batches(batch)
            for found in [columns_of(part)]
        ]
        return cls._concat(parts)

    @classmethod
    def _concat(cls, batches: Sequence[ColumnBatch]) -> ColumnBatch:
        first = batches[0]
        if len(batches) == 1:
            return first
        columns: dict[str, Any] = {}
        for batch in batches[1:]:
            if set(batch) != set(first):
                raise ValueError(f"batches of the columns {list(first)} and {list(batch)} cannot be joined")
        for name in first:
            try:
                columns[name] = concat_columns([batch[name] for batch in batches])
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        present = {name: np.concatenate([batch.present[name] for batch in batches]) for name in first}
        return cls._trusted(columns, present, sum(batch.num_rows for batch in batches))

    def __repr__(self) -> str:
        return "\n".join([title(self), *lines(self)])

    def _repr_html_(self) -> str:
        return html(self)


def record_batch(names: list[str], arrays: list[Any], num_rows: int) -> Any:
    """A pyarrow RecordBatch that keeps its number of rows even without columns."""
    pa = optional("pyarrow")
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, names)
