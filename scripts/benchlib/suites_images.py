"""Comparisons on images: an epoch of JPEGs decoded to pixels."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from make_corpus import Column, encode_column, example, frame

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan, warm

_SIDE = 224
_COUNT = 5000
_FEATURES = [["image", "bytes", 1], ["label", "int", 1]]


def images(plan: Plan) -> Iterator[Case]:
    """An epoch of JPEGs of 224 x 224 pixels in batches of 64, with one thread or process and with two."""
    path = _file(plan.folder, plan.some(_COUNT), plan.seed)
    warm(path)
    spec = {
        "path": str(path),
        "records": plan.some(_COUNT),
        "batch": 64,
        "features": _FEATURES,
        "side": _SIDE,
    }
    contenders, targets = [], []
    for threads in (1, 2):
        text = "1 thread" if threads == 1 else f"{threads} threads"
        given = spec | {"threads": threads}
        for key, label, more in (("ours", "simplejpeg", {}), ("pillow", "Pillow", {"simplejpeg": False})):
            contenders.append(_contender(f"{key}_{threads}", f"ImageFeature, {label}, {text}", given | more))
        contenders.append(
            _contender(f"tf_{threads}", f"tf.data decode_jpeg, {text}", given, package="tensorflow")
        )
        targets.append(Target(f"JPEGs, {text}, against tf.data", f"ours_{threads}", (f"tf_{threads}",), 1))
    for workers in (0, 2):
        given = spec | {"workers": workers}
        for key, label, task in (
            ("loader", "ImageFeature through a DataLoader", "images"),
            ("transform", "Pillow in a transform", "image_transform"),
        ):
            contenders.append(_contender(f"{key}_{workers}", f"{label}, {workers} workers", given, task))
    yield Case("images", "jpeg", f"an epoch of {spec['records']:,} JPEGs", tuple(contenders), tuple(targets))


def _contender(
    key: str, label: str, spec: dict[str, Any], task: str = "images", package: str = "tfrecord"
) -> Contender:
    return Contender(key, label, package, task, spec, one_cpu=spec.get("threads") == 1)


def _file(folder: Path, count: int, seed: int) -> Path:
    """Smooth shapes with noise, like photos of about 20 kB; determined by the seed."""
    from PIL import Image

    path = folder / f"jpeg-{count}-{seed}-{_SIDE}.tfrecord"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 8, (64, _SIDE, _SIDE, 3))
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    columns = [Column("image", "bytes"), Column("label", "int")]
    with open(partial, "wb") as out:
        for i in range(count):
            small = Image.fromarray(rng.integers(0, 256, (14, 14, 3), dtype=np.uint8))
            smooth = np.asarray(small.resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)) + noise[i % 64]
            file = io.BytesIO()
            Image.fromarray(np.clip(smooth, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
            entries = (
                encode_column(columns[0], [file.getvalue()]),
                encode_column(columns[1], np.array([[i % 10]], np.int64)),
            )
            out.write(frame(example(entry for (entry,) in entries)))
    os.replace(partial, path)
    return path
