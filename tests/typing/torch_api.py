"""What a type checker sees of the torch datasets and of sampling; checked by mypy, never run."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import assert_type

from tfrecord.sampling import Permutation
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset, pad_collate


def change(item: dict[str, Any]) -> dict[str, Any]:
    return item


def iterable() -> None:
    dataset = TFRecordDataset("a.tfrecord", None, {"x": "float"}, 1024, change, None, "GZIP", seed=1)
    assert_type(len(dataset), int)
    assert_type(dataset.state_dict(), dict[str, Any])
    as_torch: torch.utils.data.IterableDataset[Any] = dataset
    assert as_torch
    mixed = MultiTFRecordDataset("{}.tfrecord", None, {"a": 0.5, "b": 0.5}, {"x": "float"}, infinite=False)
    assert_type(mixed.state_dict(), dict[str, Any])
    assert_type(MultiTFRecordDataset.from_datasets([dataset], [1.0]), MultiTFRecordDataset)
    TFRecordDataset("a.tfrecord", None, {"x": "float"}, "many")  # type: ignore[arg-type]


def operations() -> None:
    dataset = TFRecordDataset("a.tfrecord", features={"x": "float"}, shuffle="block", split="drop")
    assert_type(dataset.take(3).skip(1).repeat(), TFRecordDataset)
    assert_type(dataset.filter(lambda record: True), TFRecordDataset)
    assert_type(dataset.bucket_by_length("x", [1], [2, 3]), TFRecordDataset)
    assert_type(MultiTFRecordDataset.from_datasets([dataset], [1.0]).take(3), MultiTFRecordDataset)
    assert_type(dataset.num_skipped, int)
    TFRecordDataset("a.tfrecord", verify=False, mmap=False)
    TFRecordDataset("a.tfrecord", shuffel=True)  # type: ignore[call-arg]
    TFRecordDataset("a.tfrecord", split="exat")  # type: ignore[arg-type]
    TFRecordDataset("a.tfrecord", shuffle="blocks")  # type: ignore[arg-type]
    TFRecordDataset("a.tfrecord", ragged="padded")  # type: ignore[arg-type]
    TFRecordDataset("a.tfrecord", on_error="skp")  # type: ignore[arg-type]
    TFRecordDataset("a.tfrecord", record_type="exampel")  # type: ignore[arg-type]
    TFRecordMapDataset("a.tfrecord", verfy=False)  # type: ignore[call-arg]
    TFRecordMapDataset("a.tfrecord", on_error=3)  # type: ignore[arg-type]


def mapped() -> None:
    dataset = TFRecordMapDataset("a.tfrecord", None, {"x": "float"})
    assert_type(len(dataset), int)
    assert_type(dataset.__getitems__([1, 2]), list[Any])
    as_torch: torch.utils.data.Dataset[Any] = dataset
    torch.utils.data.DataLoader(as_torch, collate_fn=pad_collate(0, max_length=5))


def sampling() -> None:
    order = Permutation(10**10, seed=3, epoch=1)
    assert_type(order[5], int)
    assert_type(len(order), int)
