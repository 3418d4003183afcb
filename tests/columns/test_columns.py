"""Columns: what they hold, how they are cut, what they refuse."""

from __future__ import annotations

import gc
import mmap
import pickle
from typing import Any

import numpy as np
import pytest

from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, concat

WORDS = [b"a", b"", b"tail\0\0", b"x" * 100, b"b\n"]


class TestBytesColumn:
    def test_values(self, scattered: BytesColumn) -> None:
        assert len(scattered) == 5
        assert scattered.to_list() == WORDS == list(scattered)
        assert [scattered[i] for i in range(-5, 5)] == WORDS + WORDS
        assert scattered[np.int32(2)] == WORDS[2]
        assert scattered.nbytes == sum(map(len, WORDS))
        assert scattered.lengths.tolist() == [len(word) for word in WORDS]

    def test_one_buffer_of_each_sort(self) -> None:
        for buffer in (b"abc", bytearray(b"abc"), memoryview(b"abc"), np.frombuffer(b"abc", np.uint8)):
            column = BytesColumn((buffer,), [0, 1], [1, 2])
            assert column.to_list() == [b"a", b"bc"]
        wide = np.array([0x61626364], "<u4")
        assert BytesColumn((wide,), [0], [4])[0] == b"dcba"

    def test_range_is_named(self, scattered: BytesColumn) -> None:
        for index in (5, -6):
            with pytest.raises(IndexError, match=f"position {index} is out of range: there are 5"):
                scattered[index]
        with pytest.raises(IndexError, match="out of range: there are 5"):
            scattered.view(5)
        with pytest.raises(IndexError):
            scattered[[0, 5]]

    def test_selection_copies_no_bytes(self, scattered: BytesColumn) -> None:
        for index, expected in [
            (slice(1, 4), WORDS[1:4]),
            (slice(None, None, -2), WORDS[::-2]),
            ([4, 0, 4, -1], [WORDS[4], WORDS[0], WORDS[4], WORDS[4]]),
            (np.array([True, False, True, False, False]), [WORDS[0], WORDS[2]]),
            ([], []),
            (slice(3, 1), []),
        ]:
            chosen = scattered[index]  # type: ignore[index]
            assert chosen.to_list() == expected
            assert all(a is b for a, b in zip(chosen.buffers, scattered.buffers, strict=True))

    def test_view_is_read_only_and_outlives_everything(self, tmp_path: Any) -> None:
        path = tmp_path / "data"
        path.write_bytes(b"0123456789")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        column = BytesColumn((memoryview(mapped),), [2], [3])
        view = column.view(0)
        del column, mapped
        gc.collect()
        assert view.readonly and bytes(view) == b"234"
        writable = BytesColumn((bytearray(b"abc"),), [0], [3]).view(0)
        assert writable.readonly

    def test_several_values_a_record(self, scattered: BytesColumn) -> None:
        pairs = scattered[np.array([[0, 1], [2, 3]])]
        assert pairs.shape == (2, 2) and len(pairs) == 2 and pairs.size == 4
        assert pairs.to_list() == [[WORDS[0], WORDS[1]], [WORDS[2], WORDS[3]]]
        row: Any = pairs[1]
        assert isinstance(row, BytesColumn) and row.to_list() == [WORDS[2], WORDS[3]]
        assert [part.to_list() for part in pairs] == pairs.to_list()
        assert pairs[1:].shape == (1, 2)
        assert BytesColumn((b"abcd",), [0, 1, 2, 3], [1] * 4, shape=(2, 2)).to_list() == [
            [b"a", b"b"],
            [b"c", b"d"],
        ]
        assert BytesColumn((b"",), [], [], shape=(0, 3)).to_list() == []

    def test_numpy_keeps_trailing_zeros(self, scattered: BytesColumn) -> None:
        array = np.asarray(scattered)
        assert array.dtype == object and array.tolist() == WORDS
        assert scattered[np.array([[0, 2]])].to_numpy().tolist() == [[WORDS[0], WORDS[2]]]

    def test_from_list(self) -> None:
        values = [b"a", bytearray(b"bc"), memoryview(b"def"), np.bytes_(b"g"), np.frombuffer(b"hi", np.uint8)]
        column = BytesColumn.from_list(values)
        assert column.to_list() == [b"a", b"bc", b"def", b"g", b"hi"]
        assert BytesColumn.from_list([]).to_list() == []
        for wrong in ("text", 3, None):
            with pytest.raises(TypeError, match=f"got {type(wrong).__name__}"):
                BytesColumn.from_list([b"a", wrong])

    def test_pickle_takes_only_its_bytes(self) -> None:
        column = BytesColumn((bytes(1_000_000) + b"needle",), [1_000_000, 1_000_002], [6, 2])
        data = pickle.dumps(column)
        assert len(data) < 1_000
        assert pickle.loads(data) == column
        assert pickle.loads(data).buffers == (b"needleed",)

    def test_pickle_of_many_small_values(self) -> None:
        source = np.random.default_rng(0).bytes(5_000)
        offsets = np.random.default_rng(1).integers(0, 4_900, 20_000)
        column = BytesColumn((source,), offsets, offsets % 50)
        assert pickle.loads(pickle.dumps(column)).to_list() == column.to_list()

    def test_pickle_keeps_the_shape(self, scattered: BytesColumn) -> None:
        pairs = scattered[np.array([[0, 1], [2, 3]])]
        assert pickle.loads(pickle.dumps(pairs)).to_list() == pairs.to_list()

    def test_equality(self, scattered: BytesColumn) -> None:
        assert scattered == BytesColumn.from_list(WORDS)
        assert scattered != BytesColumn.from_list(WORDS[:-1])
        assert scattered != BytesColumn.from_list([*WORDS[:-1], b"b"])
        assert BytesColumn.from_list([b"ab", b"c"]) != BytesColumn.from_list([b"a", b"bc"])
        assert scattered != WORDS

    @pytest.mark.parametrize(
        ("offsets", "lengths", "ids", "message"),
        [
            ([0, 3], [3, 1], None, "value 1 .*outside"),
            ([-1], [1], None, "outside"),
            ([0], [-1], None, "outside"),
            ([4], [0], None, "outside"),
            ([1], [2**63 - 1], None, "outside"),
            ([2**63 - 1], [2**63 - 1], None, "outside"),
            ([2**63 - 1], [1], None, "outside"),
            (np.array([2**64 - 1], np.uint64), [1], None, "int64"),
            ([0], [1, 1], None, "1 offsets but 2 lengths"),
            ([0], [1], [1], "buffer_ids"),
            ([0], [1], [-1], "buffer_ids"),
            ([0], [1], [0, 0], "buffer_ids"),
            ([[0]], [1], None, "one-dimensional"),
        ],
    )
    def test_what_lies_outside_is_refused(self, offsets: Any, lengths: Any, ids: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            BytesColumn((b"abc",), offsets, lengths, ids)

    def test_the_end_of_a_buffer_is_inside(self) -> None:
        assert BytesColumn((b"abc",), [3, 0], [0, 3]).to_list() == [b"", b"abc"]

    def test_wrong_types(self) -> None:
        with pytest.raises(TypeError, match="float"):
            BytesColumn((b"abc",), [0.0], [1])
        with pytest.raises(TypeError, match="tuple of buffers"):
            BytesColumn(b"abc", [0], [1])
        with pytest.raises(ValueError, match="no buffer"):
            BytesColumn((), [0], [0])
        for shape in [(2, 2), (), (-1,), (3, -1)]:
            with pytest.raises(ValueError, match="shape"):
                BytesColumn((b"abc",), [0, 0, 0], [1, 1, 1], shape=shape)

    def test_concat_shares_buffers(self, scattered: BytesColumn) -> None:
        other = BytesColumn.from_list([b"new"])
        joined = BytesColumn.concat([scattered[:2], other, scattered[2:]])
        assert joined.to_list() == WORDS[:2] + [b"new"] + WORDS[2:]
        assert len(joined.buffers) == 3
        one = BytesColumn.concat([other, other[:0], other])
        assert one.to_list() == [b"new", b"new"] and one.buffer_ids is None
        assert BytesColumn.concat([]).to_list() == []
        pairs = scattered[np.array([[0, 1]])]
        assert BytesColumn.concat([pairs, pairs]).shape == (2, 2)
        with pytest.raises(ValueError, match="cannot be joined"):
            BytesColumn.concat([pairs, scattered])

    def test_repr_is_short(self, scattered: BytesColumn) -> None:
        text = repr(scattered)
        assert "(100 bytes)" in text and "1 more" in text and len(text) < 200


class TestRagged:
    def test_rows(self) -> None:
        ragged = Ragged([1, 2, 3, 4], [0, 2, 2, 4])
        assert len(ragged) == 3
        assert ragged.lengths().tolist() == [2, 0, 2] and ragged.lengths().dtype == np.int64
        assert ragged.to_list() == [[1, 2], [], [3, 4]]
        assert [row.tolist() for row in ragged] == ragged.to_list()
        assert ragged[-1].tolist() == [3, 4]
        assert np.shares_memory(ragged[0], ragged.values)
        with pytest.raises(IndexError, match="position 3 is out of range: there are 3 rows"):
            ragged[3]

    def test_selection(self, nested: Ragged) -> None:
        assert nested.to_list() == [[[1, 2]], [], [[], [3, 4, 5]]]
        expected = nested.to_list()
        for index in (slice(1, 3), slice(None, None, -1), slice(2, 0), [2, 0, -1], [], [True, False, True]):
            chosen = (
                expected[index] if isinstance(index, slice) else np.array(expected, object)[index].tolist()
            )
            assert nested[index].to_list() == chosen, index  # type: ignore[index]
            again = nested[index]  # type: ignore[index]
            assert Ragged(again.values, again.row_splits) == again
        assert nested[0].to_list() == [[1, 2]]
        assert np.shares_memory(nested[1:].values.values, nested.values.values)
        with pytest.raises(IndexError, match="needs 3 entries"):
            nested[np.array([True])]
        with pytest.raises(IndexError, match="position 3"):
            nested[[0, 3]]
        with pytest.raises(TypeError, match="integers"):
            nested[[0.5]]  # type: ignore[list-item]

    def test_padding(self) -> None:
        ragged = Ragged(np.array([1, 2, 3, 4, 5, 6], np.int64), [0, 3, 3, 4, 6])
        assert ragged.to_padded().tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0], [5, 6, 0]]
        assert ragged.to_padded(-1, 2).tolist() == [[1, 2], [-1, -1], [4, -1], [5, 6]]
        assert ragged.to_padded(-1, max_length=5).shape == (4, 5)
        assert ragged.to_padded(max_length=0).shape == (4, 0)
        assert ragged.mask(2).tolist() == [[True, True], [False, False], [True, False], [True, True]]
        assert ragged.mask().sum() == 6
        assert ragged.to_padded().dtype == np.int64
        assert Ragged(np.zeros(0, np.float32), [0]).to_padded().shape == (0, 0)
        assert Ragged(np.zeros(0, np.float32), [0, 0]).to_padded().shape == (1, 0)
        ragged.to_padded()[0, 0] = 99
        assert ragged.values[0] == 1

    def test_padding_of_nested_columns(self, nested: Ragged) -> None:
        padded = nested.to_padded(-1)
        assert padded.tolist() == [
            [[1, 2, -1], [-1, -1, -1]],
            [[-1, -1, -1], [-1, -1, -1]],
            [[-1, -1, -1], [3, 4, 5]],
        ]
        assert (nested.mask() == (padded != -1)).all()
        assert nested.to_padded(0, 1).tolist() == [[[1, 2]], [[0, 0]], [[0, 0]]]
        assert nested.to_padded(0, (3, 1)).shape == (3, 3, 1)
        assert nested.to_padded(0, (None, 2)).shape == (3, 2, 2)
        assert nested.to_padded(0, (2,)).shape == (3, 2, 3)

    def test_padding_of_rows_with_a_shape(self) -> None:
        ragged = Ragged(np.arange(12).reshape(3, 4), [0, 1, 3])
        assert ragged.to_padded().shape == (2, 2, 4)
        assert ragged.to_padded()[1].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert ragged.mask().tolist() == [[True, False], [True, True]]

    def test_padding_of_bytes(self) -> None:
        ragged = Ragged(BytesColumn.from_list([b"a\0", b"b", b"c"]), [0, 2, 3])
        padded = ragged.to_padded()
        assert padded.dtype == object and padded.tolist() == [[b"a\0", b"b"], [b"c", b""]]
        assert ragged.to_padded(b"?").tolist()[1] == [b"c", b"?"]
        assert ragged.to_padded(None).tolist()[1] == [b"c", None]
        with pytest.raises(TypeError, match="fill value"):
            ragged.to_padded(1)

    @pytest.mark.parametrize(
        ("dtype", "fill"), [(np.int64, 0.5), (np.uint8, -1), (np.uint8, 256), (np.int64, "x"), (np.bool_, 2)]
    )
    def test_fill_values_that_do_not_fit(self, dtype: Any, fill: Any) -> None:
        with pytest.raises(ValueError, match="does not fit"):
            Ragged(np.ones(1, dtype), [0, 1]).to_padded(fill, 2)

    def test_fill_values_that_fit(self) -> None:
        assert np.isnan(Ragged(np.ones(1, np.float32), [0, 1]).to_padded(np.nan, 2)[0, 1])
        assert Ragged(np.ones(1, np.int64), [0, 1]).to_padded(-100.0, 2).tolist() == [[1, -100]]
        assert Ragged(np.ones(1, np.bool_), [0, 1]).to_padded(max_length=2).tolist() == [[True, False]]

    def test_widths_that_are_none(self) -> None:
        for width in (-1, 1.5, "2", True):
            with pytest.raises((ValueError, TypeError)):
                Ragged([1], [0, 1]).to_padded(0, width)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("splits", "message"),
        [
            ([], "start at 0"),
            ([1, 4], "start at 0"),
            ([0, 3, 2, 4], "decrease, but do at row 1"),
            ([0, 2], "end at 2, but there are 4"),
            ([0, 5], "end at 5"),
            ([[0, 4]], "one-dimensional"),
        ],
    )
    def test_splits_that_are_none(self, splits: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Ragged([1, 2, 3, 4], splits)

    def test_splits_of_another_kind(self) -> None:
        with pytest.raises(TypeError, match="row_splits must be integers"):
            Ragged([1, 2], [0.0, 2.0])
        assert Ragged([1, 2], np.array([0, 2], np.uint8)).row_splits.dtype == np.int64
        with pytest.raises(ValueError, match="dimension"):
            Ragged(np.array(3), [0])

    def test_equality(self, nested: Ragged) -> None:
        assert nested == nested[:]
        assert nested != nested[::-1]
        assert Ragged([1, 2], [0, 2]) != Ragged([1, 2], [0, 1, 2])
        assert Ragged([1, 2], [0, 2]) != Ragged(np.array([1, 2], np.int32), [0, 2])
        assert Ragged([np.nan], [0, 1]) == Ragged([np.nan], [0, 1])
        assert pickle.loads(pickle.dumps(nested)) == nested

    def test_a_kind_that_no_record_told_joins_with_any(self, nested: Ragged) -> None:
        unknown = Ragged(np.empty(0, object), [0, 0, 0])
        for known in (Ragged([1, 2], [0, 2]), Ragged(BytesColumn.from_list([b"a"]), [0, 1]), nested):
            rows = known.to_list()
            assert concat([unknown, known]).to_list() == [[], [], *rows]
            assert concat([known, unknown]).to_list() == [*rows, [], []]
            assert concat([known, unknown])[: len(known)] == known
        assert concat([unknown, unknown]).to_list() == [[]] * 4
        steps = Ragged(unknown, [0, 1, 2])
        assert concat([steps, nested]).to_list() == [[[]], [[]], *nested.to_list()]
        assert repr(unknown) == "Ragged of unknown, 2 rows, 0 values: [[], []]"
        assert unknown.to_padded().shape == (2, 0)
        assert ColumnBatch(dict(ColumnBatch({"x": unknown})))["x"] == unknown

    def test_repr_is_short(self, nested: Ragged) -> None:
        assert repr(nested) == "Ragged of ragged int64, 3 rows, 3 values: [[[1, 2]], [], [[], [3, 4, 5]]]"
        assert len(repr(Ragged(np.arange(100_000), [0, 100_000]))) < 200


@pytest.mark.parametrize("index", [1.5, "3", b"x", np.float64(1)], ids=repr)
def test_what_is_no_position_is_a_type_error(index: Any) -> None:
    for one in (Ragged.from_list([[1], [2]]), BytesColumn.from_list([b"a", b"b"])):
        with pytest.raises(TypeError, match="integers, slices or masks"):
            one[index]
    if not isinstance(index, str):
        with pytest.raises(TypeError):
            ColumnBatch({"x": [1, 2]})[index]


@pytest.mark.parametrize("index", [None, True, ..., {}, set()], ids=repr)
def test_what_chooses_no_rows_is_a_type_error(index: Any) -> None:
    for one in (Ragged.from_list([[1], [2]]), ColumnBatch({"x": [1, 2]})):
        with pytest.raises(TypeError, match="chosen by integers, slices or masks"):
            one[index]


def test_nothing_optional_is_imported() -> None:
    import subprocess
    import sys

    code = "import sys, tfrecord.columns; print({'torch', 'pyarrow', 'pandas', 'polars'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
