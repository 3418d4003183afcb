"""Columns to Arrow, pandas and polars, and back."""

from __future__ import annotations

import gc
import importlib.util
import io
import mmap
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from tfrecord._columns import to_arrow
from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch

pa = pytest.importorskip("pyarrow")
needs_views = pytest.mark.skipif(not to_arrow.knows_views(), reason="pyarrow before 19 takes no views")

WORDS = [b"", b"twelve bytes", b"thirteen byte", b"\xff\0" * 50, b"x"]


def batch() -> ColumnBatch:
    words = BytesColumn.from_list(WORDS)
    return ColumnBatch(
        {
            "word": words,
            "tags": Ragged(words, [0, 2, 2, 2, 5, 5]),
            "ids": Ragged([1, 2, 3], [0, 2, 2, 2, 3, 3]),
            "steps": Ragged(Ragged([1, 2, 3], [0, 1, 1, 3]), [0, 1, 1, 1, 3, 3]),
            "vec": np.arange(10, dtype=np.float32).reshape(5, 2),
            "cube": np.arange(60, dtype=np.uint8).reshape(5, 2, 3, 2),
            "flag": np.array([True, False, True, True, False]),
            "half": np.arange(5, dtype=np.float16),
            "pair": BytesColumn((b"abcdefghij",), range(10), [1] * 10, shape=(5, 2)),
        },
        {"ids": [True, True, False, True, True], "steps": [True, False, True, True, True]},
    )


def test_values_types_and_nulls() -> None:
    made = batch().to_arrow()
    made.validate(full=True)
    assert made.num_rows == 5
    rows = made.to_pylist()
    assert [row["word"] for row in rows] == WORDS
    assert [row["ids"] for row in rows] == [[1, 2], [], None, [3], []]
    assert [row["steps"] for row in rows] == [[[1]], None, [], [[], [2, 3]], []]
    assert rows[3]["tags"] == WORDS[2:] and rows[1]["tags"] == []
    assert rows[4]["vec"] == [8.0, 9.0] and rows[4]["pair"] == [b"i", b"j"]
    assert rows[1]["cube"] == batch()["cube"][1].tolist()
    assert [row["flag"] for row in rows] == [True, False, True, True, False]
    assert made.schema.field("word").type == pa.large_binary()
    assert made.schema.field("tags").type == pa.large_list(pa.large_binary())
    assert made.schema.field("steps").type == pa.large_list(pa.large_list(pa.int64()))
    assert made.schema.field("half").type == pa.float16()


@pytest.mark.parametrize("binary_views", [True, False])
def test_there_and_back(binary_views: bool) -> None:
    made = ColumnBatch.from_arrow(batch().to_arrow(binary_views=binary_views))
    assert made == batch()
    assert made["ids"].values.flags.writeable and made["vec"].flags.writeable


@pytest.mark.parametrize("binary_views", [True, False])
def test_slices_and_empty_batches(binary_views: bool) -> None:
    for rows in (slice(2, 4), slice(1, 1), slice(None, None, -1), slice(0, 0)):
        part = batch()[rows]
        made = part.to_arrow(binary_views=binary_views)
        made.validate(full=True)
        assert ColumnBatch.from_arrow(made) == part
        # Slices of Arrow's own start at an offset within their buffers.
        start, stop, step = rows.indices(5)
        if step == 1:
            assert ColumnBatch.from_arrow(batch().to_arrow(binary_views=binary_views)[start:stop]) == part


def test_no_columns_keep_their_rows() -> None:
    made = ColumnBatch({}, None, 3).to_arrow()
    assert made.num_rows == 3
    assert ColumnBatch.from_arrow(made).num_rows == 3


@needs_views
def test_types_of_arrow_files(tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_batches([batch().to_arrow().drop_columns(["half"])]), path)
    again = ColumnBatch.from_arrow(pq.read_table(path))
    assert again == batch().select([name for name in batch() if name != "half"])


@needs_views
def test_bytes_are_not_copied() -> None:
    mapped = mmap.mmap(-1, 1 << 20)
    mapped[1000:1100] = bytes(range(100))
    column = BytesColumn((memoryview(mapped),), [1000, 1050, 5], [50, 50, 12])
    array = column.to_arrow(binary_views=True)
    address = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    assert [buffer.address for buffer in array.buffers()[2:]] == [address]
    back = ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([array], ["x"]))["x"]
    assert np.frombuffer(back.view(0), np.uint8).__array_interface__["data"][0] == address + 1000
    del column, mapped
    gc.collect()
    assert array.to_pylist() == [bytes(range(50)), bytes(range(50, 100)), bytes(12)]


def test_numbers_are_not_copied() -> None:
    values, splits = np.arange(6, dtype=np.int64), np.array([0, 2, 6])
    array = Ragged(values, splits).to_arrow()
    assert array.values.buffers()[1].address == values.__array_interface__["data"][0]
    dense = np.zeros((2, 3), np.float32)
    made = ColumnBatch({"x": dense}).to_arrow().column(0)
    assert made.values.buffers()[1].address == dense.__array_interface__["data"][0]


