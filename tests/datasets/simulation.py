"""Data sets for the torch tests, and workers without processes.

Its name is its own: spawned children find it wherever their path begins.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.random  # noqa: F401 - here, and not at the first use in each worker
import torch.utils.data._utils.worker as torch_worker

import indexer
from tfrecord.columns import Ragged
from tfrecord.features import FixedLenFeature
from tfrecord.writer import TFRecordWriter

for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
    os.environ.pop(name, None)

DENSE = {"id": FixedLenFeature((), "int"), "name": FixedLenFeature((), "byte")}


def write_files(
    folder: Path, counts: list[int], *, gzip: bool = False, index: bool = False, first: int = 0
) -> list[str]:
    """Files of records {"id": running number, "x": id % 4 floats, "name": bytes}."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, number = [], first
    for i, count in enumerate(counts):
        path = str(folder / f"part-{i:02d}.tfrecord{'.gz' if gzip else ''}")
        with TFRecordWriter(path, compression_type="GZIP" if gzip else None) as writer:
            for _ in range(count):
                x = [float(number)] * (number % 4)
                writer.write({"id": (number, "int"), "x": (x, "float"), "name": (b"n%d" % number, "byte")})
                number += 1
        if index:
            indexer.build_index(path)
        paths.append(path)
    return paths


def ids(items: Any) -> list[int]:
    """The record numbers in items: records, batches of tensors, or collated batches."""
    out: list[int] = []
    for item in items:
        value = item["id"]
        value = value.values if isinstance(value, Ragged) else value
        out.extend(int(v) for v in np.asarray(value).ravel())
    return out


_identity = itertools.count(1000)


class SimulatedLoader:
    """A DataLoader's workers, one after another in this process: their order, their seeds, their passes.

    `persistent` workers keep their copy of the dataset, others get a new one each pass, as forked ones do.
    """

    def __init__(self, dataset: Any, num_workers: int, *, persistent: bool = False) -> None:
        self.dataset, self.num_workers, self.persistent = dataset, num_workers, persistent
        self._workers: list[Any] | None = None
        self._seeds = itertools.count(7, 1000)

    def _start(self) -> list[Any]:
        seed, base = next(self._seeds), next(_identity) * 100
        return [_Worker(self.dataset, i, self.num_workers, seed, base) for i in range(self.num_workers)]

    def iterators(self) -> list[Any]:
        if self._workers is None or not self.persistent:
            self._workers = self._start()
        return [worker.iterate() for worker in self._workers]

    def __iter__(self) -> Iterator[Any]:
        if not self.num_workers:
            yield from self.dataset
            return
        running = self.iterators()
        while running:
            for iterator in list(running):
                try:
                    yield next(iterator)
                except StopIteration:
                    running.remove(iterator)


class _Worker:
    """What a forked worker has: a shallow copy of the dataset with the same shared counter."""

    def __init__(self, dataset: Any, number: int, count: int, seed: int, base: int) -> None:
        self.dataset = object.__new__(type(dataset))
        self.dataset.__dict__.update(dataset.__dict__)
        if hasattr(self.dataset, "_fresh"):
            self.dataset._fresh()
        self.info = torch_worker.WorkerInfo(
            id=number, num_workers=count, seed=seed + number, dataset=self.dataset
        )
        self.identity = base + number

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        import multiprocessing

        process = multiprocessing.current_process()
        before, identity = torch_worker._worker_info, process._identity
        torch_worker._worker_info, process._identity = self.info, (self.identity,)
        try:
            yield
        finally:
            torch_worker._worker_info, process._identity = before, identity

    def iterate(self) -> Iterator[Any]:
        with self.inside():
            iterator = iter(self.dataset)

        def run() -> Iterator[Any]:
            while True:
                with self.inside():
                    try:
                        item = next(iterator)
                    except StopIteration:
                        return
                yield item

        return run()


def read_with(dataset: Any, steps: int) -> dict[str, Any]:
    """The state after so many items, as JSON would keep it."""
    iterator = iter(dataset)
    for _ in range(steps):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(dataset.state_dict()))
    return state
