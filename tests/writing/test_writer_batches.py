"""Columns are written as the records one by one would be, or refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import batch_of, examples, records

from indexer import framing
from tfrecord._kernels.engine import encode_kernel
from tfrecord._writing.encoder import RowFrames, encode_example
from tfrecord._writing.flat_columns import flatten_batch
from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord.reader import TFRecordReader
from tfrecord.writer import TFRecordWriter, write

KERNEL = encode_kernel


def test_a_batch_is_the_records_one_by_one() -> None:
    n = 50
    rng = np.random.default_rng(1)
    columns = {
        "i": rng.integers(-(2**63), 2**63 - 1, n),
        "f": rng.standard_normal((n, 3)),
        "b": [f"text {i}".encode() + bytes(i % 3) for i in range(n)],
        "r": Ragged(rng.integers(0, 300, 2 * n), np.arange(n + 1) * 2),
    }
    one, whole = io.BytesIO(), io.BytesIO()
    with TFRecordWriter(one) as writer:
        for i in range(n):
            writer.write(
                {
                    "i": (columns["i"][i], "int"),
                    "f": (columns["f"][i], "float"),
                    "b": (columns["b"][i], "byte"),
                    "r": (columns["r"][i], "int"),
                }
            )
    with TFRecordWriter(whole) as writer:
        writer.write_batch(columns)
        assert writer.num_records == n
    assert whole.getvalue() == one.getvalue()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.array([1, 2], np.uint8), [[1], [2]]),
        (np.array([True, False]), [[1], [0]]),
        (np.array([1.5, 2.5]), [[1.5], [2.5]]),
        (np.arange(4).reshape(2, 2).T, [[0, 2], [1, 3]]),
        (np.arange(8).reshape(2, 2, 2), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (np.arange(10)[::-5], [[9], [4]]),
        (np.array([1, 2], ">i4"), [[1], [2]]),
        (np.zeros((2, 0)), [[], []]),
        ([1, 2], [[1], [2]]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (range(2), [[0], [1]]),
        (([1, 2], "float"), [[1.0], [2.0]]),
        ((np.array([1, 2], object), "int"), [[1], [2]]),
        (["a\0", "\u00fc"], [[b"a\0"], ["\u00fc".encode()]]),
        ([b"a\0", bytearray(b"b")], [[b"a\0"], [b"b"]]),
        (np.array([b"a", b"bcd"]), [[b"a"], [b"bcd"]]),
        (np.array(["a", "bcd"]), [[b"a"], [b"bcd"]]),
        (np.array([["a", "b"], ["c", "d"]], object), [[b"a", b"b"], [b"c", b"d"]]),
        (BytesColumn.from_list([b"a", b"bc"]), [[b"a"], [b"bc"]]),
        (BytesColumn((b"abc", b"xyz"), [1, 0], [2, 3], [0, 1]), [[b"bc"], [b"xyz"]]),
        (BytesColumn((b"abcd",), [0, 1, 2, 3], [1, 1, 1, 1], shape=(2, 2)), [[b"a", b"b"], [b"c", b"d"]]),
        (Ragged(np.arange(3.0), [0, 0, 3]), [[], [0, 1, 2]]),
        (Ragged(np.arange(6).reshape(3, 2), [0, 1, 3]), [[0, 1], [2, 3, 4, 5]]),
        (Ragged(BytesColumn.from_list([b"a", b"b", b"c"]), [0, 2, 3]), [[b"a", b"b"], [b"c"]]),
    ],
)
def test_kinds_of_columns(column: Any, expected: list[list[Any]]) -> None:
    assert [row["x"] for row in batch_of({"x": column})] == expected


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"x": 3}, TypeError, "feature 'x': got int 3, expected an array"),
        ({"x": "ab"}, TypeError, "feature 'x': got str of length 2, expected an array"),
        ({"x": np.array(3)}, TypeError, "feature 'x': got an array of int64, shape ()"),
        ({"x": [[1], [[2, 3]]]}, ValueError, "feature 'x': got a list that gives no array"),
        ({"x": [1, None]}, TypeError, "feature 'x': got None at position 1"),
        ({"x": ["a", None]}, TypeError, "feature 'x': got None at position 1"),
        ({"x": [[1, 2], None]}, TypeError, "feature 'x': got None at position 1, expected a value for each"),
        ({"x": np.array([1j])}, TypeError, "feature 'x': got an array of complex128"),
        (
            {"x": np.array([0, 2**63], np.uint64)},
            ValueError,
            "feature 'x': got int 9223372036854775808 at position 1",
        ),
        ({"x": np.array([0, 1e39])}, ValueError, "feature 'x': got float 1e+39 at position 1"),
        ({"x": (np.array([1.5]), "int")}, TypeError, "feature 'x': got an array of float64"),
        ({"x": (np.array([1]), "byte")}, TypeError, "feature 'x': got an array of int64"),
        ({"x": (BytesColumn.from_list([b"a"]), "int")}, TypeError, "feature 'x': got byte strings"),
        ({"x": (np.array(["a"]), "int")}, TypeError, "feature 'x': got"),
        ({"x": (np.array([1]), "foo")}, ValueError, "feature 'x': got the type name 'foo'"),
        ({"a": [1, 2], "x": [1]}, ValueError, "feature 'x': got 1 rows, expected 2"),
        ({1: [1]}, TypeError, "feature 1: got int 1 as a feature's name"),
        (
            {"x": Ragged(Ragged(np.arange(2), [0, 2]), [0, 1])},
            TypeError,
            "feature 'x': got a Ragged of Ragged",
        ),
        ({"x": np.ma.array([1, 2], mask=[0, 1])}, ValueError, "feature 'x': got an array with masked values"),
        ([1, 2], TypeError, "the columns: got list of length 2, expected a dict of columns"),
        (None, TypeError, "the columns: got None, expected a dict of columns"),
    ],
)
def test_columns_that_are_refused(columns: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        batch_of(columns)
    assert str(caught.value).startswith(text)


def test_what_is_nearly_a_table_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"records one by one are for TFRecordWriter\.write"):
        batch_of([{"x": (1, "int")}])
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"a LazyFrame becomes a DataFrame by collect\(\)"):
        batch_of(polars.DataFrame({"x": [1]}).lazy())


def test_missing_is_not_empty() -> None:
    present = {"x": np.array([True, False, True]), "r": np.array([False, True, True])}
    columns = {"x": np.arange(3), "r": Ragged(np.arange(2.0), [0, 0, 0, 2])}
    expected = [{"x": [0]}, {"r": []}, {"x": [2], "r": [0.0, 1.0]}]
    assert batch_of(columns, present=present) == expected
    assert batch_of(ColumnBatch(columns, present)) == expected
    with pytest.raises(ValueError, match="feature 'y': got present flags without a column"):
        batch_of(columns, present={"y": present["x"]})
    with pytest.raises(
        ValueError, match=r"feature 'x': got present flags of int64, shape \(3,\), expected bool"
    ):
        batch_of(columns, present={"x": np.arange(3)})
    with pytest.raises(ValueError, match="present is not allowed with"):
        batch_of(ColumnBatch(columns), present=present)


def test_batches_without_rows_or_columns() -> None:
    assert batch_of({}) == []
    assert batch_of({"x": []}) == []
    assert batch_of(ColumnBatch({}, num_rows=3)) == [{}, {}, {}]


def test_rows_of_steps() -> None:
    context = ColumnBatch({"n": np.arange(3)})
    lists = ColumnBatch(
        {
            "t": Ragged(Ragged(np.arange(5), [0, 2, 2, 5]), [0, 2, 2, 3]),
            "d": Ragged(np.arange(6.0).reshape(3, 2), [0, 0, 3, 3]),
            "w": Ragged(Ragged(BytesColumn.from_list([b"a", b"b"]), [0, 1, 2]), [0, 1, 1, 2]),
            "k": np.arange(6).reshape(3, 2),
        },
        present={"w": np.array([True, False, True])},
    )
    file, one = io.BytesIO(), io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch(SequenceBatch(context, lists))
    with TFRecordWriter(one) as writer:
        rows: list[tuple[Any, Any, Any, Any]] = [
            ([[0, 1], []], [], [["a"]], [0, 1]),
            ([], [[0, 1], [2, 3], [4, 5]], None, [2, 3]),
            ([[2, 3, 4]], [], [["b"]], [4, 5]),
        ]
        for i, (t, d, w, k) in enumerate(rows):
            sequence = {"t": (t, "int"), "d": (d, "float"), "w": (w, "byte"), "k": (k, "int")}
            if w is None:
                del sequence["w"]
            writer.write({"n": (i, "int")}, sequence)
    assert file.getvalue() == one.getvalue()


def test_arrow_and_polars() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int16()),
            "s": pa.array(["a", "b\0", None]),
            "l": pa.array([[1.5], [], None], pa.list_(pa.float32())),
            "b": pa.array([b"x", b"", b"yz"], pa.binary_view()),
            "d": pa.array(["u", "v", "u"]).dictionary_encode(),
            "t": pa.array([True, False, True]),
            "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        }
    )
    expected = [
        {"i": [1], "s": [b"a"], "l": [1.5], "b": [b"x"], "d": [b"u"], "t": [1], "f": [1, 2]},
        {"s": [b"b\0"], "l": [], "b": [b""], "d": [b"v"], "t": [0], "f": [3, 4]},
        {"i": [3], "b": [b"yz"], "d": [b"u"], "t": [1], "f": [5, 6]},
    ]
    assert batch_of(table) == expected
    assert batch_of(table.to_batches()[0].slice(1)) == expected[1:]

    class Stream:
        """What duckdb and others give."""

        def __arrow_c_stream__(self, schema: Any = None) -> Any:
            return table.__arrow_c_stream__(schema)

    assert batch_of(Stream()) == expected
    with pytest.raises(TypeError, match="'x'"):
        batch_of(pa.table({"x": pa.array([0], pa.timestamp("s"))}))
    polars = pytest.importorskip("polars")
    assert batch_of(polars.DataFrame({"x": [1, 2], "s": ["a", None]})) == [
        {"x": [1], "s": [b"a"]},
        {"x": [2]},
    ]


def test_pandas_series_and_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2], "s": ["a", "b"]})
    assert batch_of({name: frame[name] for name in frame}) == [
        {"x": [1], "s": [b"a"]},
        {"x": [2], "s": [b"b"]},
    ]
    assert batch_of(frame) == batch_of({"x": [1, 2], "s": ["a", "b"]})
    assert batch_of(frame.set_index("x")) == batch_of({"s": ["a", "b"]})


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 40, 200])
@pytest.mark.parametrize("bits", [1, 7, 8, 27, 28, 29, 63, 64])
def test_integers_of_every_length(width: int, bits: int) -> None:
    rng = np.random.default_rng(width * bits)
    high = rng.integers(0, 2**63, (20, width)).astype(np.uint64) * np.uint64(2)
    numbers = (high >> rng.integers(64 - bits, 64, (20, width)).astype(np.uint64)).astype(np.int64)
    numbers[::3] = numbers[0, 0] & 1  # rows of one-byte values too
    assert [row["x"] for row in batch_of({"x": numbers})] == numbers.tolist()
    assert examples(framing.frame_record(encode_example({"x": (numbers, "int")}))) == [
        {"x": numbers.reshape(-1).tolist()}
    ]


@pytest.mark.parametrize("which", ["values", "more values", "splits", "lengths"])
def test_columns_that_change_while_they_are_written(which: str) -> None:
    numbers, splits = np.arange(4), np.array([0, 1, 2, 4])
    text = BytesColumn((b"abcdefgh",), np.zeros(3, np.int64), np.ones(3, np.int64))
    flat = flatten_batch({"i": Ragged(numbers, splits), "b": text, "f": np.arange(3.0)}, None)
    rows = RowFrames(flat)
    ints, strings = flat.columns[0], flat.columns[1]
    assert ints.values is not None and ints.splits is not None and strings.lengths is not None
    if which == "values":
        ints.values[2] = -1
    elif which == "more values":
        ints.values[:] = 1 << 40
    elif which == "splits":
        ints.splits[1] = 2
    else:
        strings.lengths[:] = 8
    with pytest.raises(RuntimeError, match="another thread changed"):
        rows.frames(0, 3)


@pytest.mark.skipif(KERNEL is None, reason="the reference needs no bounds")
@pytest.mark.parametrize("problem", ["fall", "outside", "bytes", "buffer"])
def test_columns_that_are_not_what_they_say(problem: str) -> None:
    if problem in ("fall", "outside"):
        splits = np.array([0, 2, 1] if problem == "fall" else [0, 1, 9])
        column: Any = Ragged._trusted(np.arange(2), splits)
    else:
        ids = None if problem == "bytes" else np.array([0, 7], np.int32)
        lengths = np.array([1, 9 if problem == "bytes" else 1])
        column = BytesColumn._trusted((b"ab",), np.zeros(2, np.int64), lengths, ids)
    with pytest.raises(ValueError, match="feature 'x': got in row 1 .* outside"):
        batch_of({"x": column})


def test_a_large_batch_goes_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecord._writing.writer._BATCH_BYTES", 200)
    assert batch_of({"x": np.arange(300)}) == [{"x": [i]} for i in range(300)]


def test_a_row_of_two_gibibytes_is_refused() -> None:
    huge = np.broadcast_to(np.zeros(1, np.int64), 2**16)
    column = BytesColumn((bytes(2**16),), huge, np.full(2**16, 2**15), shape=(1, 2**16))
    with pytest.raises(ValueError, match="feature 'x': got in row 0 a record of 2 GiB or more"):
        TFRecordWriter(io.BytesIO()).write_batch({"x": column})


def test_lists_of_arrays_and_large_integers_in_a_batch() -> None:
    def stored(column: Any) -> list[bytes]:
        file = io.BytesIO()
        with TFRecordWriter(file) as writer:
            writer.write_batch({"x": column})
        return records(file.getvalue())

    assert stored([np.arange(2), [5, 6]]) == [encode_example({"x": (v, "int")}) for v in ([0, 1], [5, 6])]
    with pytest.raises(ValueError, match="'x': got an array with masked values"):
        stored([1.0, np.ma.masked])
    # NumPy makes floats of these.
    with pytest.raises(ValueError, match="'x': got int 9223372036854775808 at position 1"):
        stored([-1, 2**63])
    with pytest.raises(TypeError, match="'x': got a list that gives no array"):
        stored([[Broken()]])


class Broken:
    def __array__(self, *args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("no")


def test_type_names_of_text(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path) as writer:
        for name in ("str", "string"):
            writer.write({"x": ("a", name)})
            writer.write_batch({"x": (["a", "b"], name)})
    assert [record["x"] for record in TFRecordReader(path)] == [b"a", b"a", b"b"] * 2


@pytest.mark.parametrize(
    ("typename", "there"), [(None, False), ("int", True), ("float", True), ("bytes", True)]
)
def test_rows_without_values(tmp_path: Path, typename: str | None, there: bool) -> None:
    rows: list[Any] = [[], []]
    write(tmp_path / "a.tfrecord", {"x": rows if typename is None else (rows, typename)})
    assert TFRecordReader(tmp_path / "a.tfrecord")[:].to_list() == [{"x": []} if there else {}] * 2


def test_python_objects_of_polars_are_refused(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    frame = pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(TypeError, match="column 'x' holds Python objects"):
        write(tmp_path / "a.tfrecord", frame)
