"""Every kind of column over every border: Arrow, pandas, polars, DuckDB, lists, files, our own batches."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfrecord
from tfrecord import BytesColumn, ColumnBatch, DecodeError, Ragged, SequenceBatch, TFRecordWriter
from tfrecord._columns import to_arrow
from tfrecord._reading.payload_batches import batch_of_frames
from tfrecord.columns import concat

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

slow = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "bool"]


@st.composite
def strings(draw: Any, count: int) -> BytesColumn:
    """Byte strings in one buffer or several, in any order, with values of views' inline size and more."""
    buffers = draw(st.lists(st.binary(min_size=20, max_size=40), min_size=1, max_size=3))
    ids = [draw(st.integers(0, len(buffers) - 1)) for _ in range(count)]
    starts = [draw(st.integers(0, 20)) for _ in range(count)]
    lengths = [draw(st.integers(0, len(buffers[i]) - start)) for i, start in zip(ids, starts, strict=True)]
    return BytesColumn(tuple(buffers), starts, lengths, ids if len(buffers) > 1 else [0] * count)


@st.composite
def numbers(draw: Any, count: int) -> Any:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype == np.bool_:
        return np.frombuffer(data, np.uint8) % 2 == 1
    return np.frombuffer(data, dtype).copy()


@st.composite
def rows(draw: Any, count: int, levels: int) -> Any:
    if levels == 0:
        return draw(st.one_of(numbers(count), strings(count)))
    lengths = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    splits = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int64)
    return Ragged(draw(rows(int(splits[-1]), levels - 1)), splits)


@st.composite
def batches(draw: Any, levels: int = 2) -> ColumnBatch:
    count = draw(st.integers(0, 4))
    columns: dict[str, Any] = {}
    present: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True)):
        column = draw(rows(count, draw(st.integers(0, levels))))
        flags = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
        if isinstance(column, Ragged):
            column = Ragged.concat(
                [column[i : i + 1] if flags[i] else column[0:0] for i in range(count)] or [column]
            )
            lengths = np.zeros(count, np.int64)
            lengths[flags] = column.lengths()
            column = Ragged(column.values, np.concatenate(([0], np.cumsum(lengths))).astype(np.int64))
            present[name] = flags
        columns[name] = column
    if draw(st.booleans()):
        columns["unknown"] = Ragged(np.empty(0, object), np.zeros(count + 1, np.int64))
        present["unknown"] = np.zeros(count, bool)
    if draw(st.booleans()):
        columns["vector"] = np.arange(count * 2, dtype=np.float32).reshape(count, 2)
        columns["pair"] = BytesColumn((b"abcdefgh",), range(count * 2), [1] * count * 2, shape=(count, 2))
    return ColumnBatch(columns, present, count)


@slow
@given(batches(), st.booleans())
def test_arrow_and_back(batch: ColumnBatch, views: bool) -> None:
    table = batch.to_arrow(binary_views=views)
    table.validate(full=True)
    assert ColumnBatch.from_arrow(table) == batch
    assert ColumnBatch.from_arrow(pa.table(batch)) == batch
    assert ColumnBatch.from_arrow(pa.Table.from_batches([table, table])) == concat([batch, batch])
    for part in (slice(0, 0), slice(1, 3), slice(None, None, 2)):
        assert ColumnBatch.from_arrow(batch[part].to_arrow(binary_views=views)) == batch[part]
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    assert ColumnBatch.from_arrow(pa.ipc.open_stream(sink.getvalue()).read_all()) == batch


@slow
@given(batches())
def test_pickles_and_joins(batch: ColumnBatch) -> None:
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert concat([batch[:1], batch[1:]]) == batch
    assert concat(iter([batch])) == batch


