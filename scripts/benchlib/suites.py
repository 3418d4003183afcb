"""The subcommands and the cases of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchlib import (
    suites_compressed,
    suites_files,
    suites_flight,
    suites_images,
    suites_memory,
    suites_parse,
    suites_ray,
    suites_remote,
    suites_tfds,
    suites_torch,
)
from benchlib.harness import Case
from benchlib.plan import Plan

SUITES: dict[str, Callable[[Plan], Iterator[Case]]] = {
    "index": suites_files.index,
    "decode": suites_parse.decode,
    "read": suites_files.read,
    "random": suites_files.random,
    "write": suites_files.write,
    "torch": suites_torch.torch,
    "compressed": suites_compressed.compressed,
    "images": suites_images.images,
    "memory": suites_memory.memory,
    "tfds": suites_tfds.tfds,
    "ray": suites_ray.ray,
    "remote": suites_remote.remote,
    "flight": suites_flight.flight,
}
