"""Columns as torch tensors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch, TensorRagged

torch = pytest.importorskip("torch")


def nested() -> Ragged:
    return Ragged(Ragged([1, 2, 3, 4, 5], [0, 2, 2, 5]), [0, 1, 1, 3])


def batch() -> ColumnBatch:
    return ColumnBatch(
        {
            "vec": np.arange(6, dtype=np.float32).reshape(3, 2),
            "ids": Ragged([1, 2, 3], [0, 2, 2, 3]),
            "steps": nested(),
            "name": BytesColumn.from_list([b"a", b"", b"c\0"]),
            "tags": Ragged(BytesColumn.from_list([b"x", b"y"]), [0, 0, 2, 2]),
        }
    )


def test_dense_tensors_share_memory_and_are_writable() -> None:
    columns = batch()
    tensors = columns.to_torch()
    tensors["vec"][0, 0] = 99
    assert columns["vec"][0, 0] == 99
    assert tensors["vec"].dtype == torch.float32 and tensors["vec"].shape == (3, 2)
    assert tensors["name"] == [b"a", b"", b"c\0"] and tensors["tags"] == [[], [b"x", b"y"], []]


def test_read_only_and_odd_arrays_are_copied() -> None:
    frozen = np.arange(4)
    frozen.flags.writeable = False
    made = ColumnBatch({"a": frozen, "b": np.arange(4)[::-1], "c": np.arange(4, dtype=">i4")}).to_torch()
    made["a"][0] = 7
    assert frozen[0] == 0
    assert made["b"].tolist() == [3, 2, 1, 0] and made["c"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float64"])
def test_dtypes(dtype: str) -> None:
    array = np.array([0, 1], dtype)
    assert str(ColumnBatch({"x": array}).to_torch()["x"].dtype) == f"torch.{dtype}"


def test_ragged() -> None:
    columns = batch()
    ragged = columns.to_torch()["ids"]
    assert isinstance(ragged, TensorRagged) and isinstance(ragged, Ragged)
    assert ragged.values.dtype == torch.int64 and ragged.row_splits.tolist() == [0, 2, 2, 3]
    assert ragged.lengths().tolist() == [2, 0, 1] and len(ragged) == 3
    assert [row.tolist() for row in ragged] == [[1, 2], [], [3]] == ragged.to_list()
    assert ragged[-1].tolist() == [3] and ragged[[2, 0]].to_list() == [[3], [1, 2]]
    with pytest.raises(IndexError, match="position 3"):
        ragged[3]
    ragged.values[0] = 9
    assert columns["ids"].values[0] == 9


def test_a_kind_that_no_record_told_has_no_tensor() -> None:
    unknown = Ragged(np.empty(0, object), [0, 0, 0])
    assert unknown.to_torch() == [[], []]
    assert ColumnBatch({"x": unknown}).to_torch(ragged="pad") == {"x": [[], []]}


def test_ragged_from_tensors() -> None:
    ragged = TensorRagged(torch.tensor([1.5, 2.5]), torch.tensor([0, 1, 2]))
    assert ragged.values.dtype == torch.float32 and ragged.to_list() == [[1.5], [2.5]]
    outer = TensorRagged(ragged, [0, 2])
    assert outer.to_list() == [[[1.5], [2.5]]]
    with pytest.raises(ValueError, match="end at 3"):
        TensorRagged(torch.tensor([1.5, 2.5]), [0, 3])


def test_padding_is_that_of_numpy() -> None:
    for column in (batch()["ids"], nested(), Ragged(np.arange(6.0).reshape(3, 2), [0, 1, 1, 3])):
        tensors = column.to_torch()
        for fill, width in [(0, None), (-1, 1), (-1, 4), (0, 0)]:
            assert tensors.to_padded(fill, width).tolist() == column.to_padded(fill, width).tolist()
            assert tensors.mask(width).tolist() == column.mask(width).tolist()
    assert nested().to_torch().to_padded(0, (1, None)).tolist() == nested().to_padded(0, (1, None)).tolist()
    assert Ragged(np.zeros(0, np.int64), [0]).to_torch().to_padded().shape == (0, 0)
    with pytest.raises(ValueError, match="fill value 0.5 does not fit torch.int64"):
        nested().to_torch().to_padded(0.5)
    for fill in ("x", 1 << 64):
        with pytest.raises(ValueError, match=r"fill value .* does not fit torch\.int64"):
            nested().to_torch().to_padded(fill)
    with pytest.raises(ValueError, match="max_length"):
        batch()["ids"].to_torch().to_padded(0, -1)


def test_batches_padded() -> None:
    made = batch().to_torch(ragged="pad", fill_value=-1, max_length=1)
    assert made["ids"].tolist() == [[1], [-1], [3]] and made["ids_mask"].tolist() == [[True], [False], [True]]
    assert made["steps"].shape == (3, 1, 2) and made["steps_mask"].dtype == torch.bool
    assert made["tags"] == [[], [b"x", b"y"], []]
    with pytest.raises(ValueError, match="'x_mask'"):
        ColumnBatch({"x": Ragged([1], [0, 1]), "x_mask": [1]}).to_torch(ragged="pad")
    with pytest.raises(ValueError, match="'ragged', 'pad' or 'nested'"):
        batch().to_torch(ragged="padded")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors() -> None:
    made = batch().to_torch(ragged="nested")
    assert made["ids"].is_nested
    assert [row.tolist() for row in made["ids"].unbind()] == [[1, 2], [], [3]]
    assert [row.tolist() for row in made["steps"].unbind()] == [[[1, 2, 0]], [], [[0, 0, 0], [3, 4, 5]]]


def test_ragged_travels() -> None:
    for ragged in (batch().to_torch()["ids"], nested().to_torch()):
        assert pickle.loads(pickle.dumps(ragged)) == ragged
        assert ragged.numpy().to_torch() == ragged and ragged != ragged[:1] and ragged != ragged.numpy()
        half = ragged.to(torch.float16)
        assert half.row_splits.dtype == torch.int64 and half.to_list() == ragged.to_list()
        meta = ragged.to("meta")
        assert meta.row_splits.device.type == "meta"
        assert repr(ragged).startswith("TensorRagged of ")
        assert ragged.nbytes == ragged.numpy().nbytes


def test_sequences() -> None:
    context, lists = SequenceBatch(batch().select(["vec"]), batch().select(["steps"])).to_torch(ragged="pad")
    assert list(context) == ["vec"] and set(lists) == {"steps", "steps_mask"}


def test_a_data_loader_carries_them() -> None:
    loader: Any = torch.utils.data.DataLoader([batch().to_torch()] * 4, batch_size=None, num_workers=1)
    got = list(loader)
    assert len(got) == 4 and got[3]["steps"].to_list() == nested().to_list()