@needs_views
def test_values_in_many_buffers() -> None:
    buffers = tuple(bytes([65 + i]) * 40 for i in range(10))
    ids = np.array([9, 0, 9, 3, 3, 1], np.int32)
    column = BytesColumn(buffers, [0, 1, 2, 3, 4, 5], [20, 3, 20, 37, 12, 13], ids)
    array = column.to_arrow(binary_views=True)
    array.validate(full=True)
    assert array.to_pylist() == column.to_list()
    assert len(array.buffers()) == 2 + 3  # the validity, the views, the buffers of long values
    assert column.to_arrow(binary_views=False).to_pylist() == column.to_list()


@needs_views
def test_offsets_beyond_two_gibibytes(tmp_path: Any) -> None:
    path = tmp_path / "sparse"
    size = (5 << 30) + 100
    places = [10, (1 << 31) - 10, (1 << 31) + 3, (3 << 30) - 7, size - 30]
    with path.open("w+b") as file:
        file.truncate(size)
        for number, place in enumerate(places):
            file.seek(place)
            file.write(bytes([48 + number]) * 30)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    column = BytesColumn((memoryview(mapped),), places[::-1], [30, 30, 12, 30, 30])
    array = column.to_arrow(binary_views=True)
    array.validate(full=True)
    assert array.type == pa.binary_view() and array.to_pylist() == column.to_list()
    assert array.to_pylist()[0] == b"4" * 30


def test_what_views_cannot_hold_is_large_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_arrow, "_VIEW_MAX", 10)
    array = BytesColumn.from_list([b"x" * 11, b""]).to_arrow(binary_views=True)
    assert array.type == pa.large_binary() and array.to_pylist() == [b"x" * 11, b""]


def test_without_views_an_array_holds_its_values_alone() -> None:
    data = bytes(1 << 20)
    array = BytesColumn((data,), [2, 4], [2, 4]).to_arrow()
    assert array.to_pylist() == [bytes(2), bytes(4)] and len(pickle.dumps(array)) < 1000
    assert array.buffers()[2].address != np.frombuffer(data, np.uint8).__array_interface__["data"][0] + 2


ARROW_ARRAYS = [
    (pa.array(["ä", None, ""]), [b"\xc3\xa4", None, b""]),
    (pa.array(["ä", None, ""], pa.large_string()), [b"\xc3\xa4", None, b""]),
    (pa.array(["a long enough string", None, ""], pa.string_view()), [b"a long enough string", None, b""]),
    (pa.array([b"ab", None, b"cd"], pa.binary(2)), [b"ab", None, b"cd"]),
    (pa.array([b"ab", None, b"cd"], pa.binary()), [b"ab", None, b"cd"]),
    (pa.array(["x", None, "x"]).dictionary_encode(), [b"x", None, b"x"]),
    (pa.array([1, None, 3], pa.int8()), [1, None, 3]),
    (pa.array([1, None, 2**64 - 1], pa.uint64()), [1, None, 2**64 - 1]),
    (pa.array([True, None, False]), [True, None, False]),
    (pa.array(np.array([1.5, 0, 2.5], np.float16), mask=np.array([False, True, False])), [1.5, None, 2.5]),
    (pa.array([[1, 2], None, []], pa.list_(pa.int32())), [[1, 2], None, []]),
    (pa.array([["a"], None, []]), [[b"a"], None, []]),
    (pa.array([[[1], None, []], None, []]), [[[1], [], []], None, []]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)), [[1, 2], None, [3, 4]]),
    (
        pa.array([[b"a", b"b"], None, [b"", b"d"]], pa.list_(pa.binary(), 2)),
        [[b"a", b"b"], None, [b"", b"d"]],
    ),
    (
        pa.array([[[1], []], None, [[], [2, 3]]], pa.list_(pa.list_(pa.int64()), 2)),
        [[[1], []], None, [[], [2, 3]]],
    ),
    (pa.nulls(3), [None, None, None]),
]


@pytest.mark.parametrize(
    ("array", "expected"), ARROW_ARRAYS, ids=lambda value: str(getattr(value, "type", ""))
)
def test_arrow_types(array: Any, expected: list[Any]) -> None:
    for part, rows in ((slice(0, 3), expected), (slice(1, 3), expected[1:]), (slice(3, 3), [])):
        made = ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([array[part]], ["x"]))
        assert made.present["x"].tolist() == [value is not None for value in rows]
        found = zip(made.to_list(), made.present["x"], strict=True)
        assert [row["x"] if present else None for row, present in found] == rows


def test_a_kind_that_no_record_told() -> None:
    unknown = Ragged(np.empty(0, object), [0, 0, 0])
    batch = ColumnBatch({"x": unknown, "steps": Ragged(unknown, [0, 2, 2])}, {"x": [False, False]})
    made = batch.to_arrow()
    assert made.schema.field("x").type == pa.large_list(pa.null())
    assert made.to_pylist() == [{"x": None, "steps": [[], []]}, {"x": None, "steps": []}]
    assert ColumnBatch.from_arrow(made) == batch
    if importlib.util.find_spec("pandas") is not None:
        assert batch.to_pandas()["x"].tolist() == [None, None]


