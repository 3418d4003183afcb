"""Batches of columns: what they hold, how they are cut, what they refuse."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch, concat


def batch_of(words: BytesColumn, nested: Ragged) -> ColumnBatch:
    return ColumnBatch(
        {
            "word": words[:3],
            "tags": Ragged(words, [0, 2, 2, 5]),
            "steps": nested,
            "vec": np.arange(6, dtype=np.float32).reshape(3, 2),
            "pair": words[np.array([[0, 1], [2, 3], [4, 0]])],
            "label": np.array([3, -1, 2**40]),
        },
        {"steps": [True, False, True], "tags": np.array([True, True, False])},
    )


class TestColumnBatch:
    def test_mapping(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        assert (
            list(batch) == ["word", "tags", "steps", "vec", "pair", "label"]
            and len(batch) == batch.num_rows == 3
        )
        assert batch.num_rows == 3 and "label" in batch and "nope" not in batch and 0 not in batch
        assert batch["label"].tolist() == [3, -1, 2**40]
        assert batch.get("nope") is None
        assert dict(batch)["vec"] is batch["vec"]
        with pytest.raises(KeyError, match="no column 'nope'; there are 'word', "):
            batch["nope"]
        with pytest.raises(TypeError, match="row"):
            batch[0]  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            batch["x"] = 1  # type: ignore[index]

    def test_presence(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        assert batch.present["steps"].tolist() == [True, False, True]
        assert batch.present["label"].all() and batch.present["label"].dtype == np.bool_
        assert set(batch.present) == set(batch)
        with pytest.raises(TypeError):
            batch.present["label"] = None  # type: ignore[index]

    def test_selection(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        rows = batch.to_list()
        for index in (slice(1, 3), slice(None, None, -1), [2, 0, 2, -2], np.array([True, False, True]), []):
            chosen = batch[index]  # type: ignore[index]
            expected = rows[index] if isinstance(index, slice) else np.array(rows, object)[index].tolist()
            assert chosen.to_list() == expected
            assert chosen.num_rows == len(expected)
        with pytest.raises(IndexError, match="position 3 is out of range: there are 3 rows"):
            batch[[3]]
        assert ColumnBatch({}, None, 4)[1:3].num_rows == 2
        assert batch[range(2)].num_rows == 2 and batch[(2,)].row(0)["label"] == 2**40

    def test_rows(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        row = batch.row(-1)
        assert row["word"] == b"tail\0\0" and row["label"] == 2**40 and row["vec"].tolist() == [4.0, 5.0]
        assert row["steps"].to_list() == [[], [3, 4, 5]] and row["pair"].to_list() == [b"b\n", b"a"]
        assert "steps" not in batch.to_list()[1] and batch.to_list()[0]["steps"] == [[1, 2]]
        with pytest.raises(IndexError, match="there are 3 rows"):
            batch.row(3)

    def test_a_default_is_a_value_of_its_record(self) -> None:
        batch = ColumnBatch({"x": np.array([0, -1, -1])}, {"x": [True, True, False]})
        assert batch.to_list() == [{"x": 0}, {"x": -1}, {"x": -1}]

    def test_select(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested).select(["label", "word"])
        assert list(batch) == ["label", "word"] and set(batch.present) == {"label", "word"}
        with pytest.raises(KeyError, match="no column 'x'"):
            batch.select(["x"])

    def test_equality_and_pickle(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        again = pickle.loads(pickle.dumps(batch))
        assert again == batch and again.present["steps"].tolist() == [True, False, True]
        assert batch.select(list(batch)[::-1]) == batch
        assert batch != batch[:2] and batch != batch.select(["word"])
        assert ColumnBatch(dict(batch)) != batch
        assert batch != dict(batch)

    def test_concat(self, scattered: BytesColumn, nested: Ragged) -> None:
        batch = batch_of(scattered, nested)
        assert concat([batch[:1], batch[1:2], batch[2:]]) == batch
        assert concat([batch]) == batch
        twice = concat([batch, batch])
        assert twice.to_list() == batch.to_list() * 2
        with pytest.raises(ValueError, match="column 'x': int64 and ragged int64"):
            concat([ColumnBatch({"x": np.array([1])}), ColumnBatch({"x": Ragged([1], [0, 1])})])
        with pytest.raises(ValueError, match="column 'x': int64 .n, 2. and int64 .n, 3."):
            concat([ColumnBatch({"x": np.ones((1, 2), int)}), ColumnBatch({"x": np.ones((1, 3), int)})])
        with pytest.raises(ValueError, match=r"\['x'\] and \['y'\]"):
            concat([ColumnBatch({"x": [1]}), ColumnBatch({"y": [1]})])
        with pytest.raises(ValueError, match="at least one"):
            concat([])
        for one in (batch, nested):
            with pytest.raises(TypeError, match="concat takes a list of batches or columns, not one"):
                concat(one)
        assert concat([nested, nested]).to_list() == nested.to_list() * 2
        assert concat([np.array([1]), np.array([2])]).tolist() == [1, 2]

    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(ValueError, match="column 'b' has 1 rows, not 2"):
            ColumnBatch({"a": [1, 2], "b": [1]})
        with pytest.raises(ValueError, match="'a' has 2 rows, not 3"):
            ColumnBatch({"a": [1, 2]}, None, 3)
        with pytest.raises(ValueError, match=r"present\['a'\] must be bool of shape \(2,\)"):
            ColumnBatch({"a": [1, 2]}, {"a": [True]})
        with pytest.raises(ValueError, match="must be bool"):
            ColumnBatch({"a": [1, 2]}, {"a": [1, 0]})
        with pytest.raises(ValueError, match="'b', which is not a column"):
            ColumnBatch({"a": [1, 2]}, {"b": [True, True]})
        with pytest.raises(ValueError, match="column 'a' .*scalar"):
            ColumnBatch({"a": 3})
        for values in (np.array([b"a"]), np.array(["a"]), np.array([None]), ["a"]):
            with pytest.raises((TypeError, ValueError)):
                ColumnBatch({"a": values})

    def test_a_list_of_bytes_keeps_trailing_zeros(self) -> None:
        assert ColumnBatch({"a": [b"x\0", b""]})["a"].to_list() == [b"x\0", b""]
        assert Ragged([b"x\0", b""], [0, 2]).to_list() == [[b"x\0", b""]]

    def test_repr_says_what_is_there(self, scattered: BytesColumn, nested: Ragged) -> None:
        text = repr(batch_of(scattered, nested))
        assert text.startswith("ColumnBatch: 3 rows, 6 columns\n")
        assert "'steps'  ragged ragged int64  1 not present" in text
        assert "float32 (n, 2)" in text and "b'tail\\x00\\x00'" in text
        wide = repr(ColumnBatch({f"c{i}": np.zeros(100_000) for i in range(1_000)}))
        assert "960 more columns" in wide and len(wide) < 6_000
        assert repr(ColumnBatch({}, None, 2)) == "ColumnBatch: 2 rows, 0 columns"

    def test_html_escapes_everything(self) -> None:
        evil = b"<script>alert(1)</script>"
        html = ColumnBatch({"<b>&": BytesColumn.from_list([evil, b"\"'"])})._repr_html_()
        assert "<script>" not in html and "<b>" not in html
        assert "&lt;script&gt;" in html and "&lt;b&gt;&amp;" in html
        many = ColumnBatch({"x": Ragged(np.zeros(0), np.zeros(5_001, int))}, {"x": np.zeros(5_000, bool)})
        assert "4,990 more rows" in many._repr_html_() and "–" in many._repr_html_()
        assert len(many._repr_html_()) < 2_000


class TestSequenceBatch:
    def test_halves(self, scattered: BytesColumn, nested: Ragged) -> None:
        whole = batch_of(scattered, nested)
        batch = SequenceBatch(whole.select(["label"]), whole.select(["steps"]))
        context, lists = batch
        assert context is batch.context and lists is batch.feature_lists and batch.num_rows == 3
        assert batch[1:].to_list() == [({"label": -1}, {}), ({"label": 2**40}, {"steps": [[], [3, 4, 5]]})]
        assert batch.row(0)[1]["steps"].to_list() == [[1, 2]]
        assert pickle.loads(pickle.dumps(batch)) == batch and batch != batch[:2] and batch != whole
        assert concat([batch[:1], batch[1:]]) == batch
        assert " context\n  'label'" in repr(batch) and " feature_lists\n  'steps'" in repr(batch)
        assert batch._repr_html_().count("<table>") == 2

    def test_halves_of_different_length(self) -> None:
        with pytest.raises(ValueError, match="context has 1 rows, feature_lists 2"):
            SequenceBatch(ColumnBatch({}, None, 1), ColumnBatch({}, None, 2))
