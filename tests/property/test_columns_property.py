"""Columns against plain Python lists, on whatever Hypothesis makes up."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, concat

byte_strings = st.lists(st.binary(max_size=20), max_size=12)
int_rows = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), max_size=8)
bytes_rows = st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=8)
step_rows = st.lists(st.lists(st.lists(st.integers(0, 255), max_size=4), max_size=4), max_size=6)


def splits(rows: list[Any]) -> Any:
    return np.cumsum([0, *map(len, rows)])


def flat(rows: list[Any]) -> list[Any]:
    return [value for row in rows for value in row]


def ragged_ints(rows: list[list[int]]) -> Ragged:
    return Ragged(np.array(flat(rows), np.int64), splits(rows))


def ragged_bytes(rows: list[list[bytes]]) -> Ragged:
    return Ragged(BytesColumn.from_list(flat(rows)), splits(rows))


def nested_ints(rows: list[list[list[int]]]) -> Ragged:
    return Ragged(ragged_ints(flat(rows)), splits(rows))


@st.composite
def scattered(draw: Any) -> tuple[BytesColumn, list[bytes]]:
    """Values anywhere in several buffers, overlapping, and what they are."""
    buffers = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
    places = []
    for _ in range(draw(st.integers(0, 12))):
        number = draw(st.integers(0, len(buffers) - 1))
        start = draw(st.integers(0, len(buffers[number])))
        places.append((number, start, draw(st.integers(0, len(buffers[number]) - start))))
    values = [buffers[number][start : start + length] for number, start, length in places]
    ids, offsets, lengths = (np.array([place[i] for place in places], np.int64) for i in range(3))
    return BytesColumn(tuple(buffers), offsets, lengths, ids), values


@st.composite
def index_of(draw: Any, count: int) -> Any:
    """A slice, positions or a mask over `count` rows."""
    number = st.integers(-count - 2, count + 2)
    choices = [
        st.builds(slice, st.none() | number, st.none() | number, st.none() | number.filter(bool)),
        st.lists(st.booleans(), min_size=count, max_size=count).map(lambda mask: np.array(mask, np.bool_)),
    ]
    if count:
        choices.append(st.lists(st.integers(-count, count - 1), max_size=10))
    return draw(st.one_of(choices))


def pick(rows: list[Any], index: Any) -> list[Any]:
    if isinstance(index, slice):
        return rows[index]
    if isinstance(index, np.ndarray):
        return [row for row, chosen in zip(rows, index, strict=True) if chosen]
    return [rows[i] for i in index]


@given(scattered(), st.data())
def test_bytes(made: tuple[BytesColumn, list[bytes]], data: Any) -> None:
    column, values = made
    index = data.draw(index_of(len(values)))
    chosen = column[index]
    assert column.to_list() == values and chosen.to_list() == pick(values, index)
    for part, expected in ((column, values), (chosen, pick(values, index))):
        assert part.compact().to_list() == expected and len(part.compact().buffers[0]) == part.nbytes
        assert pickle.loads(pickle.dumps(part)) == part == BytesColumn.from_list(expected)
        assert [bytes(part.view(i)) for i in range(len(part))] == expected
    assert concat([column, chosen, column]).to_list() == values + pick(values, index) + values


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=10))
def test_no_value_outside_its_buffer_gets_in(offset: int, length: int, buffer: bytes) -> None:
    if 0 <= offset <= len(buffer) and 0 <= length <= len(buffer) - offset:
        assert BytesColumn((buffer,), [offset], [length])[0] == buffer[offset : offset + length]
    else:
        with pytest.raises(ValueError, match="value 0 .*lies outside its buffer"):
            BytesColumn((buffer,), [offset], [length])


@given(st.lists(st.integers(-2, 6), max_size=6), st.integers(0, 5))
def test_no_bad_splits_get_in(row_splits: list[int], count: int) -> None:
    good = (
        bool(row_splits)
        and row_splits[0] == 0
        and row_splits[-1] == count
        and row_splits == sorted(row_splits)
    )
    if good:
        rows = Ragged(np.arange(count), row_splits).to_list()
        assert flat(rows) == list(range(count)) and len(rows) == len(row_splits) - 1
    else:
        with pytest.raises(ValueError, match="row_splits"):
            Ragged(np.arange(count), row_splits)


@given(
    st.one_of(
        int_rows.map(lambda rows: (ragged_ints(rows), rows)),
        bytes_rows.map(lambda rows: (ragged_bytes(rows), rows)),
        step_rows.map(lambda rows: (nested_ints(rows), rows)),
    ),
    st.data(),
)
def test_ragged(made: tuple[Ragged, list[Any]], data: Any) -> None:
    column, rows = made
    index = data.draw(index_of(len(rows)))
    chosen = column[index]
    assert column.to_list() == rows and chosen.to_list() == pick(rows, index)
    assert Ragged(chosen.values, chosen.row_splits) == chosen
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert concat([chosen, column]).to_list() == pick(rows, index) + rows
    assert chosen.lengths().tolist() == [len(row) for row in pick(rows, index)]


@given(int_rows, st.none() | st.integers(0, 6), st.sampled_from([0, -1, 2**40]))
def test_padding(rows: list[list[int]], width: int | None, fill: int) -> None:
    column = ragged_ints(rows)
    wide = max(map(len, rows), default=0) if width is None else width
    assert column.to_padded(fill, width).tolist() == [(row + [fill] * wide)[:wide] for row in rows]
    assert column.mask(width).tolist() == [([True] * len(row) + [False] * wide)[:wide] for row in rows]


@given(step_rows, st.none() | st.integers(0, 4), st.none() | st.integers(0, 4))
def test_padding_of_steps(rows: list[list[list[int]]], steps: int | None, values: int | None) -> None:
    column = nested_ints(rows)
    tall = max(map(len, rows), default=0) if steps is None else steps
    cut = [row[:tall] for row in rows]
    wide = max((len(step) for row in cut for step in row), default=0) if values is None else values
    expected = [
        [(step + [-1] * wide)[:wide] for step in row] + [[-1] * wide] * (tall - len(row)) for row in cut
    ]
    padded = column.to_padded(-1, (steps, values))
    assert padded.shape == (len(rows), tall, wide) and padded.tolist() == expected
    assert (column.mask((steps, values)) == (padded >= 0)).all()


@given(
    st.lists(
        st.tuples(
            st.none() | st.lists(st.binary(max_size=30), max_size=3),
            st.none() | st.lists(st.integers(-5, 5), max_size=3),
            st.binary(max_size=30),
        ),
        max_size=8,
    ),
    st.booleans(),
    st.data(),
)
def test_arrow_there_and_back(rows: list[Any], binary_views: bool, data: Any) -> None:
    pytest.importorskip("pyarrow")
    present = {name: np.array([row[i] is not None for row in rows], np.bool_) for i, name in enumerate("ab")}
    batch = ColumnBatch(
        {
            "a": ragged_bytes([row[0] or [] for row in rows]),
            "b": ragged_ints([row[1] or [] for row in rows]),
            "c": BytesColumn.from_list([row[2] for row in rows]),
        },
        present,
    )[data.draw(index_of(len(rows)))]
    made = batch.to_arrow(binary_views=binary_views)
    made.validate(full=True)
    assert ColumnBatch.from_arrow(made) == batch
    start = data.draw(st.integers(0, batch.num_rows))
    assert ColumnBatch.from_arrow(made.slice(start, 3)) == batch[start : start + 3]
    assert made.to_pylist() == [{"a": None, "b": None, **row} for row in batch.to_list()]
