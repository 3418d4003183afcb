"""Datasets whose features are images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from tfrecord import FixedLenFeature, ImageError, ImageFeature

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402

from tfrecord.torch import TFRecordDataset, TFRecordMapDataset  # noqa: E402

_LABEL = FixedLenFeature((), "int")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 PNG files of one size, each of one colour; record 13 is damaged."""
    path = tmp_path_factory.mktemp("images") / "a"
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        for i in range(20):
            file = io.BytesIO()
            Image.fromarray(np.full((6, 5, 3), i, np.uint8)).save(file, "PNG")
            data = file.getvalue()[:-30] if i == 13 else file.getvalue()
            writer.write({"image": (data, "bytes"), "label": (i, "int")})
    return path


def options(*shape: Any) -> dict[str, Any]:
    return {"features": {"image": ImageFeature(shape or (6, 5, 3)), "label": _LABEL}, "on_error": "skip"}


def check(batches: Any) -> None:
    """Each batch's images are those of its labels, and all but the damaged record come."""
    found = []
    for batch in batches:
        for image, label in zip(batch["image"], batch["label"], strict=True):
            assert image.dtype == torch.uint8 and image.shape == (6, 5, 3) and (image == int(label)).all()
        found += batch["label"].tolist()
    assert sorted(found) == [i for i in range(20) if i != 13]


@pytest.mark.parametrize("more", [{}, {"prefetch": 2}, {"shuffle": True}, {"shuffle_queue_size": 5}], ids=str)
def test_batches(path: Path, more: dict[str, Any]) -> None:
    dataset: Any = TFRecordDataset(path, batch_size=4, **options(), **more)
    check(dataset)
    assert dataset.num_skipped == 1 and isinstance(next(iter(dataset))["image"], torch.Tensor)


def test_batches_of_images_of_any_size_are_lists(path: Path) -> None:
    dataset: Any = TFRecordDataset(path, batch_size=4, **options(None, None, 3))
    check(dataset)
    assert isinstance(next(iter(dataset))["image"], list)


def test_workers(path: Path) -> None:
    for shape in ((), (None, None, 3)):
        dataset: Any = TFRecordDataset(path, batch_size=4, **options(*shape))
        check(DataLoader(dataset, batch_size=None, num_workers=2))
        assert dataset.num_skipped == 1


def test_records_and_filters(path: Path) -> None:
    dataset: Any = TFRecordDataset(path, **options())
    assert [int(record["image"][0, 0, 0]) for record in dataset] == [i for i in range(20) if i != 13]
    bright = dataset.filter(lambda record: record["image"].mean() > 16)
    assert [int(record["label"]) for record in bright] == [17, 18, 19]


def test_the_error_of_a_dataset_names_the_record(path: Path) -> None:
    features = options()["features"]
    for more in ({"batch_size": 4}, {"batch_size": 4, "prefetch": 1}, {}):
        with pytest.raises(ImageError, match="record 13 .*feature 'image': is a PNG") as caught:
            list(TFRecordDataset(path, features=features, **more))  # type: ignore[arg-type]
        assert caught.value.path == str(path)
    data: Any = TFRecordMapDataset(path, features=features)
    assert data[3]["image"].shape == (6, 5, 3)
    with pytest.raises(ImageError):
        data[13]
