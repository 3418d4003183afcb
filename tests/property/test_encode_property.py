"""Whatever is written, protobuf and this library's parsers read back; both engines write the same bytes."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecord import example_pb2
from tfrecord._kernels import encode_reference
from tfrecord._kernels.engine import encode_kernel
from tfrecord._writing import encoder as _encoder
from tfrecord._writing import values as _values
from tfrecord._writing.flat_columns import flatten_batch
from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord.encode import encode_example, encode_sequence_example

KERNEL: Any = encode_kernel
FIELDS = {"byte": "bytes_list", "float": "float_list", "int": "int64_list"}

ints = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
floats = st.floats(width=32)
strings = st.binary(max_size=200) | st.text(max_size=50)
keys = st.text(max_size=20)


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=8) | st.lists(values, min_size=60, max_size=140)


def shaped(kind: str, values: list[Any]) -> st.SearchStrategy[Any]:
    """The same values as a list, tuple, array, strided or swapped array, nested list."""
    dtype = {"byte": object, "float": np.float32, "int": np.int64}[kind]
    array = np.empty(len(values), dtype)
    array[:] = values
    forms: list[Any] = [
        values,
        tuple(values),
        array,
        np.repeat(array, 3)[::3],
        array.reshape(1, -1),
        [values],
    ]
    if kind != "byte":
        forms += [array.astype(array.dtype.newbyteorder()), list(array)]
    if len(values) == 1:
        forms += [values[0], array[0], array.reshape(())]
    return st.sampled_from(forms)


features = st.one_of(
    lists(strings).map(lambda values: ("byte", values)),
    lists(floats).map(lambda values: ("float", values)),
    lists(ints).map(lambda values: ("int", values)),
)


@st.composite
def datums(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A datum, and its values as flat lists."""
    plain = draw(st.dictionaries(keys, features, max_size=6))
    datum = {key: (draw(shaped(kind, values)), kind) for key, (kind, values) in plain.items()}
    return datum, plain


def as_bytes(values: list[Any]) -> list[bytes]:
    return [value.encode() if isinstance(value, str) else value for value in values]


def same(kind: str, stored: Any, values: list[Any]) -> bool:
    assert stored.WhichOneof("kind") == FIELDS[kind]
    found = list(getattr(stored, FIELDS[kind]).value)
    if kind == "float":
        return struct.pack(f"{len(found)}d", *found) == struct.pack(f"{len(values)}d", *values) or bool(
            np.array_equal(found, values, equal_nan=True)
        )
    return found == (as_bytes(values) if kind == "byte" else values)


@given(datums())
def test_protobuf_reads_what_was_written(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    datum, plain = case
    encoded = encode_example(datum)
    message = example_pb2.Example.FromString(encoded)
    assert set(message.features.feature) == set(plain)
    for key, (kind, values) in plain.items():
        assert same(kind, message.features.feature[key], values)
    assert message.ByteSize() == len(encoded) or not plain


@given(
    st.dictionaries(
        keys,
        st.tuples(st.sampled_from(["byte", "float", "int"]), st.lists(st.integers(0, 5), max_size=6)),
        max_size=4,
    ),
    st.data(),
)
def test_protobuf_reads_sequences(shape: dict[str, tuple[str, list[int]]], data: st.DataObject) -> None:
    values = {"byte": strings, "float": floats, "int": ints}
    plain = {
        key: (kind, [data.draw(st.lists(values[kind], min_size=n, max_size=n)) for n in sizes])
        for key, (kind, sizes) in shape.items()
    }
    sequence = {
        key: ([data.draw(shaped(kind, step)) for step in steps], kind) for key, (kind, steps) in plain.items()
    }
    message = example_pb2.SequenceExample.FromString(encode_sequence_example({"n": (1, "int")}, sequence))
    assert set(message.feature_lists.feature_list) == set(plain)
    for key, (kind, steps) in plain.items():
        stored = message.feature_lists.feature_list[key].feature
        assert len(stored) == len(steps)
        assert all(same(kind, found, step) for found, step in zip(stored, steps, strict=True))


def encoders() -> tuple[Any, Any]:
    """Both engines' record encoders."""
    rules = (_values.check_key, _values.split_spec, _values.to_values, _values.to_steps, _encoder._too_large)
    more = (np.ndarray, _encoder._INT_SCALARS, _encoder._FLOAT_SCALARS)
    return tuple(
        module.RecordEncoder(_values.TYPE_NAMES, *rules, *more) for module in (KERNEL, encode_reference)
    )  # type: ignore[return-value]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | strings | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=8,
)


