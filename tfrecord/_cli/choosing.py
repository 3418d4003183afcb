"""Positions and conditions on the command line."""

from __future__ import annotations

import operator
import re
from functools import reduce
from typing import Any, NamedTuple

import click
import numpy as np
import numpy.typing as npt

from tfrecord._cli.common import no_feature, typed
from tfrecord._columns.batch import BytesColumn, Ragged
from tfrecord._reading.index_columns import COMPARISONS
from tfrecord.reader import TFRecordReader

_BATCH = 4096
_OPERATORS = {"=": operator.eq, **COMPARISONS}
_POSITIONS = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d+))?|-?\d+")


class Condition(NamedTuple):
    """`column operator values`: true if it holds for any of the values (`!=`: for all)."""

    column: str
    sign: str
    values: tuple[Any, ...]

    def holds(self, column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """For each entry of an array; a masked entry, which is a missing value, never fits."""
        compare = _OPERATORS[self.sign]
        results = [
            np.asarray(compare(column, _as_stored(value, column, self.column))) for value in self.values
        ]
        fits = reduce(np.logical_and if self.sign == "!=" else np.logical_or, results)
        return fits & ~np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else fits


def _as_stored(value: str, column: npt.NDArray[Any], name: str) -> Any:
    """The value in the column's own type: for float32, 0.1 means the nearest float32."""
    if column.dtype.kind in "SO":
        return value.encode()
    try:
        return np.float32(value) if column.dtype.kind == "f" else int(value, 0)
    except ValueError:
        try:
            return float(value)
        except ValueError:
            hint = "; for several conditions repeat --where" if " and " in value else ""
            raise click.UsageError(f"{name!r} holds numbers; {value!r} is not a number{hint}") from None


def parse_condition(text: str) -> Condition:
    """`label=3`, `label=1,2`, `size>=100`, `name!=cat`. Raises BadParameter."""
    text = typed(text)
    match = re.match(r"(.+?)(==|!=|<=|>=|=|<|>)(.*)", text, re.DOTALL)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a condition; write label=3, label=1,2 or size>=100")
    return Condition(match[1].strip(), match[2], tuple(match[3].split(",")))


def parse_positions(text: str) -> list[tuple[int | None, int | None, int | None] | int]:
    """`5`, `-1`, `10:20`, `::2`, or several separated by commas. Raises BadParameter."""
    found: list[tuple[int | None, int | None, int | None] | int] = []
    for part in text.split(","):
        match = _POSITIONS.fullmatch(part.strip())
        if match is None:
            raise click.BadParameter(f"{part!r} is not a position; write 5, -1, 10:20 or ::2")
        if ":" in part:
            start, stop, step = (int(group) if group else None for group in match.groups())
            if step == 0:
                raise click.BadParameter(f"{part!r}: the step cannot be zero")
            found.append((start, stop, step))
        else:
            found.append(int(part))
    return found


def positions_of(
    items: list[tuple[int | None, int | None, int | None] | int], count: int
) -> npt.NDArray[np.int64]:
    """Positions from 0 in `count` records. Raises BadParameter for one that does not exist."""
    parts = []
    for item in items:
        if isinstance(item, tuple):
            parts.append(np.arange(*slice(*item).indices(count), dtype=np.int64))
            continue
        if not -count <= item < count:
            there = f"there are {count}, from 0 to {count - 1}" if count else "there are none"
            raise click.BadParameter(f"there is no record {item}; {there}")
        parts.append(np.array([item % count], np.int64))
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def positions_where(reader: TFRecordReader, conditions: list[Condition]) -> npt.NDArray[np.int64]:
    """Positions where all conditions hold, ascending; from index columns if stored, else by reading the
    feature."""
    keep = np.ones(len(reader), np.bool_)
    for condition in conditions:
        columns = reader.index.columns
        if condition.column in columns:
            keep &= condition.holds(columns[condition.column])
        else:
            keep &= _by_reading(reader, condition)
    return np.flatnonzero(keep).astype(np.int64, copy=False)


def _by_reading(reader: TFRecordReader, condition: Condition) -> npt.NDArray[np.bool_]:
    """Test the feature itself: a record matches if any of its values does."""
    parts, seen = [], False
    if reader.record_type == "bytes":
        raise click.UsageError("the records are not Examples and have no features")
    try:
        batches = reader.batches(_BATCH, columns=[condition.column])
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    for batch in batches:
        context: Any = getattr(batch, "context", batch)
        if condition.column not in context:
            parts.append(np.zeros(batch.num_rows, np.bool_))
            continue
        column = context[condition.column]
        seen = seen or bool(context.present[condition.column].any())
        parts.append(rows_that_fit(column, condition))
    if not seen and parts:
        raise click.UsageError(no_feature([condition.column], reader.schema))
    return np.concatenate(parts) if parts else np.zeros(0, np.bool_)


def rows_that_fit(column: Any, condition: Condition) -> npt.NDArray[np.bool_]:
    """Which rows of a feature's column have a value that fits."""
    values = column.values if isinstance(column, Ragged) else column
    flat = (
        values.to_numpy().reshape(-1) if isinstance(values, BytesColumn) else np.asarray(values).reshape(-1)
    )
    if not len(flat):
        return np.zeros(len(column), np.bool_)
    fits = condition.holds(flat)
    if not isinstance(column, Ragged):
        return np.asarray(fits.reshape(len(column), -1).any(axis=1))
    sums = np.concatenate(([0], np.cumsum(fits)))
    return np.asarray(sums[column.row_splits[1:]] > sums[column.row_splits[:-1]])
