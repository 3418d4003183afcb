"""The side of tensorflow-datasets: `as_numpy` of a prepared folder, images not decoded."""

from __future__ import annotations

from typing import Any

import tensorflow_datasets as tfds  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchlib.common import Run, Spec, Task


def version() -> str:
    """The version of tensorflow-datasets."""
    return str(tfds.__version__)


def _dataset(spec: Spec) -> Any:
    builder = tfds.builder_from_directory(spec["folder"])
    skipped = {name: tfds.decode.SkipDecoding() for name, _, _ in spec["features"] if name == "image"}
    config = tfds.ReadConfig(try_autocache=False)  # a cache would hold the decoded examples
    return builder.as_dataset(split="train", decoders=skipped, read_config=config)


def examples(spec: Spec) -> Run:
    """One example after the other."""
    dataset = _dataset(spec)
    return lambda: sum(1 for _ in tfds.as_numpy(dataset))


def batches(spec: Spec) -> Run:
    """Batches of a pass."""
    dataset = _dataset(spec).batch(spec["batch"])
    return lambda: sum(len(batch["label"]) for batch in tfds.as_numpy(dataset))


TASKS: dict[str, Task] = {"examples": examples, "batches": batches}
