"""This library's side of what runs on Ray, in an environment that has Ray."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

from benchlib.common import Run, Spec, Task, memory, reset_peak

CPUS = 2


def version() -> str:
    """Ray's version."""
    return str(ray.__version__)


def start() -> None:
    """Ray with two CPUs in this process, once; its workers import what this process does."""
    if ray.is_initialized():
        return
    warnings.simplefilter("ignore")
    ray.init(
        num_cpus=CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def rows_to_driver(dataset: Any, batch: int) -> int:
    """A pass over the data set in the driver."""
    found = dataset.iter_batches(batch_size=batch, batch_format="pyarrow")
    return sum(table.num_rows for table in found)


def timed(read: Callable[[str], int], spec: Spec) -> Run:
    """A timed pass over the file, after one over a small file: Ray ends idle worker processes, and starting
    new ones must not be measured."""

    def run() -> dict[str, Any]:
        read(spec["warm"])
        reset_peak()
        begin = time.perf_counter()
        rows = read(spec["path"])
        return {"records": rows, "seconds": time.perf_counter() - begin, "rss": memory()[1]}

    return run


def _count(table: Any) -> Any:
    return {"rows": [table.num_rows]}


def read(spec: Spec) -> Run:
    """``tfrecord.ray.read_tfrecords`` to the driver, or counted where it was read; with an index."""
    import tfrecord
    import tfrecord.ray

    start()
    folder = tempfile.TemporaryDirectory()
    indexes = {path: os.path.join(folder.name, f"{name}.tfindex") for name, path in _files(spec).items()}
    for path, index in indexes.items():
        tfrecord.build_index(path, index)

    def one_pass(path: str) -> int:
        assert folder.name  # it lives as long as this function
        times = spec.get("times", 1)
        dataset = tfrecord.ray.read_tfrecords([path] * times, index=[indexes[path]] * times)
        if spec.get("to") == "workers":
            counts = dataset.map_batches(_count, batch_format="pyarrow", batch_size=None)
            return int(sum(row["rows"] for row in counts.take_all()))
        return rows_to_driver(dataset, spec["batch"])

    return timed(one_pass, spec)


def _files(spec: Spec) -> dict[str, str]:
    return {name: spec[name] for name in ("warm", "path")}


TASKS: dict[str, Task] = {"read": read}
