"""A column whose rows differ in length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from indexer.options import suggests_options
from tfrecord._columns.arrays import (
    BoolArray,
    Int64Array,
    as_int64,
    as_position,
    as_positions,
    is_integer,
    ranges,
    splits_of,
)
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.lists import flat_values, flatten_rows, is_list
from tfrecord._columns.padding import fill_for, limits_of, width_of
from tfrecord._columns.tensors import nested_of, padded, tensor_of
from tfrecord._columns.text import array_text, items_text
from tfrecord._columns.to_arrow import ArrowColumn, dense_array, list_array

_Row = TypeVar("_Row", bound="Ragged")


class Ragged(ArrowColumn):
    """n rows of different lengths: row i is `values[row_splits[i] : row_splits[i + 1]]`.

    `values` is an array (split along its first axis), a `BytesColumn`, or another `Ragged` (a sequence
    feature: rows of steps of values). An empty object array means that the type is unknown; it can be joined
    with any other. `row_splits` is int64 with n + 1 entries, starts at 0, never decreases, and ends at
    `len(values)`; anything else raises ValueError. Rows and slices are views of `values`.
    """

    __slots__ = ("row_splits", "values")
    __module__ = "tfrecord.columns"

    values: Any
    row_splits: Int64Array

    def __init__(self, values: Any, row_splits: npt.ArrayLike) -> None:
        self.values = as_column(values, "values")
        self.row_splits = as_int64(row_splits, "row_splits")
        if not len(self.row_splits) or self.row_splits[0] != 0:
            raise ValueError("row_splits must start at 0")
        if (self.row_splits[1:] < self.row_splits[:-1]).any():
            row = int(np.flatnonzero(self.row_splits[1:] < self.row_splits[:-1])[0])
            raise ValueError(f"row_splits must not decrease, but do at row {row}")
        if self.row_splits[-1] != len(self.values):
            last = int(self.row_splits[-1])
            raise ValueError(f"row_splits end at {last}, but there are {len(self.values)} values")

    @classmethod
    @suggests_options
    def from_list(cls, rows: Iterable[Any], dtype: npt.DTypeLike | type[bytes] | None = None) -> Ragged:
        """A column of n rows given as lists (or tuples, or arrays) of numbers, bytes, or text (as UTF-8).

        Lists of lists of lists become a Ragged of Ragged: records of steps of values. Without `dtype`,
        integers become int64 and other numbers float64; if no row has a value, the type is unknown. Raises
        TypeError for a row that is not a list and for values of other types, and ValueError for rows that are
        nested to different depths. The values are copied.

        >>> Ragged.from_list([[1, 2], [], [3]]).row_splits.tolist()
        [0, 2, 2, 3]
        """
        values, levels = flatten_rows(rows, dtype)
        for row_splits in reversed(levels):
            values = Ragged._trusted(values, row_splits)
        return values  # type: ignore[no-any-return]

    @classmethod
    def _trusted(cls: type[_Row], values: Any, row_splits: Any) -> _Row:
        """Data that a kernel has already checked: no check, no copy."""
        self = object.__new__(cls)
        self.values = values
        self.row_splits = row_splits
        return self

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the values (not of the row splits)."""
        return int(self.values.nbytes)

    def lengths(self) -> Int64Array:
        """Number of values in each row: int64 (n,)."""
        return np.diff(self.row_splits)

    def _filled(self, present: BoolArray) -> BoolArray:
        """The rows to show: those of records that have the feature, and those with a default."""
        return present if present.all() else present | (self.lengths() > 0)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[Any]) -> Ragged: ...
    def __getitem__(self, index: Any) -> Any:
        """The values of one row for an integer; a Ragged of rows for a slice, an integer or a bool array."""
        if is_integer(index):
            row = as_position(index, len(self), "rows")
            return self.values[int(self.row_splits[row]) : int(self.row_splits[row + 1])]
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                splits = self.row_splits[start : max(start, stop) + 1]
                return Ragged._trusted(self.values[int(splits[0]) : int(splits[-1])], splits - splits[0])
            positions = np.arange(start, stop, step, dtype=np.int64)
        else:
            positions = as_positions(index, len(self), "rows")
        starts = self.row_splits[positions]
        lengths = self.row_splits[positions + 1] - starts
        return Ragged._trusted(self.values[ranges(starts, lengths)], splits_of(lengths))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def to_list(self) -> list[Any]:
        """The rows as lists of Python numbers, bytes, or lists."""
        flat = self.values.tolist() if isinstance(self.values, np.ndarray) else self.values.to_list()
        splits = self.row_splits.tolist()
        return [flat[start:end] for start, end in zip(splits[:-1], splits[1:], strict=True)]

    def mask(self, max_length: int | Sequence[int | None] | None = None) -> BoolArray:
        """True where `to_padded(max_length=...)` has a value of the column, False where it has padding."""
        return self._flags()._pad(False, max_length)

    def _flags(self) -> Ragged:
        """The same rows, with True for each value."""
        inner = self.values
        flags = inner._flags() if isinstance(inner, Ragged) else np.ones(len(inner), np.bool_)
        return Ragged._trusted(flags, self.row_splits)

    @suggests_options
    def to_padded(
        self, fill_value: Any = 0, max_length: int | Sequence[int | None] | None = None
    ) -> npt.NDArray[Any]:
        """A dense array (n, width, ...). Short rows are padded with `fill_value`, long ones truncated.

        The width is `max_length`, or that of the longest row. Nested columns give three dimensions (rows,
        steps, values); for them, a sequence `(steps, values)` sets both widths, and an integer the first.
        Bytes become an object array, padded with `b""` by default. A fill value that the dtype cannot hold
        raises. `mask()` and `lengths()` tell values from padding.
        """
        return self._pad(fill_value, max_length)

    def _pad(self, fill_value: Any, max_length: int | Sequence[int | None] | None) -> npt.NDArray[Any]:
        own, rest = limits_of(max_length)
        width = width_of(own, self.lengths())
        kept = self._cut(width)
        if isinstance(kept.values, Ragged):
            flat = kept.values._pad(fill_value, rest)
        elif isinstance(kept.values, BytesColumn):
            flat = kept.values.to_numpy()
        else:
            flat = kept.values
        fill = fill_for(flat.dtype, fill_value)
        if len(flat) == len(self) * width:  # rows of one length
            whole: npt.NDArray[Any] = flat.reshape(len(self), width, *flat.shape[1:]).copy()
            return whole
        out = np.full((len(self), width, *flat.shape[1:]), fill, flat.dtype)
        out[np.arange(width) < kept.lengths()[:, None]] = flat
        return out

    @suggests_options
    def to_arrow(self, *, present: BoolArray | None = None, binary_views: bool = False) -> Any:
        """Arrow large lists; rows that are not `present` are null.

        Numbers share memory with the column; for bytes see `BytesColumn.to_arrow`. Raises ImportError with
        the pip command if pyarrow is missing.
        """
        return list_array(self.row_splits, arrow_of(self.values, binary_views), present)

    def to_torch(self) -> Any:
        """A `TensorRagged` over the same memory; rows of bytes, or of an unknown type, become lists.

        Raises ImportError with the pip command if torch is missing.
        """
        leaf = leaf_of(self)
        if isinstance(leaf, BytesColumn) or leaf.dtype == np.object_:
            return self.to_list()
        return self._tensors()

    def _tensors(self) -> TensorRagged:
        inner = self.values._tensors() if isinstance(self.values, Ragged) else tensor_of(self.values)
        return TensorRagged._trusted(inner, tensor_of(self.row_splits))

    def _preview(self, index: int) -> str:
        row = self[index]
        return items_text((preview(row, i) for i in range(len(row))), len(row))

    def __repr__(self) -> str:
        rows = items_text((self._preview(i) for i in range(len(self))), len(self))
        return f"Ragged of {describe(self.values)}, {len(self):,} rows, {len(self.values):,} values: {rows}"

    def _cut(self, width: int) -> Ragged:
        """The rows, each truncated to its first `width` values."""
        lengths = self.lengths()
        if not len(lengths) or int(lengths.max()) <= width:
            return self
        lengths = np.minimum(lengths, width)
        return Ragged._trusted(self.values[ranges(self.row_splits[:-1], lengths)], splits_of(lengths))

    def equals(self, other: object) -> bool:
        """Whether `other` is a Ragged with the same rows and the same type of values (NaN equals NaN)."""
        if not isinstance(other, Ragged) or not np.array_equal(self.row_splits, other.row_splits):
            return False
        return same_column(self.values, other.values)

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, Ragged) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._trusted, (self.values, self.row_splits)

    @staticmethod
    def concat(columns: Sequence[Ragged]) -> Ragged:
        """The rows of all columns, one after another."""
        if len(columns) == 1:
            return columns[0]
        return Ragged._trusted(
            concat_columns([column.values for column in columns]),
            splits_of(np.concatenate([column.lengths() for column in columns])),
        )


