"""Options of tables for Arrow, pandas and polars: what is text, and what may be null."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexer.errors import DecodeError
from indexer.options import near_matches
from tfrecord._columns.arrays import BoolArray
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.ragged import Ragged, arrow_of, is_unknown, leaf_of
from tfrecord._columns.to_arrow import masked, text_of
from tfrecord._optional import optional

Text = bool | Iterable[str]


@dataclass(frozen=True)
class TableOptions:
    """How columns become Arrow arrays.

    `text` is True (all byte strings are text), False, or the names of those that are. With `nullable`, a
    feature with exactly one value in every record that has it becomes a plain column, with nulls for the
    other records. `single` names these features; None means that the rows at hand decide.
    """

    binary_views: bool = False
    text: bool | frozenset[str] = False
    nullable: bool = False
    single: frozenset[str] | None = None

    def array(self, name: str, column: Any, present: BoolArray) -> Any:
        """A column as an Arrow array. Text that is not UTF-8 raises DecodeError with column and row."""
        is_text = self.text is True or (self.text is not False and name in self.text)
        if self.nullable and isinstance(column, Ragged) and self._is_single(name, column, present):
            places = np.cumsum(present) - 1
            values = self._values(name, column.values, is_text, present)
            array = optional("pyarrow").array(np.where(present, places, 0), mask=~present)
            return values.take(array)
        array = self._values(name, column, is_text, None)
        if isinstance(column, Ragged):
            return column_with_nulls(array, column._filled(present))
        return masked(array, present) if self.nullable else array

    def _is_single(self, name: str, column: Ragged, present: BoolArray) -> bool:
        if isinstance(column.values, Ragged):
            return False
        if self.single is not None:
            return name in self.single
        return bool(present.any()) and np.array_equal(column.lengths(), present)

    def _values(self, name: str, column: Any, is_text: bool, present: BoolArray | None) -> Any:
        leaf = leaf_of(column)
        if is_text and self.text is not True and not (isinstance(leaf, BytesColumn) or is_unknown(leaf)):
            raise TypeError(f"text names {name!r}, which holds {leaf.dtype} and not byte strings")
        if not is_text or not isinstance(leaf, BytesColumn):
            return arrow_of(column, self.binary_views)
        try:
            return text_of(arrow_of(column, False))
        except optional("pyarrow").ArrowInvalid:
            raise _not_text(name, column, present) from None


def table_options(
    names: Iterable[str], *, binary_views: bool = False, text: Text = False, nullable: bool = False
) -> TableOptions:
    """The options, checked against the names of the columns.

    Raises KeyError for a name in `text` that is not in `names`, and TypeError for a `text` of another type.
    """
    if not isinstance(text, (bool, np.bool_)):
        wanted = (text,) if isinstance(text, str) else text
        try:
            text = frozenset(wanted)
        except TypeError:
            raise TypeError(f"text is True, False or names of columns, got {type(text).__name__}") from None
        known = list(names)
        for name in text:
            if name not in known:
                raise KeyError(f"text names {name!r}, which is not a column{near_matches(name, known)}")
    return TableOptions(
        bool(binary_views), text if isinstance(text, frozenset) else bool(text), bool(nullable)
    )


def column_with_nulls(array: Any, present: BoolArray) -> Any:
    """A large list in which rows that are not present are null."""
    if present.all():
        return array
    pa = optional("pyarrow")
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        array.type, len(array), [validity, array.buffers()[1]], children=[array.values]
    )


def _not_text(name: str, column: Any, present: BoolArray | None) -> DecodeError:
    """The error for the first row with bytes that are not UTF-8."""
    for row in range(len(column)):
        values = column[row]
        try:
            for value in _strings(values):
                value.decode()
        except UnicodeDecodeError:
            place = row if present is None else int(np.flatnonzero(present)[row])
            return DecodeError("is not UTF-8 text; leave it as bytes", key=name, record=place)
    return DecodeError("the values changed while they were read", key=name)


def _strings(values: Any) -> Iterable[bytes]:
    if isinstance(values, bytes):
        return [values]
    leaf = leaf_of(values)
    return leaf.ravel_list() if isinstance(leaf, BytesColumn) else ()


def pandas_of(table: Any, nullable: bool) -> Any:
    """An Arrow table as a pandas DataFrame; with `nullable` in pandas' own nullable types, so that integers
    stay integers even if there are nulls."""
    pandas = optional("pandas")
    if not nullable:
        return table.to_pandas()
    pa = optional("pyarrow")
    types = {
        getattr(pa, name.lower())(): getattr(pandas, f"{name}Dtype")()
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    }
    types |= {pa.float32(): pandas.Float32Dtype(), pa.float64(): pandas.Float64Dtype()}
    types[pa.bool_()] = pandas.BooleanDtype()
    return table.to_pandas(types_mapper=types.get)