@slow
@given(batches(levels=1))
def test_nulls_survive_as_scalars(batch: ColumnBatch) -> None:
    """With `nullable` a null comes back as one, in plain columns too."""
    again = ColumnBatch.from_arrow(batch.to_arrow(nullable=True))
    for name, column in batch.items():
        assert np.array_equal(again.present[name], batch.present[name])
        if isinstance(column, Ragged) and not isinstance(again[name], Ragged):
            values = again[name][batch.present[name]]
            assert ColumnBatch({"x": values}) == ColumnBatch({"x": column.values})
        else:
            assert ColumnBatch({"x": again[name]}) == ColumnBatch({"x": column})


def written(columns: Any, **options: Any) -> ColumnBatch:
    """What a reader finds after `columns` were written."""
    target = io.BytesIO()
    TFRecordWriter(target).write_batch(columns, **options)
    return tfrecord.parse_example(batch_of_frames("", 0, target.getvalue()).payloads)


FRAMES: list[tuple[str, Callable[[ColumnBatch], Any]]] = [
    ("pandas", lambda batch: batch.to_pandas()),
    ("pandas nullable", lambda batch: batch.to_pandas(nullable=True)),
    ("polars", lambda batch: batch.to_polars()),
    ("polars nullable", lambda batch: polars.DataFrame(batch.to_arrow(nullable=True))),
    ("arrow", lambda batch: batch.to_arrow()),
    ("views", lambda batch: batch.to_arrow(binary_views=True)),
    ("duckdb", lambda batch: duckdb.from_arrow(batch.to_arrow())),
    ("own", lambda batch: batch),
]


@pytest.mark.parametrize(("name", "make"), FRAMES)
def test_files_and_back_by_every_library(name: str, make: Callable[[ColumnBatch], Any]) -> None:
    records = [
        {
            "i": ([1, 2], "int"),
            "f": ([1.5, float("nan")], "float"),
            "b": ([b"a\0", b""], "bytes"),
            "one": (7, "int"),
        },
        {"i": ([], "int"), "f": (2.5, "float"), "empty": ([], "bytes")},
        {"b": (b"x" * 30, "bytes"), "one": (2**63 - 1, "int"), "empty": ([], "bytes")},
    ]
    batch = tfrecord.parse_example([tfrecord.encode_example(record) for record in records])
    again = written(make(batch))
    if "empty" not in again:  # pandas cannot tell what empty rows would have held
        assert name.startswith("pandas")
        batch = batch.select([key for key in batch if key != "empty"])
    assert again == batch
    assert len(written(make(batch[0:0]))) == 0


def test_libraries_take_batches_without_a_call() -> None:
    batch = ColumnBatch({"x": Ragged.from_list([[1], [2, 3]]), "w": [b"a", b"b"]})
    assert polars.DataFrame(batch)["x"].to_list() == [[1], [2, 3]]
    assert pa.table(batch).to_pylist() == [{"x": [1], "w": b"a"}, {"x": [2, 3], "w": b"b"}]
    assert duckdb.sql("select w from batch").fetchall() == [(b"a",), (b"b",)]
    assert pa.array(batch["x"]).to_pylist() == [[1], [2, 3]] and pa.array(batch["w"]).to_pylist() == [
        b"a",
        b"b",
    ]
    assert polars.Series(batch["x"]).to_list() == [[1], [2, 3]]
    assert pa.schema(batch) == batch.to_arrow().schema
    sequence = SequenceBatch(ColumnBatch({"n": [1, 2]}), ColumnBatch({"x": batch["x"]}))
    assert pa.table(sequence).column_names == ["context/n", "feature_lists/x"]
    assert SequenceBatch.from_arrow(pa.table(sequence)) == sequence
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert list(pandas.DataFrame.from_arrow(batch)) == ["x", "w"]
    for one in (batch, sequence):  # not a table of the names of columns
        with pytest.raises(TypeError, match="to_pandas"):
            pandas.DataFrame(one)