class TensorRagged(Ragged):
    """A `Ragged` of torch tensors: `values` and `row_splits` are tensors, or `values` is a TensorRagged.

    `Ragged.to_torch()` and the torch datasets return it. Like a tensor it has `to` and `pin_memory`.
    """

    __slots__ = ()
    __module__ = "tfrecord.columns"

    row_splits: Any

    def __init__(self, values: Any, row_splits: Any) -> None:
        plain = Ragged(values.numpy() if isinstance(values, TensorRagged) else values, row_splits)
        made = plain._tensors()
        self.values, self.row_splits = made.values, made.row_splits

    def lengths(self) -> Any:
        """Number of values in each row: an int64 tensor (n,)."""
        return self.row_splits.diff()

    def __getitem__(self, index: Any) -> Any:
        if is_integer(index):
            return self.values[slice(*self.row_splits[as_position(index, len(self), "rows") :][:2].tolist())]
        return self.numpy()[index]._tensors().to(self.row_splits.device)

    def to_list(self) -> list[Any]:
        """The rows as lists of Python numbers, or lists."""
        return self.numpy().to_list()

    def numpy(self) -> Ragged:
        """A `Ragged` of numpy arrays; it shares memory with tensors on the CPU."""
        inner = self.values.numpy() if isinstance(self.values, TensorRagged) else self.values.cpu().numpy()
        return Ragged._trusted(inner, self.row_splits.cpu().numpy())

    def to(self, *args: Any, **kwargs: Any) -> TensorRagged:
        """Like `torch.Tensor.to`: the values change device and dtype, the row splits only the device."""
        values = self.values.to(*args, **kwargs)
        leaf = leaf_of(values)
        splits = self.row_splits.to(leaf.device, non_blocking=bool(kwargs.get("non_blocking", False)))
        return TensorRagged._trusted(values, splits)

    def pin_memory(self) -> TensorRagged:
        """A copy in pinned memory; a DataLoader calls this."""
        return TensorRagged._trusted(self.values.pin_memory(), self.row_splits.pin_memory())

    def to_nested(self) -> Any:
        """A nested tensor (jagged layout) over the values; the steps of a nested column are padded first."""
        flat = self.values.to_padded() if isinstance(self.values, TensorRagged) else self.values
        return nested_of(flat, self.row_splits)

    def mask(self, max_length: int | Sequence[int | None] | None = None) -> Any:
        """As `Ragged.mask`, a bool tensor."""
        return tensor_of(self.numpy().mask(max_length)).to(self.row_splits.device)

    @suggests_options
    def to_padded(self, fill_value: Any = 0, max_length: int | Sequence[int | None] | None = None) -> Any:
        """As `Ragged.to_padded`, a tensor on the values' device."""
        own, rest = limits_of(max_length)
        width = width_of(own, self.lengths())
        kept, flat = self, self.values
        if isinstance(self.values, TensorRagged):
            if len(self) and int(self.lengths().max()) > width:
                kept = self.numpy()._cut(width)._tensors().to(self.row_splits.device)
            flat = kept.values.to_padded(fill_value, rest)
        return padded(flat, kept.row_splits, width, fill_value)

    def equals(self, other: object) -> bool:
        """Whether `other` is a TensorRagged with the same rows."""
        return isinstance(other, TensorRagged) and self.numpy().equals(other.numpy())

    def __repr__(self) -> str:
        return f"Tensor{self.numpy()!r}"