def test_null_rows_that_span_values() -> None:
    offsets, valid = pa.py_buffer(np.array([0, 2, 4, 5], np.int32)), pa.py_buffer(b"\x05")
    child = pa.array([1, 2, None, 4, 5])
    array = pa.Array.from_buffers(pa.list_(pa.int64()), 3, [valid, offsets], children=[child])
    made = ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([array], ["x"]))
    assert made["x"].to_list() == [[1, 2], [], [5]] and made.present["x"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1, None]]),
        pa.array([["a", None]]),
        pa.array([[1, None]], pa.list_(pa.int64(), 2)),
        pa.array([[[1, None]]]),
        pa.array([[None]]),
    ],
    ids=lambda array: str(array.type),
)
def test_nulls_within_lists_are_refused(array: Any) -> None:
    with pytest.raises(ValueError, match="column 'x' has a null"):
        ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([array], ["x"]))


@pytest.mark.parametrize(
    "array",
    [
        pa.array([{"a": 1}]),
        pa.array([1], pa.timestamp("s")),
        pa.array([1], pa.decimal128(5)),
        pa.array([[{"a": 1}]]),
        pa.array([1], pa.duration("s")),
    ],
    ids=lambda array: str(array.type),
)
def test_types_that_no_feature_holds(array: Any) -> None:
    with pytest.raises(TypeError, match="column 'x' is .*cast it first"):
        ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([array], ["x"]))


def test_two_columns_of_one_name() -> None:
    with pytest.raises(ValueError, match="two columns have the name"):
        ColumnBatch.from_arrow(pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["x", "x"]))


def test_tables_join_their_chunks() -> None:
    table = pa.Table.from_batches([batch().to_arrow()] * 2)
    assert ColumnBatch.from_arrow(table).to_list() == batch().to_list() * 2
    empty = ColumnBatch.from_arrow(table.schema.empty_table().select(["word", "ids", "vec"]))
    assert empty.num_rows == 0 and empty["vec"].shape == (0, 2) and empty["ids"].to_list() == []


def test_sequences() -> None:
    whole = batch()
    both = SequenceBatch(whole.select(["ids", "vec"]), whole.select(["ids", "steps"]))
    made = both.to_arrow()
    assert made.schema.names == ["context/ids", "context/vec", "feature_lists/ids", "feature_lists/steps"]
    assert made.schema.metadata == {b"tfrecord.record_type": b"sequence_example"}
    assert SequenceBatch.from_arrow(made) == both
    with pytest.raises(ValueError, match="column 'word'"):
        SequenceBatch.from_arrow(whole.to_arrow())


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = batch().to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame["word"].tolist() == WORDS
    assert frame["ids"][0].tolist() == [1, 2] and frame["ids"][2] is None
    assert frame["tags"][3].tolist() == WORDS[2:]
    sequence = SequenceBatch(batch().select(["vec"]), batch().select(["steps"])).to_pandas()
    assert list(sequence) == ["context/vec", "feature_lists/steps"]


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = batch().select(["word", "ids", "vec", "tags"]).to_polars()
    assert isinstance(frame, polars.DataFrame) and frame["word"].to_list() == WORDS
    assert frame["ids"].to_list() == [[1, 2], [], None, [3], []]
    out = io.BytesIO()
    frame.write_parquet(out)
    assert polars.read_parquet(io.BytesIO(out.getvalue()))["tags"].to_list()[3] == WORDS[2:]


@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("pyarrow", "arrow", lambda: batch().to_arrow()),
        ("pyarrow", "arrow", lambda: BytesColumn.from_list([b"a"]).to_arrow()),
        ("pyarrow", "arrow", lambda: Ragged([1], [0, 1]).to_arrow()),
        ("pyarrow", "arrow", lambda: ColumnBatch.from_arrow(None)),
        ("pandas", "pandas", lambda: batch().to_pandas()),
        ("polars", "polars", lambda: batch().to_polars()),
        ("torch", "torch", lambda: batch().to_torch()),
    ],
    ids=range(7),
)
def test_a_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str, call: Any
) -> None:
    hide(monkeypatch, module, ModuleNotFoundError(f"No module named {module!r}", name=module))
    with pytest.raises(ImportError, match=rf"needs {module}.*pip install 'tfrecord\[{extra}\]'"):
        call()


def test_a_broken_package_shows_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "pyarrow", ImportError("libarrow.so: cannot open shared object file"))
    with pytest.raises(ImportError, match="libarrow.so"):
        batch().to_arrow()
    hide(monkeypatch, "pyarrow", ModuleNotFoundError("No module named 'other'", name="other"))
    with pytest.raises(ModuleNotFoundError, match="'other'"):
        batch().to_arrow()


def hide(monkeypatch: pytest.MonkeyPatch, module: str, error: Exception) -> None:
    import importlib

    real = importlib.import_module

    def fake(name: str, package: str | None = None) -> Any:
        if name == module:
            raise error
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fake)
    monkeypatch.delitem(sys.modules, module, raising=False)