def test_len_is_the_number_of_rows_and_keys_are_columns() -> None:
    batch = ColumnBatch({"a": [1, 2, 3], "b": [1, 2, 3]})
    assert len(batch) == 3 and len(batch.keys()) == len(batch.values()) == len(batch.items()) == 2
    assert list(batch) == ["a", "b"] and "a" in batch and dict(batch).keys() == {"a", "b"}
    assert len(SequenceBatch(batch, batch)) == 3
    assert len(ColumnBatch({}, None, 5)) == 5


def test_empty_slices_of_bytes_over_several_buffers() -> None:
    column = BytesColumn((b"a" * 30, b"b" * 30), [0, 1], [20, 20], [0, 1])
    for options in ({}, {"binary_views": to_arrow.knows_views()}):
        made = ColumnBatch({"x": column, "r": Ragged(column, [0, 2, 2])})[0:0].to_arrow(**options)
        made.validate(full=True)
        assert made.num_rows == 0
    assert ColumnBatch({"x": column})[0:0].to_polars().height == 0


def test_columns_of_nothing_known_are_missing() -> None:
    nothing = pa.array([[], None, []], pa.list_(pa.null()))
    assert list(written(pa.table({"id": [1, 2, 3], "note": [None] * 3, "list": nothing}))) == ["id"]
    unknown = Ragged(np.empty(0, object), [0, 0])
    assert list(written(ColumnBatch({"x": unknown, "y": [1]}))) == ["y"]
    kindless = bytes.fromhex("0a070a050a01611200")  # the feature `a` without a kind
    batch = tfrecord.parse_example([kindless])
    assert list(batch) == ["a"] and len(written(batch)) == 1 and not list(written(batch))


def test_tables_of_nulls_and_of_no_columns() -> None:
    pairs = pa.list_(pa.null(), 2)
    assert list(written(pa.table({"id": [1, 2], "n": pa.array([None, None], pairs)}))) == ["id"]
    with pytest.raises(ValueError, match="'n' has a null among a list's values"):
        written(pa.table({"n": pa.array([[None, None], None], pairs)}))
    with pytest.raises(TypeError, match="the Series is not a table"):
        written(polars.Series("a", [1, 2]))
    sparse = pandas.DataFrame({"x": pandas.arrays.SparseArray([0, 1, 0])})
    assert written(sparse).to_list() == [{"x": [0]}, {"x": [1]}, {"x": [0]}]


def test_sequences_and_records_of_bytes_of_a_reader(tmp_path: Path) -> None:
    path, again = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    with TFRecordWriter(path) as writer:
        for i in range(3):
            writer.write({"x": (i, "int")}, {"l": ([[1] * i, [2]], "int")})
    with tfrecord.TFRecordReader(path) as reader:
        for data in (reader, reader.to_arrow(), reader.to_polars(), reader[:].to_arrow()):
            assert tfrecord.write(again, data) == 3
            with tfrecord.TFRecordReader(again) as found:
                assert found.record_type == "sequence_example" and found[:] == reader[:]
    with tfrecord.TFRecordReader(path, record_type="bytes") as reader:
        with pytest.raises(TypeError, match="write each with write_bytes"):
            tfrecord.write(again, reader)


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [([[300]], "uint8"), ([[1.5]], "int64"), ([[-1]], "uint64"), ([[2]], "bool"), ([[1e39]], "float32")],
)
def test_lists_that_a_type_does_not_hold(rows: Any, dtype: str) -> None:
    for made in (rows, [np.array(row) for row in rows]):
        with pytest.raises(ValueError, match=f"does not fit {dtype}"):
            Ragged.from_list(made, dtype)
    assert Ragged.from_list([[1], [0]], dtype).values.dtype == np.dtype(dtype)
    assert Ragged.from_list([[2**64 - 1]], np.uint64).to_list() == [[2**64 - 1]]