def as_column(values: Any, what: str) -> Any:
    """`values` as a column; they are an array of numbers, a BytesColumn, a Ragged, or lists for one of these.

    NumPy's own strings are refused, because they lose trailing zeros.
    """
    if isinstance(values, (BytesColumn, Ragged)) or is_unknown(values):
        return values
    if not isinstance(values, (list, tuple)):
        values = np.asarray(values)
        if values.ndim == 0:
            raise ValueError(f"{what} must have at least one dimension, got a scalar")
    try:
        return _column_of(values)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what} {error}".lstrip()) from None


def _column_of(values: Any) -> Any:
    if isinstance(values, (list, tuple)) and any(map(is_list, values)):
        column = Ragged.from_list(values)
        dense = _dense_rows(column)
        return column if dense is None else dense
    if isinstance(values, (list, tuple)) and values and isinstance(values[0], bytes):
        return flat_values(values)
    array = np.asarray(values)
    if array.dtype == object and array.size and isinstance(array.flat[0], bytes):
        return flat_values(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"must be numbers, bool, a BytesColumn or a Ragged, got dtype {array.dtype}")
    return array


def _dense_rows(column: Ragged) -> Any:
    """The column as a dense one if all rows have the same length, else None."""
    inner = _dense_rows(column.values) if isinstance(column.values, Ragged) else column.values
    lengths = column.lengths()
    if inner is None or not len(lengths) or (lengths != lengths[0]).any() or is_unknown(inner):
        return None
    shape = (len(lengths), int(lengths[0]), *inner.shape[1:])
    return inner._reshaped(shape) if isinstance(inner, BytesColumn) else inner.reshape(shape)


