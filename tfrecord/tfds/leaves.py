"""From the flat columns of records to the values of features, by column or by record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from indexer.errors import DecodeError
from tfrecord._columns.arrays import Int64Array, splits_of
from tfrecord._columns.batch import BytesColumn, Ragged
from tfrecord.features import FixedLenFeature, VarLenFeature
from tfrecord.tfds import features as tree
from tfrecord.tfds.folder import TFDSError
from tfrecord.tfds.values import Array, decode_image, decode_tensor

__all__ = ["Leaf", "Values", "leaves_of", "nested"]

_MOST_DEFAULT = 1 << 20
# How many values memory may be allocated for before the record is known to hold them.
_MOST_TRUSTED = 1 << 16


class Values(NamedTuple):
    """The values of one leaf for n records.

    ``levels`` divide ``items`` into sequences, outermost first, each by a length or by row splits; without
    levels there is one item per record. ``items`` are an array, a BytesColumn, a Ragged, or a list of arrays
    that may differ in shape. ``shapes`` holds the shape of each item if the records give it, before they are
    decoded.
    """

    levels: list[Any]
    items: Any
    shape: tree.Shape = ()
    dtype: str = "bytes"
    shapes: Any = None

    def column(self) -> Any:
        """One column of n rows: dense if the full shape is declared, else ragged."""
        column = self.items
        if isinstance(column, list):
            column = _ragged_of(column, self.shape, self.dtype)
        for level in reversed(self.levels):
            if not isinstance(level, int):
                column = _rows_of(column, level)
            elif isinstance(column, Ragged):
                column = _rows_of(column, np.arange(0, len(column) + 1, level))
            else:
                column = reshaped(column, (len(column) // level, level, *column.shape[1:]))
        return column

    def rows(self) -> list[Any]:
        """One value per record: a NumPy scalar, bytes, an array; a list of arrays if these differ in shape;
        a `Ragged` for sequences of sequences."""
        if not self.levels:
            rows = _listed(self.items)
            single = isinstance(self.items, Ragged) and not self.shape  # of an unknown connector
            return [row[0] if single and row.dtype == object and len(row) == 1 else row for row in rows]
        first = self.levels[0]
        if len(self.levels) > 1:
            items = self._replace(levels=self.levels[1:]).column()
        else:
            items = self.items.to_numpy() if isinstance(self.items, BytesColumn) else self.items
            items = _listed(items) if isinstance(items, Ragged) else items
        ends = first.tolist() if not isinstance(first, int) else list(range(0, len(items) + 1, first))
        rows = [items[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]
        return [_stacked(row, self.shape, self.dtype) for row in rows] if isinstance(items, list) else rows

    def record_of(self, item: int) -> int:
        """The row that an item belongs to."""
        for level in reversed(self.levels):
            item = item // level if isinstance(level, int) else int(np.searchsorted(level, item, "right")) - 1
        return item


def reshaped(column: Any, shape: tuple[int, ...]) -> Any:
    """A dense column in another shape, without a copy."""
    if isinstance(column, BytesColumn):
        return BytesColumn._trusted(column.buffers, column.offsets, column.lengths, column.buffer_ids, shape)
    return column.reshape(shape)


def _listed(items: Any) -> list[Any]:
    if isinstance(items, BytesColumn):
        return items.ravel_list() if len(items.shape) == 1 else list(items.to_numpy())
    if not isinstance(items, Ragged):
        return list(items)
    values = items.values.to_numpy() if isinstance(items.values, BytesColumn) else items.values
    ends = items.row_splits.tolist()
    return [values[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]


def _stacked(arrays: list[Array], shape: tree.Shape, dtype: str) -> Any:
    """Arrays of one shape as one array; others stay a list. Without arrays, unknown dimensions are 0."""
    if not arrays:
        return np.zeros((0, *(size or 0 for size in shape)), dtype)
    return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays


def _ragged_of(arrays: list[Array], shape: tree.Shape, dtype: str) -> Ragged:
    """Arrays that fit a shape with unknown dimensions, as rows: ragged down to the last unknown one."""
    depth = max(place for place, size in enumerate(shape) if size is None) + 1
    tail = tuple(size or 0 for size in shape[depth:])
    flat = [array.reshape(math.prod(array.shape[:depth]), *tail) for array in arrays]
    column: Any = np.concatenate(flat) if flat else np.zeros((0, *tail), dtype)
    for level in reversed(range(depth)):
        lengths = [np.full(math.prod(a.shape[:level]), a.shape[level], np.int64) for a in arrays]
        column = _rows_of(column, splits_of(np.concatenate(lengths or [np.zeros(0, np.int64)])))
    return column  # type: ignore[no-any-return]


def _rows_of(values: Any, splits: Int64Array) -> Ragged:
    """A Ragged of checked lengths and any dtype (the public class does not support complex numbers)."""
    return Ragged._trusted(values, splits)


@dataclass(frozen=True)
class Leaf:
    """One feature with values. ``path`` is its path in the nested dict, ``key`` its name in the
    record; ``levels`` are the lengths of the sequences around it, None if they vary."""

    path: tuple[str, ...]
    key: str
    levels: tuple[int | None, ...]
    feature: tree.Tensor | tree.Image | tree.Unknown
    decode: bool = True

    # ---- what is in the record -----------------------------------------------------------------------------

    def _parts(self) -> dict[str, tuple[tree.Shape, str]]:
        """The keys of the record, each with the shape and dtype of one item."""
        feature = self.feature
        if not isinstance(feature, tree.Tensor):
            return {self.key: ((), "bytes")}
        stored = "int64" if feature.dtype == "uint64" else feature.dtype  # which is stored by its bits
        value = (feature.shape, stored) if feature.encoding == "none" else ((), "bytes")
        if feature.shape.count(None) < 2:
            return {self.key: value}
        return {f"{self.key}/value": value, f"{self.key}/shape": ((len(feature.shape),), "int64")}

    def specs(self) -> dict[str, Any]:
        """The specs for the decoder: keys of the record to specs.

        Raises:
            TFDSError: the feature has a form that TFDS cannot read either.
        """
        if isinstance(self.feature, tree.Unknown):
            return {self.key: None}
        specs: dict[str, Any] = {}
        for key, (shape, dtype) in self._parts().items():
            whole = (*self.levels, *shape)
            nested = len(self.levels) > 1
            if whole.count(None) > 1 and (not nested or None in shape):
                raise TFDSError(
                    f"feature {self.key!r} has several unknown dimensions, {whole}, and no encoding"
                )
            if math.prod(size for size in (*whole, *self._shape) if size) >= 2**31:
                raise TFDSError(f"feature {self.key!r}: the shape {whole} has more than 2**31 - 1 elements")
            if None in whole and 0 in whole:
                raise TFDSError(
                    f"feature {self.key!r}: the shape {whole} has an unknown dimension beside a 0"
                )
            default = None if nested or None in whole else self._default(whole)
            try:
                if nested:
                    specs |= {f"{key}/ragged_row_lengths_{i}": VarLenFeature("int64") for i in self._nesting}
                    specs[f"{key}/ragged_flat_values"] = VarLenFeature(dtype)
                elif None in whole or math.prod(size or 0 for size in whole) > _MOST_TRUSTED:
                    specs[key] = VarLenFeature(dtype)
                else:
                    specs[key] = FixedLenFeature(whole, dtype, default)
            except ValueError as error:
                raise TFDSError(f"feature {self.key!r}: {error}") from None
        return specs

    @property
    def _shape(self) -> tree.Shape:
        """The shape of a decoded byte string."""
        encoded = isinstance(self.feature, tree.Image) or getattr(self.feature, "encoding", "none") != "none"
        return self.feature.shape if encoded else ()  # type: ignore[union-attr]

    @property
    def _nesting(self) -> range:
        return range(len(self.levels) - 1)

    def _default(self, shape: Sequence[int | None]) -> Any:
        """The value for an optional feature that a record lacks: the smallest number, False or b""."""
        feature = self.feature
        if not isinstance(feature, tree.Tensor) or not feature.optional or self.levels:
            return None
        if math.prod(size or 0 for size in shape) > _MOST_DEFAULT:
            raise TFDSError(f"feature {self.key!r} of shape {shape} is too large to be optional")
        if feature.encoding != "none" or feature.dtype == "bytes":
            return b""
        if feature.dtype == "bool":
            return False
        if feature.dtype == "float64":
            return -np.inf  # what the smallest float64 becomes as the float32 that is stored
        return np.finfo(feature.dtype).min if "float" in feature.dtype else np.iinfo(feature.dtype).min

    # ---- from columns to values ----------------------------------------------------------------------------

    def stored(self, batch: Any) -> Values:
        """The values as stored in a batch of flat columns.

        Raises:
            DecodeError: the shapes and lengths in a record disagree with its values.
        """
        if isinstance(self.feature, tree.Unknown):
            return Values([], batch[self.key])
        found = [self._read(batch, key, shape) for key, (shape, _) in self._parts().items()]
        levels, items = found[0]
        shapes = None
        if len(found) > 1:
            others, shapes = found[1]
            for level, other in zip(levels, others, strict=True):
                if not np.array_equal(level, other):
                    raise DecodeError(
                        "has a different number of shapes than of values", key=self.key, record=0
                    )
        return Values(levels, items, self.feature.shape, self.feature.dtype, shapes)

    def _read(self, batch: Any, key: str, shape: tree.Shape) -> tuple[list[Any], Any]:
        """The levels and items of one key of the records."""
        known = math.prod(size for size in shape if size is not None)
        if len(self.levels) > 1:
            lengths = [batch[f"{key}/ragged_row_lengths_{i}"] for i in self._nesting]
            flat = _divided(batch[f"{key}/ragged_flat_values"], known, key)
            levels = self._nested_levels(lengths, flat, key)
            return levels, _shaped(batch[f"{key}/ragged_flat_values"].values, shape)
        column = batch[key]
        if None not in (*self.levels, *shape):
            if isinstance(column, Ragged):
                column = _filled(column, tuple(size or 0 for size in (*self.levels, *shape)), key)
            (length,) = self.levels or (1,)
            # Rows without items need row splits: a length of 0 would not tell how many rows there are.
            levels = list(self.levels) if length else [np.zeros(len(column) + 1, np.int64)]
            return levels, _shaped(column, shape, len(column) * (length or 0))
        if self.levels == (None,):
            return [_divided(column, known, key)], _shaped(column.values, shape)
        (length,) = self.levels or (1,)
        splits = _divided(column, known * (length or 0), key)
        each = np.repeat(np.diff(splits) * known, length or 0)
        return list(self.levels), _rows_of(column.values, splits_of(each))

    def _nested_levels(self, lengths: list[Ragged], flat: Int64Array, key: str) -> list[Any]:
        """The row splits of sequences in sequences, from the lengths that the records hold."""
        levels: list[Any] = [lengths[0].row_splits]
        below = [column.row_splits for column in lengths[1:]] + [flat]
        for column, ends in zip(lengths, below, strict=True):
            values, rows = column.values, column.row_splits
            outside = (values < 0) | (values > int(ends[-1]))
            splits = splits_of(np.where(outside, 0, values))
            wrong = np.diff(splits[rows]) != np.diff(ends)
            wrong[np.searchsorted(rows, np.flatnonzero(outside), "right") - 1] = True
            if wrong.any():
                row = int(wrong.argmax())
                raise DecodeError("the lengths of its rows do not add up to its values", key=key, record=row)
            levels.append(splits)
        return levels

    def decoded(self, values: Values) -> Values:
        """Decode stored values to those of the feature.

        Raises:
            DecodeError: a byte string does not match the feature; ``record`` is the row.
        """
        feature, items = self.feature, values.items
        if isinstance(feature, tree.Unknown) or isinstance(feature, tree.Image) and not self.decode:
            return values
        if isinstance(feature, tree.Image):
            return self._each(values, lambda item, data: decode_image(data, feature))
        if feature.encoding != "none":
            shapes = values.shapes
            given = (lambda item: None) if shapes is None else (lambda item: shapes[item].tolist())
            return self._each(values, lambda item, data: decode_tensor(data, feature, given(item)))
        if isinstance(items, Ragged):
            return values._replace(items=_open_items(items, feature))
        return values._replace(items=items.view(np.uint64)) if feature.dtype == "uint64" else values

    def _each(self, values: Values, decode: Callable[[int, memoryview], Array]) -> Values:
        arrays = []
        feature = self.feature
        assert not isinstance(feature, tree.Unknown)
        for item in range(len(values.items)):
            try:
                array = decode(item, values.items.view(item))
            except DecodeError as error:
                raise DecodeError(error.reason, key=self.key, record=values.record_of(item)) from error
            sizes = zip(array.shape, feature.shape, strict=False)
            if array.ndim != len(feature.shape) or any(known not in (None, size) for size, known in sizes):
                reason = f"has shape {array.shape}, not {feature.shape}"
                raise DecodeError(reason, key=self.key, record=values.record_of(item))
            arrays.append(array)
        items = arrays if None in feature.shape else _stacked(arrays, feature.shape, feature.dtype)
        return values._replace(items=items, shapes=None)


def _filled(column: Ragged, shape: tuple[int, ...], key: str) -> Any:
    """Rows that must fill a shape, as a dense column."""
    lengths, count = column.lengths(), math.prod(shape)
    if (lengths != count).any():
        row = int((lengths != count).argmax())
        raise DecodeError(f"has {int(lengths[row])} values, not {count}", key=key, record=row)
    return reshaped(column.values, (len(column), *shape))


def _divided(column: Ragged, size: int, key: str) -> Int64Array:
    """Row splits that count units of ``size`` values."""
    if size == 1:
        return column.row_splits
    bad = column.lengths() % size != 0
    if bad.any():
        row = int(bad.argmax())
        count = int(column.lengths()[row])
        raise DecodeError(f"has {count} values, which are not rows of {size}", key=key, record=row)
    return column.row_splits // size


def _shaped(values: Any, shape: tree.Shape, count: int | None = None) -> Any:
    """Values as items of a shape; flat values determine how many."""
    sizes = tuple(size or 0 for size in shape)
    if count is None:
        count = len(values) // max(1, math.prod(sizes))
    return reshaped(values, (count, *sizes))


def _open_items(items: Ragged, feature: tree.Tensor) -> Any:
    """Rows of numbers as arrays of a shape with one unknown dimension."""
    values, shape = items.values, feature.shape
    if feature.dtype == "uint64":
        values = values.view(np.uint64)
    if shape[0] is None:
        size = math.prod(size or 0 for size in shape[1:])
        return _rows_of(_shaped(values, shape[1:]), items.row_splits // size)
    sizes = tuple(-1 if size is None else size for size in shape)
    return [row.reshape(sizes) for row in _listed(_rows_of(values, items.row_splits))]


def leaves_of(
    feature: tree.Feature,
    decode: bool,
    path: tuple[str, ...] = (),
    levels: tuple[int | None, ...] = (),
) -> Iterator[Leaf]:
    """The leaves of a tree of features, those in a dict sorted by name."""
    if isinstance(feature, tree.FeaturesDict):
        for name, inner in feature.items():
            yield from leaves_of(inner, decode, (*path, name), levels)
    elif isinstance(feature, tree.Sequence):
        yield from leaves_of(feature.feature, decode, path, (*levels, feature.length))
    elif isinstance(feature, tree.Tensor | tree.Image | tree.Unknown):
        yield Leaf(path, "/".join(path), levels, feature, decode)


def nested(paths: Sequence[tuple[str, ...]], values: Sequence[Any]) -> dict[str, Any]:
    """Values as nested dicts."""
    made: dict[str, Any] = {}
    for path, value in zip(paths, values, strict=True):
        at = made
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    return made
