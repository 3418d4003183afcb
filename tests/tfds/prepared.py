"""Writes folders in the form of TFDS, without TFDS; and runs the peer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrecord.encode import encode_example
from tfrecord.writer import TFRecordWriter

_CORE = "tensorflow_datasets.core.features"
_FILES = {
    "FeaturesDict": "features_dict",
    "Image": "image_feature",
    "LabeledImage": "labeled_image",
    "ClassLabel": "class_label_feature",
    "Text": "text_feature",
    "Tensor": "tensor_feature",
    "Scalar": "scalar",
    "Sequence": "sequence_feature",
    "Dataset": "dataset_feature",
    "BBoxFeature": "bounding_boxes",
    "Audio": "audio_feature",
    "Video": "video_feature",
}


def node(connector: str, content: str = "", **fields: Any) -> dict[str, Any]:
    """One connector in the form of `features.json`."""
    made: dict[str, Any] = {"pythonClassName": f"{_CORE}.{_FILES[connector]}.{connector}"}
    if content:
        made[content] = fields
    return made


def dict_of(**features: Any) -> dict[str, Any]:
    """A FeaturesDict."""
    return node("FeaturesDict", "featuresDict", features=features)


def tensor(dtype: str, *shape: int, **more: Any) -> dict[str, Any]:
    """A Tensor; -1 is an open size."""
    sizes = {"dimensions": [str(size) for size in shape]} if shape else {}
    return node("Tensor", "tensor", shape=sizes, dtype=dtype, encoding=more.pop("encoding", "none"), **more)


def sequence(feature: Any, length: int = -1, connector: str = "Sequence") -> dict[str, Any]:
    """A Sequence, or a Dataset."""
    return node(connector, "sequence", feature=feature, length=str(length))


def image(*shape: int, dtype: str = "uint8", connector: str = "Image") -> dict[str, Any]:
    """An Image."""
    return node(connector, "image", shape={"dimensions": [str(size) for size in shape]}, dtype=dtype)


TEXT = node("Text", "text")


def write_folder(
    folder: Path,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
    **info: Any,
) -> Path:
    """A prepared folder: each split is a list of shards, each a list of records for `encode_example`."""
    folder.mkdir(parents=True, exist_ok=True)
    name = info.setdefault("name", "things")
    described = []
    for split, shards in splits.items():
        for number, records in enumerate(shards):
            path = folder / f"{name}-{split}.tfrecord-{number:05d}-of-{len(shards):05d}"
            with TFRecordWriter(str(path)) as writer:
                for record in records:
                    writer.write_bytes(encode_example(dict(record)))
        described.append({"name": split, "shardLengths": [str(len(records)) for records in shards]})
    (folder / "features.json").write_text(json.dumps(features))
    (folder / "dataset_info.json").write_text(json.dumps({"version": "1.0.0", "splits": described, **info}))
    return folder


def run_peer(python: str, folder: Path) -> None:
    """Run `peer.py`: all at once, because it takes long to start."""
    done = subprocess.run(
        [python, str(Path(__file__).with_name("peer.py")), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