def arrow_of(column: Any, binary_views: bool) -> Any:
    """Any column as an Arrow array."""
    if isinstance(column, np.ndarray):
        return dense_array(column)
    return column.to_arrow(binary_views=binary_views)


def leaf_of(column: Any) -> Any:
    """The innermost values: an array, a BytesColumn or a tensor."""
    while isinstance(column, Ragged):
        column = column.values
    return column


def nbytes_of(column: Any) -> int:
    """Bytes of the values of any column."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "O":  # images of different sizes
        return sum(image.nbytes for image in column)
    return int(column.nbytes)


def preview(column: Any, index: int) -> str:
    """One row of any column as short text."""
    return array_text(column[index]) if isinstance(column, np.ndarray) else str(column._preview(index))


def is_unknown(values: Any) -> bool:
    """Whether these are the values of a column of unknown type: an empty object array."""
    return isinstance(values, np.ndarray) and values.dtype.kind == "O" and values.size == 0


def same_column(left: Any, right: Any) -> bool:
    """Whether two columns have the same type and equal values (NaN equals NaN)."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.dtype.kind == right.dtype.kind == "O":  # images of different sizes
            return len(left) == len(right) and all(map(np.array_equal, left, right))
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    return type(left) is type(right) and not isinstance(left, np.ndarray) and bool(left.equals(right))


def concat_columns(columns: Sequence[Any]) -> Any:
    """Columns of one type, joined along the rows; ValueError if types, dtypes or shapes differ."""
    columns = [column for column in columns if not is_unknown(column)] or columns[:1]
    first = columns[0]
    for column in columns[1:]:
        same = type(column) is type(first)
        if same and isinstance(first, np.ndarray):
            same = column.dtype == first.dtype and column.shape[1:] == first.shape[1:]
        if not same:
            raise ValueError(f"{describe(first)} and {describe(column)} cannot be joined")
    if isinstance(first, np.ndarray):
        return np.concatenate(columns)
    return type(first).concat(columns)


def describe(column: Any) -> str:
    """A column's type in a few characters: `float32 (n, 3)`, `ragged int64`, `bytes`."""
    if isinstance(column, Ragged):
        return f"ragged {describe(column.values)}"
    tail = "".join(f", {extent}" for extent in column.shape[1:])
    name = "bytes" if isinstance(column, BytesColumn) else str(column.dtype)
    if name == "object":
        name = "unknown" if is_unknown(column) else "images"
    return f"{name} (n{tail})" if tail else name
