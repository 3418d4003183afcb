"""Readers in forked and spawned processes, and with few file descriptors."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.framing import frame_record
from tfrecord.reader import TFRecordReader

ROOT = Path(__file__).resolve().parents[2]


def payload(number: int) -> bytes:
    return b"%d:" % number + bytes([number % 251]) * (number % 50)


def write(path: Path, numbers: range) -> Path:
    data = b"".join(frame_record(payload(number)) for number in numbers)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read_shuffled(reader: TFRecordReader, seed: int) -> str:
    """What is wrong, or an empty text; runs in the children."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        asked = rng.integers(0, len(reader), 17)
        if reader.read(asked).to_list() != [payload(position) for position in asked.tolist()]:
            return f"wrong batch in process {seed}"
        position = int(asked[0])
        if reader[position] != payload(position) or bytes(reader.raw(position)) != payload(position):
            return f"wrong record in process {seed}"
    if list(reader) != [payload(position) for position in range(len(reader))]:
        return f"wrong iteration in process {seed}"
    return ""


def child(reader: TFRecordReader, seed: int, results: Any) -> None:
    results.put(read_shuffled(reader, seed))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("opened", [False, True])
def test_processes_share_nothing_that_moves(tmp_path: Path, method: str, opened: bool) -> None:
    """Plain and spooled files, opened in the parent before the children start, or not."""
    paths = [write(tmp_path / "a.gz", range(0, 300)), write(tmp_path / "b", range(300, 500))]
    reader = TFRecordReader(paths, record_type="bytes", mmap=method == "fork")
    if opened:
        assert read_shuffled(reader, 9) == ""
    context = multiprocessing.get_context(method)
    results = context.Queue()
    children = [context.Process(target=child, args=(reader, seed, results)) for seed in range(4)]
    for process in children:
        process.start()
    assert read_shuffled(reader, 10) == ""
    assert [results.get(timeout=120) for _ in children] == [""] * 4
    for process in children:
        process.join()
        assert process.exitcode == 0


def test_a_child_is_not_stopped_by_a_lock_of_its_parents_threads(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gz", range(300))
    reader = TFRecordReader(path, record_type="bytes")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        store = reader._view.store
        with store._lock, store._compressed._lock, store._compressed._spool._lock, store._files._lock:
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    process = context.Process(target=child, args=(reader, 1, results))
    process.start()
    try:
        assert results.get(timeout=60) == ""
    finally:
        release.set()
        thread.join()
        process.join()


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Few beyond those that earlier tests left open in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 200, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("mmap", [True, False])
def test_many_files_and_few_descriptors(
    tmp_path: Path, few_descriptors: None, suffix: str, mmap: bool
) -> None:
    """In random order, with every view held."""
    count = 400 if suffix else 2000
    for number in range(count):
        write(tmp_path / f"f-{number}.tfrecord{suffix}", range(number, number + 1))
    reader = TFRecordReader(tmp_path, record_type="bytes", mmap=mmap)
    order = np.random.default_rng(0).permutation(count)
    views = [reader.raw(position) for position in order]
    columns = [reader.read_raw(order[first : first + 500]) for first in range(0, count, 500)]
    streamed = [view for number in range(reader.num_files) for _, view in reader.iter_file(number)]
    for view, position in zip(views, order.tolist(), strict=True):
        assert view == payload(position) == streamed[position]
    assert [value for column in columns for value in column] == [
        payload(position) for position in order.tolist()
    ]


@pytest.mark.parametrize("mmap", [True, False])
def test_fewer_descriptors_than_a_reader_keeps_open(tmp_path: Path, mmap: bool) -> None:
    """It makes do with those there are, also for random access right after."""
    count = 200
    for number in range(count):
        write(tmp_path / f"f-{number}.tfrecord", range(number, number + 1))
    code = f"""
        import resource, sys
        sys.path.insert(0, {str(ROOT)!r})
        from tfrecord.reader import TFRecordReader
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
        reader = TFRecordReader({str(tmp_path)!r}, record_type="bytes", mmap={mmap})
        order = list(range(0, {count}, 3)) + list(range({count}))[::-1]
        found = reader.read(order).to_list() + [reader[position] for position in order]
        assert [int(item.split(b":")[0]) for item in found] == 2 * order
        assert len(list(reader)) == {count}
    """
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_in_a_pipeline_of_iterators_is_closed_by_forgetting_it(tmp_path: Path) -> None:
    """Descriptors come back without a close, also from iterations that were left in the middle."""
    path = write(tmp_path / "a.gz", range(300))
    code = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from tfrecord.reader import TFRecordReader
        def descriptors():
            return len(os.listdir("/proc/self/fd"))
        before = descriptors()
        for _ in range(50):
            reader = TFRecordReader({str(path)!r}, record_type="bytes", mmap=False)
            running = iter(reader)
            next(running)
            reader[7]
        del reader, running
        assert descriptors() == before, (before, descriptors())
    """
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
