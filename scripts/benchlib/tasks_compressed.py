"""This library's side of the suite of compressed files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import tfrecord
from benchlib.common import Run, Spec, Task, draws


def _engine(spec: Spec) -> AbstractContextManager[Any]:
    """isal, or zlib as where isal is not installed."""
    if spec.get("isal", True):
        return nullcontext()
    return mock.patch("indexer.inputstream.fast_zlib", lambda: None)


def _indexed(spec: Spec) -> str:
    path: str = spec["path"]
    if not Path(f"{path}.tfindex").exists():
        tfrecord.build_index(path, record_type="bytes")
    return path


def random_records(spec: Spec) -> Run:
    """A new reader, and random records in one call."""
    path, (positions,) = _indexed(spec), draws(spec)

    def run() -> int:
        with (
            _engine(spec),
            tfrecord.TFRecordReader(path, record_type="bytes", access=spec["access"]) as reader,
        ):
            return len(reader.read_raw(positions))

    return run


def scan(spec: Spec) -> Run:
    """All records in stored order."""

    def run() -> int:
        with _engine(spec), tfrecord.TFRecordReader(spec["path"], record_type="bytes", index=False) as reader:
            return sum(map(len, reader.batches(1024)))

    return run


def halves(spec: Spec) -> Run:
    """Both halves of a file, each in a thread of its own or one after the other."""
    path = _indexed(spec)

    def run() -> int:
        splits = tfrecord.make_splits(path, 2, record_type="bytes")
        with ThreadPoolExecutor(spec["threads"]) as pool:
            return sum(pool.map(lambda split: sum(map(len, split.batches(1024))), splits))

    return run


TASKS: dict[str, Task] = {
    "compressed_random": random_records,
    "compressed_scan": scan,
    "compressed_halves": halves,
}
