"""Operations and real loaders: other processes, and torchdata's states."""

from __future__ import annotations

from typing import Any

import pytest
from simulation import ids
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from tfrecord import FixedLenFeature, VarLenFeature
from tfrecord.torch import TFRecordDataset

# What torch and torchdata say of this machine and of each other.
pytestmark = [
    pytest.mark.one_run,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]
FEATURES = {"id": FixedLenFeature((), "int"), "x": VarLenFeature("float")}


def even(item: dict[str, Any]) -> Any:
    return item["id"] % 2 == 0


def buckets(paths: list[str]) -> Any:
    dataset = TFRecordDataset(paths, features=FEATURES, shuffle=True, ragged="pad")
    return dataset.filter(even).skip(3).filter(even).bucket_by_length("x", [1], [3, 4]).repeat(2)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_give_the_same(make: Any, method: str) -> None:
    dataset = buckets(make([30, 11]))
    expected = [[ids([item]) for item in dataset] for _ in range(2)]
    dataset.set_epoch(0)
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=method == "spawn",  # which take seconds to start
    )
    assert [[ids([item]) for item in loader] for _ in range(2)] == expected
    assert dataset.epoch == 1


def test_states_at_every_step(make: Any) -> None:
    paths = make([30, 11])
    whole = [ids([item]) for item in buckets(paths)]
    for step in range(1, len(whole), 3):
        loader = StatefulDataLoader(buckets(paths), batch_size=None, num_workers=2)
        iterator = iter(loader)
        assert [ids([next(iterator)]) for _ in range(step)] == whole[:step]
        state = loader.state_dict()
        resumed = StatefulDataLoader(buckets(paths), batch_size=None, num_workers=2)
        resumed.load_state_dict(state)
        assert [ids([item]) for item in resumed] == whole[step:]
