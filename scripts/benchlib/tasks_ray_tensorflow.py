"""``ray.data.read_tfrecords``, in an environment that has Ray and TensorFlow."""

from __future__ import annotations

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]
import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchlib.common import Run, Spec, Task
from benchlib.tasks_ray import rows_to_driver, start, timed


def version() -> str:
    """The versions of Ray and TensorFlow."""
    return f"{ray.__version__} (TensorFlow {tf.__version__})"


def read(spec: Spec) -> Run:
    """All rows to the driver."""
    start()

    def one_pass(path: str) -> int:
        return rows_to_driver(ray.data.read_tfrecords(path, file_extensions=None), spec["batch"])

    return timed(one_pass, spec)


TASKS: dict[str, Task] = {"read": read}
