"""Many files, many builders, and what becomes of an index when one is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from collected import PAYLOADS, Collected

from indexer import build
from indexer.build import build_index, check_index, sidecar_path
from indexer.build_many import build_indexes
from indexer.errors import ChecksumError
from indexer.formats import load_index

# ---- many files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 4])
def test_build_indexes(jobs: int, make_file: Any, tmp_path: Path) -> None:
    names = ["a.tfrecord", "b.tfrec", "sub/c.tfrecords", "sub/d.tfrecord-00000-of-00002", "sub/e.tfrecord.gz"]
    for name in names:
        make_file(PAYLOADS, name, "gzip" if name.endswith("gz") else "")
    make_file([], "empty.tfrecord")
    (tmp_path / "bad.tfrecord").write_bytes(b"this is text and not data")
    (tmp_path / "readme.md").write_bytes(b"not to be touched")
    seen: list[Any] = []
    results = build_indexes(tmp_path, jobs=jobs, progress=seen.append)
    assert sorted(results, key=str) == sorted(seen, key=str)
    status = {
        os.path.relpath(result.path, tmp_path): (result.status, result.num_records) for result in results
    }
    assert status == {
        **{name: ("built", 4) for name in names},
        "empty.tfrecord": ("built", 0),
        "bad.tfrecord": ("failed", None),
    }
    (bad,) = [result for result in results if result.error is not None]
    assert isinstance(bad.error, ChecksumError) and not os.path.exists(bad.index_path)
    again = build_indexes([tmp_path, tmp_path / "a.tfrecord"], jobs=jobs)
    assert [r.status for r in again] == ["fresh" if r.error is None else "failed" for r in results]
    os.utime(tmp_path / "a.tfrecord", (1, 1))
    assert build_indexes(tmp_path / "a.tfrecord")[0].status == "fresh"
    assert build_indexes(tmp_path / "a.tfrecord", force=True)[0].status == "built"
    make_file(PAYLOADS[:1], "a.tfrecord")
    assert build_indexes(tmp_path / "*.tfrecord")[0].status == "built"
    assert build_indexes(tmp_path / "b.tfrec", format="text")[0].status == "built"
    assert load_index(str(tmp_path / "b.tfrec.tfindex")).format == "text"
    assert len(build_indexes(tmp_path, recursive=False)) == len(results) - 3


def test_build_indexes_asks_the_collector(make_file: Any) -> None:
    class Wants(Collected):
        def satisfied_by(self, index: Any) -> bool:
            return "size" in index.columns

    data = make_file(PAYLOADS)
    build_index(data)
    assert build_indexes(data, collector_factory=Collected)[0].status == "fresh"
    assert build_indexes(data, collector_factory=Wants)[0].status == "built"
    assert build_indexes(data, collector_factory=Wants)[0].status == "fresh"


def test_build_indexes_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no data files"):
        build_indexes(tmp_path)
    with pytest.raises(FileNotFoundError):
        build_indexes(tmp_path / "absent.tfrecord")
    with pytest.raises(ValueError, match="empty"):
        build_indexes([])


def test_an_interrupt_stops_the_rest(make_file: Any, tmp_path: Path) -> None:
    for number in range(20):
        make_file(PAYLOADS, f"{number}.tfrecord")

    def interrupt(result: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_indexes(tmp_path, jobs=2, progress=interrupt)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


# ---- death, fullness, company ----------------------------------------------------------------------


_BUILDER = """
import sys
from indexer.build import build_index
while True:
    build_index(sys.argv[1], sys.argv[2])
    print("built", flush=True)
    if len(sys.argv) > 3: break
"""


def builder(data: Path, target: Path, *more: str) -> subprocess.Popen[str]:
    root = Path(build.__file__).resolve().parents[1]
    return subprocess.Popen(
        [sys.executable, "-c", _BUILDER, str(data), str(target), *more],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"},
    )


def test_killed_at_any_moment_the_index_stays_good(make_file: Any, tmp_path: Path) -> None:
    data = make_file([b"payload" * 20] * 3000)
    target = tmp_path / "i.tfindex"
    source = random.Random(3)
    for _ in range(6):
        process = builder(data, target)
        assert process.stdout is not None
        assert process.stdout.readline() == "built\n"
        time.sleep(source.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert len(load_index(target, data)) == 3000
    build_index(data, target)
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "i.tfindex"]


def test_eight_builders_leave_one_good_index(make_file: Any, tmp_path: Path) -> None:
    data = make_file([b"payload" * 20] * 3000)
    target = tmp_path / "i.tfindex"
    processes = [builder(data, target, "once") for _ in range(8)]
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "built\n")
    assert len(check_index(data, target)) == 3000
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "i.tfindex"]


def test_many_threads_leave_one_good_index(make_file: Any, tmp_path: Path) -> None:
    data = make_file([b"payload"] * 500)

    def work(_: int) -> set[int]:
        return {len(build_index(data)) + len(load_index(sidecar_path(data), data)) for _ in range(10)}

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [{1000}] * 8
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "a.tfrecord.tfindex"]


def test_a_full_disk_leaves_the_earlier_index(make_file: Any, tmp_path: Path) -> None:
    data = make_file([b"payload"] * 5000)
    target = tmp_path / "i.tfindex"
    build_index(data, target)
    earlier = target.read_bytes()
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "from indexer.build import build_index\n"
        "build_index(sys.argv[1], sys.argv[2])\n"
    )
    root = Path(build.__file__).resolve().parents[1]
    result = subprocess.run(
        [sys.executable, "-c", code, str(data), str(target)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"},
    )
    assert result.returncode == 1 and "OSError: [Errno 27] " in result.stderr
    assert target.read_bytes() == earlier
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "i.tfindex"]