@pytest.mark.skipif(KERNEL is None, reason="only the reference engine runs")
@given(
    st.dictionaries(keys, st.tuples(anything, st.sampled_from(["byte", "float", "int "])), max_size=3),
    st.booleans(),
)
def test_both_engines_write_and_refuse_the_same(datum: dict[str, Any], steps: bool) -> None:
    results = []
    for encoder in encoders():
        try:
            results.append(encoder.encode({} if steps else datum, datum if steps else None, 2**31 - 1, True))
        except (TypeError, ValueError) as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1]


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """Columns of one number of rows, and which are present."""
    rows = draw(st.integers(0, 6))
    columns: dict[str, Any] = {}
    present: dict[str, Any] = {}
    for key in draw(st.lists(keys, max_size=5, unique=True)):
        sizes = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
        splits = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        count = int(splits[-1])
        kind = draw(st.sampled_from(["byte", "float", "int"]))
        ragged = draw(st.booleans())
        total = count if ragged else 2 * rows
        if kind == "byte":
            values: Any = BytesColumn.from_list(
                draw(st.lists(st.binary(max_size=9), min_size=total, max_size=total))
            )
            if not ragged:
                values = BytesColumn(values.buffers, values.offsets, values.lengths, shape=(rows, 2))
        else:
            numbers = draw(st.lists(floats if kind == "float" else ints, min_size=total, max_size=total))
            values = np.array(numbers, np.float32 if kind == "float" else np.int64)
            values = values if ragged else values.reshape(rows, 2)
        columns[key] = Ragged(values, splits) if ragged else values
        present[key] = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), bool)
    return {"columns": columns, "present": present, "rows": rows}


def rows_of(batch: ColumnBatch) -> list[dict[str, Any]]:
    def spec(value: Any) -> tuple[Any, str]:
        if isinstance(value, BytesColumn):
            return value.to_list(), "byte"
        return value, "int" if np.asarray(value).dtype == np.int64 else "float"

    return [
        {key: spec(batch[key][i]) for key in batch if batch.present[key][i]} for i in range(batch.num_rows)
    ]


def byte_rows(batch: ColumnBatch) -> list[dict[str, Any]]:
    """Rows as datums; a dense BytesColumn gives a list of bytes a row."""
    found = rows_of(batch)
    for key in batch:
        column = batch[key]
        if isinstance(column, BytesColumn) and len(column.shape) == 2:
            flat = BytesColumn(column.buffers, column.offsets, column.lengths).to_list()
            for i, row in enumerate(found):
                if key in row:
                    row[key] = (flat[2 * i : 2 * i + 2], "byte")
    return found


@given(batches())
@settings(max_examples=60)
def test_a_batch_is_its_rows(case: dict[str, Any]) -> None:
    batch = ColumnBatch(case["columns"], case["present"], case["rows"])
    rows = _encoder.RowFrames(flatten_batch(batch, None))
    one_by_one = [_encoder.encode_frame(row, None) for row in byte_rows(batch)]
    assert rows.frames(0, batch.num_rows) == b"".join(one_by_one)
    assert rows.frames(0, batch.num_rows, 2) == b"".join(one_by_one[::2])
    assert rows.lengths.tolist() == [len(frame) - 16 for frame in one_by_one]


@given(batches(), batches())
@settings(max_examples=60)
def test_a_batch_of_sequences_is_the_same_in_both_engines(one: dict[str, Any], two: dict[str, Any]) -> None:
    if KERNEL is None:
        pytest.skip("only the reference engine runs")
    rows = min(one["rows"], two["rows"])
    context = ColumnBatch(one["columns"], one["present"], one["rows"])[:rows]
    steps = {
        key: column for key, column in two["columns"].items() if isinstance(column, (Ragged, np.ndarray))
    }
    lists_of = ColumnBatch(steps, {key: two["present"][key] for key in steps}, two["rows"])[:rows]
    flat = flatten_batch(SequenceBatch(context, lists_of), None)
    found = []
    for module in (KERNEL, encode_reference):
        encoder = module.RowEncoder(flat.columns, rows, flat.num_context, True, 2**31 - 1)
        sizes = np.zeros(rows, np.uint64)
        assert encoder.measure(sizes) == (0, 0, 0) or encoder.measure(sizes)[0] == 0
        found.append((sizes.tolist(), encoder.frames(0, rows, 1, int(sizes.sum()) + 16 * rows)))
    assert found[0] == found[1]


@given(datums())
def test_the_librarys_own_parser_reads_it(case: tuple[dict[str, Any], dict[str, Any]]) -> None:
    parse = pytest.importorskip("tfrecord.parse")
    datum, plain = case
    batch = parse.parse_example([encode_example(datum)])
    assert set(batch) == set(plain)
    for key, (kind, values) in plain.items():
        row = batch[key][0]
        found = row.to_list() if kind == "byte" else row
        assert (
            np.array_equal(found, as_bytes(values), equal_nan=False)
            if kind == "byte"
            else np.array_equal(found, np.array(values, found.dtype), equal_nan=kind == "float")
        )


@given(batches())
@settings(max_examples=40)
def test_a_file_of_batches_is_read_back(case: dict[str, Any]) -> None:
    from tfrecord.writer import TFRecordWriter

    batch = ColumnBatch(case["columns"], case["present"], case["rows"])
    file = io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    data = file.getvalue()
    assert data[: len(data) // 2] == data[len(data) // 2 :]
    assert writer.num_records == 2 * batch.num_rows
