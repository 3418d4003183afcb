"""This library's side of training loops: epochs through a DataLoader, images, and steps beside loading."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import numpy as np

import tfrecord
from benchlib.common import Run, Spec, Task
from benchlib.ours import DTYPE_NAMES, features_of, holding, own_index, rows_of
from tfrecord._columns import pixels


def torch_epoch(spec: Spec) -> Run:
    """One epoch of the iterable dataset, whose batches come from columns, through a DataLoader."""
    import torch.utils.data

    from tfrecord.torch import TFRecordDataset

    folder, index_path = own_index(spec["path"])
    workers = spec["workers"]
    dataset: Any = TFRecordDataset(
        spec.get("url", spec["path"]),
        index_path,
        features_of(spec),
        shuffle=spec["shuffle"],
        batch_size=spec["batch"],
        cache=spec.get("cache"),
    )
    loader: Any = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    name = spec["features"][0][0]

    return holding(folder, lambda: sum(len(batch[name]) for batch in loader))


def _image_loader(spec: Spec, features: dict[str, Any], **options: Any) -> Any:
    import torch.utils.data

    from tfrecord.torch import TFRecordDataset

    workers = spec["workers"]
    dataset: Any = TFRecordDataset(
        spec["path"], None, features, shuffle=True, batch_size=spec["batch"], **options
    )
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


def images(spec: Spec) -> Run:
    """An epoch of JPEGs decoded by ImageFeature: from a reader's batches, or through a DataLoader."""
    side = spec["side"]
    image = tfrecord.ImageFeature((side, side, 3), num_threads=spec.get("threads"))
    features = {"image": image, "label": tfrecord.FixedLenFeature((), "int64")}
    if "workers" in spec:
        loader = _image_loader(spec, features)
        return lambda: sum(len(batch["image"]) for batch in loader)
    reader = tfrecord.TFRecordReader(spec["path"], index=False, features=features)
    pillow, simplejpeg = pixels.load_decoders()
    decoders = (pillow, simplejpeg if spec.get("simplejpeg", True) else None)

    def run() -> int:
        with mock.patch.object(pixels, "load_decoders", lambda: decoders):
            return rows_of(reader.batches(spec["batch"]))

    return run


def image_transform(spec: Spec) -> Run:
    """The same without ImageFeature: Pillow in a transform."""
    import io

    import torch
    from PIL import Image

    def decoded(batch: Any) -> Any:
        images = [np.asarray(Image.open(io.BytesIO(data))) for data in batch["image"]]
        return {"image": torch.from_numpy(np.stack(images)), "label": batch["label"]}

    features = {name: tfrecord.FixedLenFeature((), DTYPE_NAMES[kind]) for name, kind, _ in spec["features"]}
    loader = _image_loader(spec, features, transform=decoded)
    return lambda: sum(len(batch["image"]) for batch in loader)


def overlap(spec: Spec) -> Run:
    """Epochs of batches, each with a step that takes as long as loading a batch did, and needs no CPU."""
    from tfrecord.torch import TFRecordDataset

    folder, index_path = own_index(spec["path"])
    options: Any = {"batch_size": spec["batch"], "prefetch": spec["prefetch"]}
    dataset: Any = TFRecordDataset(spec["path"], index_path, features_of(spec), **options)
    name = spec["features"][0][0]

    def epoch(step: float) -> int:
        rows = 0
        for batch in dataset:
            rows += len(batch[name])
            if step:
                time.sleep(step)
        return rows

    passes = []
    for _ in range(4):
        start = time.perf_counter()
        epoch(0)
        passes.append(time.perf_counter() - start)
    step = min(passes) / len(dataset)
    return holding(folder, lambda: epoch(step))


TASKS: dict[str, Task] = {
    "torch_epoch": torch_epoch,
    "overlap": overlap,
    "images": images,
    "image_transform": image_transform,
}
