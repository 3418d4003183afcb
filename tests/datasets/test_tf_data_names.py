"""Names of tf.data methods are answered with what does the same here."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from messages import example, ints

from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset

MakeFile = Callable[..., Path]
HINTS = {
    "map": "transform=",
    "batch": "batch_size=",
    "padded_batch": "ragged='pad'",
    "shuffle": "shuffle=True",
    "interleave": "glob or folder",
    "cache": "cache='auto'",
    "prefetch": "prefetch=",
    "as_numpy_iterator": "TFRecordReader",
    "shard": "world_size=",
    "bucket_by_sequence_length": "bucket_by_length",
}


@pytest.fixture(params=["iterable", "map-style", "mix"])
def dataset(request: pytest.FixtureRequest, make_file: MakeFile) -> Any:
    path = make_file([example(label=ints(i)) for i in range(3)])
    if request.param == "mix":
        return MultiTFRecordDataset.from_datasets([path], [1], infinite=False)
    return (TFRecordDataset if request.param == "iterable" else TFRecordMapDataset)(path)


@pytest.mark.parametrize(("name", "hint"), HINTS.items())
def test_methods_of_tf_data(dataset: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(dataset, name)
    assert hint in str(caught.value) and type(dataset).__name__ in str(caught.value)
    assert (caught.value.name, caught.value.obj) == (name, dataset)
    assert not hasattr(dataset, name) and getattr(dataset, name, None) is None


def test_other_names_and_copies(dataset: Any) -> None:
    with pytest.raises(AttributeError, match=r"object has no attribute 'nonsense'\Z"):
        dataset.nonsense  # noqa: B018
    assert not hasattr(dataset, "__array__") and not hasattr(type(dataset).__new__(type(dataset)), "map")
    for made in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert [int(record["label"][0]) for record in list(made)] == [0, 1, 2]
