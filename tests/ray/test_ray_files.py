"""`tfrecord.ray.build_indexes` and `verify`: a row for each file, as without Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from indexer.build import check_index

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tfr(cluster: Any) -> Any:
    import tfrecord.ray

    return tfrecord.ray


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for place in range(200):
        with tfrecord.TFRecordWriter(tmp_path / f"{place:03d}.tfrecord") as writer:
            writer.write_batch({"id": np.arange(place), "x": np.zeros((place, 3))})
    return tmp_path


def test_indexes_are_those_of_a_local_build(shards: Path, tfr: Any) -> None:
    rows = tfr.build_indexes(shards, columns=["id"])
    assert [Path(row["path"]).name for row in rows] == [f"{place:03d}.tfrecord" for place in range(200)]
    assert [row["num_records"] for row in rows] == list(range(200))
    assert all(row["error"] is None and row["status"] == "built" for row in rows)
    for row in rows:
        made = Path(row["path"] + ".tfindex")
        data = made.read_bytes()
        tfrecord.build_index(row["path"], columns=["id"])
        assert made.read_bytes() == data
    again = tfr.build_indexes(shards, columns=["id"])
    assert {row["status"] for row in again} == {"fresh"}


def test_a_damaged_file_is_a_row(shards: Path, tfr: Any) -> None:
    path = shards / "100.tfrecord"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    for rows in (tfr.build_indexes(shards), tfr.verify(shards)):
        failed = [row for row in rows if row["error"]]
        assert len(rows) == 200 and [row["path"] for row in failed] == [str(path)]
        assert "record 99" in failed[0]["error"] and str(path) in failed[0]["error"]
    assert failed[0]["num_records"] == 99 and failed[0]["num_damages"] == 1
    assert not Path(f"{path}.tfindex").exists()


def test_options(shards: Path, tfr: Any) -> None:
    told: list[str] = []
    some = [shards / "003.tfrecord", shards / "004.tfrecord"]
    rows = tfr.build_indexes(some, format="text", progress=lambda row: told.append(row["path"]))
    assert sorted(told) == [row["path"] for row in rows] == list(map(str, some))
    assert check_index(some[0]).format == "text"
    assert [row["status"] for row in tfr.build_indexes(some)] == ["built"] * 2
    assert [row["status"] for row in tfr.build_indexes(some, force=True)] == ["built"] * 2
    with pytest.raises(FileNotFoundError):
        tfr.verify(shards / "absent")


def test_verify_reads_messages_unless_told(tfr: Any, make_file: Any) -> None:
    path = make_file([tfrecord.encode_example({"a": (1, "int")})] * 9 + [b"\xff"])
    assert "bad_message" in tfr.verify(path)[0]["error"]
    assert tfr.verify(path, parse=False)[0]["error"] is None


def test_the_script(shards: Path) -> None:
    """In a process of its own, which starts a Ray of its own."""
    pytest.importorskip("ray.data")
    (shards / "bad.tfrecord").write_bytes(b"\x05\0\0\0\0")
    command = [
        sys.executable,
        str(ROOT / "scripts" / "build_indexes.py"),
        str(shards),
        "--engine",
        "ray",
        "--jobs",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shards)
    assert done.returncode == 1, done.stderr
    assert "200 built, 0 fresh, 1 failed" in done.stdout
    assert f"built  {shards}/150.tfrecord: 150 records" in done.stdout
    assert f"failed: {shards}/bad.tfrecord" in done.stderr and "truncated_header" in done.stderr
    assert "schema" in check_index(shards / "150.tfrecord").metadata
