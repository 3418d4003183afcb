"""States and patterns that cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest
from simulation import ids

from tfrecord.loaders import multi_tfrecord_loader
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_state_beyond_the_epoch(batch_size: int | None, make: Any) -> None:
    paths = make([10])
    dataset = TFRecordDataset(paths, batch_size=batch_size)
    state = dataset.state_dict()
    worker = {"worker": 0, "num_workers": 1, "taken": 0, "shift": 0}
    changes: list[dict[str, Any]] = [
        {"position": 12},
        {"position": 10**9},
        {"world_size": "2"},
        {"position": -1},
    ]
    changes += [{"layout": wrong} for wrong in (None, [1], 2**70)]
    changes += [worker | {name: wrong} for name in worker for wrong in ([1], {}, -1)]
    changes += [{"num_workers": 1}, {"world_size": True}, {"world_size": 0}, {"world_size": -100}]
    for change in changes:
        with pytest.raises(ValueError, match="state"):
            dataset.load_state_dict(state | change)
    assert len(ids(dataset)) == 10


def test_a_padded_state_of_more_ranks(make: Any) -> None:
    paths = make([10])
    options = {"split": "pad", "world_size": 7}
    last = [TFRecordDataset(paths, rank=rank, **options) for rank in range(7)]
    for dataset in last:
        items = iter(dataset)
        assert [next(items), next(items)]
        one = TFRecordDataset(paths, split="pad")
        one.load_state_dict(dataset.state_dict())
        assert len(ids(one)) == 10  # the next epoch


def test_one_file_for_several_splits(make: Any) -> None:
    (path,) = make([3])
    for call in (MultiTFRecordDataset, multi_tfrecord_loader):
        with pytest.raises(ValueError, match=r"has no \{\} to stand for the names of 2 splits"):
            call(path, None, {"a": 1, "b": 2})
        assert ids(call(path, None, {"a": 1, "b": 0}, infinite=False)) == [0, 1, 2]