def test_text_of_numbers_is_refused() -> None:
    batch = ColumnBatch({"n": [1, 2], "t": [b"a", b"b"], "u": Ragged(np.empty(0, object), [0, 0, 0])})
    for wrong in (batch.to_arrow, batch.to_pandas, batch.to_polars):
        with pytest.raises(TypeError, match="text names 'n', which holds int64 and not byte strings"):
            wrong(text=["t", "n"])
    assert batch.to_arrow(text=["t", "u"]).to_pylist() == batch.to_arrow(text=True).to_pylist()


def test_steps_without_a_kind_go_round() -> None:
    unknown = Ragged(np.empty(0, object), [0, 0, 0])
    batch = SequenceBatch(ColumnBatch({"c": [1, 2]}), ColumnBatch({"steps": Ragged(unknown, [0, 2, 2])}))
    target = io.BytesIO()
    TFRecordWriter(target).write_batch(batch)
    payloads = batch_of_frames("", 0, target.getvalue()).payloads
    assert tfrecord.parse_sequence_example(payloads).feature_lists == batch.feature_lists


ENCODED = [
    polars.Series(["a", "b", None, "a"], dtype=polars.Categorical),
    polars.Series(["a", "b", None, "a"], dtype=polars.Enum(["a", "b"])),
    pandas.Series(["a", "b", None, "a"], dtype="category"),
    pa.array(["a", "b", None, "a"]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0], pa.int8()), pa.array(["a", "b"], pa.string_view())
    ),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.uint16()), pa.array(["a", "b", None])),
    pa.compute.run_end_encode(pa.array(["a", "b", None, "a"])),
]


@pytest.mark.parametrize("values", ENCODED, ids=range(len(ENCODED)))
def test_categories_are_their_values(values: Any) -> None:
    frame = {"polars": polars.DataFrame, "pandas": pandas.DataFrame}.get(
        type(values).__module__.split(".")[0], pa.table
    )
    batch = ColumnBatch.from_arrow(frame({"x": values}))
    assert batch["x"].to_list() == [b"a", b"b", b"", b"a"]
    assert batch.present["x"].tolist() == [True, True, False, True]
    assert not len(ColumnBatch.from_arrow(frame({"x": values[:0]})))


def test_list_views_in_any_order() -> None:
    for kind, width in ((pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())):
        array = kind.from_arrays(pa.array([2, 0, 0], width), pa.array([1, 2, 0], width), pa.array([1, 2, 3]))
        batch = ColumnBatch.from_arrow(pa.table({"x": array}))
        assert batch["x"].to_list() == [[3], [1, 2], []]
        assert ColumnBatch.from_arrow(pa.table({"x": array[1:]}))["x"].to_list() == [[1, 2], []]


REFUSED = [
    pa.table({"when": pa.array([1], pa.timestamp("s"))}),
    pa.table({"when": pa.array([[1]], pa.list_(pa.date32()))}),
    pa.table({"when": pa.array([1], pa.decimal128(5))}),
    pa.table({"when": pa.array([{"a": 1}])}),
    pa.table({"when": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}),
    pandas.DataFrame({"when": pandas.to_datetime(["2020-01-01"])}),
    pandas.DataFrame({"when": [1, "a"]}),
    pandas.DataFrame({"when": [1j]}),
    polars.DataFrame({"when": polars.Series([1], dtype=polars.Duration)}),
    {"when": np.array(["2020-01-01"], "M8[D]")},
    {"when": [object()]},
    {"when": [[1], 2]},
    {"when": [[1], [None]]},
    {"when": pa.table},
]


@pytest.mark.parametrize("columns", REFUSED, ids=range(len(REFUSED)))
def test_what_no_feature_holds_is_refused_by_name(columns: Any) -> None:
    with pytest.raises(TypeError, match="'when'"):
        written(columns)


def test_integers_beyond_int64_are_refused_everywhere() -> None:
    wide = np.array([1, 2**64 - 1], np.uint64)
    for columns in ({"x": wide}, {"x": [1, 2**64 - 1]}, {"x": [[1], [2**64 - 1, 3]]}, pa.table({"x": wide})):
        with pytest.raises(ValueError, match="'x'"):
            written(columns)
    with pytest.raises(ValueError, match="'x'"):
        written(pandas.DataFrame({"x": wide}))


