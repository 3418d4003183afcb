"""Comparisons on TFDS folders: examples one by one, and batches of columns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_corpus import Shape

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

_CORE = "tensorflow_datasets.core.features"
_DTYPES = {"float": "float32", "int": "int64"}


def tfds(plan: Plan) -> Iterator[Case]:
    """A pass over a split: a table of numbers, and images that are not decoded."""
    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape)
        spec["folder"] = str(_folder(shape, Path(spec["path"])))
        factor = 5.0 if shape.name == "tab" else 2.0
        one_by_one = (
            Contender("ours", "for example in reader", "tfrecord", "tfds_examples", spec),
            Contender("tfds", "tfds.as_numpy(dataset)", "tensorflow_datasets", "examples", spec),
        )
        target = Target(f"{shape.name}: examples against TFDS", "ours", ("tfds",), factor)
        yield Case("tfds", shape.name, "examples one by one", one_by_one, (target,))
        batches = (
            Contender("ours", "reader.batches", "tfrecord", "tfds_batches", spec),
            Contender("tfds", "tfds.as_numpy(dataset.batch)", "tensorflow_datasets", "batches", spec),
        )
        target = Target(f"{shape.name}: batches against TFDS", "ours", ("tfds",), factor)
        yield Case("tfds", shape.name, f"batches of {shape.batch:,}", batches, (target,))


def _folder(shape: Shape, path: Path) -> Path:
    """A prepared folder around a corpus file."""
    folder = path.with_suffix("") / "1.0.0"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"{shape.name}-train.tfrecord-00000-of-00001"
    if not link.exists():
        os.link(path, link)
    split = {"name": "train", "shardLengths": [str(shape.records)], "numBytes": str(path.stat().st_size)}
    info = {"name": shape.name, "version": "1.0.0", "fileFormat": "tfrecord", "splits": [split]}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    features = {column.name: _feature(column.name, column.kind, column.length) for column in shape.columns}
    root = {"pythonClassName": f"{_CORE}.features_dict.FeaturesDict", "featuresDict": {"features": features}}
    (folder / "features.json").write_text(json.dumps(root))
    return folder


def _feature(name: str, kind: str, length: int) -> dict[str, Any]:
    if name == "image":
        sizes = {"dimensions": ["-1", "-1", "3"]}
        return {
            "pythonClassName": f"{_CORE}.image_feature.Image",
            "image": {"shape": sizes, "dtype": "uint8"},
        }
    if kind == "bytes":
        return {"pythonClassName": f"{_CORE}.text_feature.Text", "text": {}}
    shape = {"dimensions": [str(length)]} if length > 1 else {}
    tensor = {"shape": shape, "dtype": _DTYPES[kind], "encoding": "none"}
    return {"pythonClassName": f"{_CORE}.tensor_feature.Tensor", "tensor": tensor}