def test_lists_of_every_form() -> None:
    found = written(
        {
            "ragged": ([[], [9, 2]], "int"),
            "nul": [[b"a\0"], [b"b\0"]],
            "text": ["ä", ""],
            "objects": np.array([b"y", b"x"], object),
            "nothing": [[], []],
            "said": ([[], []], "bytes"),
            "arrays": [np.ones((2, 2)), np.zeros((1, 3))],
            "tuples": [(1.5,), ()],
        }
    )
    assert found.to_list() == [
        {
            "arrays": [1.0] * 4,
            "nul": [b"a\0"],
            "objects": [b"y"],
            "ragged": [],
            "said": [],
            "text": ["ä".encode()],
            "tuples": [1.5],
        },
        {
            "arrays": [0.0] * 3,
            "nul": [b"b\0"],
            "objects": [b"x"],
            "ragged": [9, 2],
            "said": [],
            "text": [b""],
            "tuples": [],
        },
    ]


def test_ragged_from_list() -> None:
    assert Ragged.from_list([[1, 2], [], [3]]) == Ragged([1, 2, 3], [0, 2, 2, 3])
    assert Ragged.from_list([[1], []], "float32").values.dtype == np.float32
    assert Ragged.from_list([["ä"], [b"\0"]]).to_list() == [["ä".encode()], [b"\0"]]
    nested = Ragged.from_list([[[1], [2, 3]], []])
    assert isinstance(nested.values, Ragged) and nested.to_list() == [[[1], [2, 3]], []]
    assert Ragged.from_list(np.arange(4).reshape(2, 2)).to_list() == [[0, 1], [2, 3]]
    assert Ragged.from_list([np.ones((2, 3)), np.ones((0, 3))]).values.shape == (2, 3)
    assert concat([Ragged.from_list([[], []]), Ragged.from_list([[5]])]).to_list() == [[], [], [5]]
    assert len(Ragged.from_list([])) == 0
    for wrong, error in (
        ([1], TypeError),
        ([[1], [[2]]], ValueError),
        ([[{}]], TypeError),
        (["ab"], TypeError),
    ):
        with pytest.raises(error):
            Ragged.from_list(wrong)


def test_text_and_nulls_are_asked_for() -> None:
    batch = ColumnBatch(
        {"w": Ragged.from_list([[b"a"], [], [b"\xff"]]), "n": Ragged.from_list([[1], [], [2**60 + 1]])},
        {"w": [True, False, True], "n": [True, False, True]},
    )
    assert batch[:2].to_arrow(text=True, nullable=True).to_pylist() == [
        {"w": "a", "n": 1},
        {"w": None, "n": None},
    ]
    assert batch.to_pandas(nullable=True)["n"].tolist() == [1, pandas.NA, 2**60 + 1]
    assert batch[:2].to_polars(text=["w"])["w"].to_list() == [["a"], None]
    with pytest.raises(DecodeError, match="record 2: feature 'w': is not UTF-8"):
        batch.to_arrow(text=["w"])
    with pytest.raises(DecodeError, match="record 2"):
        batch.to_arrow(text=True, nullable=True)
    with pytest.raises(KeyError, match="'ww'.*did you mean 'w'"):
        batch.to_arrow(text=["ww"])
    with pytest.raises(TypeError, match="text"):
        batch.to_arrow(text=3)  # type: ignore[arg-type]


def test_a_few_rows_of_a_large_buffer_stay_small() -> None:
    data = bytes(10 << 20)
    batch = ColumnBatch({"x": BytesColumn((data,), [5, 9], [3, 40])})
    assert len(pickle.dumps(batch.to_arrow())) < 5000 and batch.to_arrow().get_total_buffer_size() < 5000
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema(batch)) as writer:
        writer.write_table(pa.table(batch))
    assert len(sink.getvalue()) < 5000
