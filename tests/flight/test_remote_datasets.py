"""Datasets over the URL of a server: the same items as over the files, in every process."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from local_server import LocalServer  # noqa: E402
from recorded import example, write  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import tfrecord  # noqa: E402
from tfrecord.flight import serve  # noqa: E402
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset  # noqa: E402

COUNT = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        payloads = [example(one) for one in range(number * 20, number * 20 + 20)]
        write(tmp_path / f"a-{number:05d}-of-00003.tfrecord", payloads)
    return tmp_path


def ids(items: Any) -> list[int]:
    return [int(one) for item in items for one in np.ravel(item["id"])]


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"shuffle": "block"}, {"batch_size": 7, "shuffle": True}]
)
def test_the_order_is_that_of_the_files(server: LocalServer, folder: Path, options: dict[str, Any]) -> None:
    options = {"features": {"id": tfrecord.FixedLenFeature((), "int64")}, "seed": 5, **options}
    remote, local = TFRecordDataset(server.add(folder), **options), TFRecordDataset(folder, **options)
    for _ in range(2):
        found = ids(remote)
        assert sorted(found) == list(range(COUNT)) and found == ids(local)
    shares = [
        ids(TFRecordDataset(server.add(folder), rank=rank, world_size=3, **options)) for rank in range(3)
    ]
    assert sorted(sum(shares, [])) == list(range(COUNT))


def test_a_state_goes_from_files_to_a_server_and_to_other_ranks(server: LocalServer, folder: Path) -> None:
    options: dict[str, Any] = {"features": ["id"], "shuffle": True, "seed": 1}
    local = TFRecordDataset(folder, **options)
    first = iter(local)
    taken = ids(next(first) for _ in range(20))
    state = local.state_dict()
    rest = []
    for rank in range(4):
        other = TFRecordDataset(server.add(folder), rank=rank, world_size=4, **options)
        other.load_state_dict(state)
        rest += ids(other)
    assert sorted(taken + rest) == list(range(COUNT))


def test_other_datasets_take_urls(server: LocalServer, folder: Path) -> None:
    records = TFRecordMapDataset(server.add(folder), features={"id": "int"})
    assert len(records) == COUNT and ids(records[[3, 1]]) == [3, 1]
    assert sorted(ids(DataLoader(records, batch_size=8))) == list(range(COUNT))
    for name in ("one", "two"):
        server.add(folder, name)
    pattern = f"{server.location}/{{}}"
    mixed = MultiTFRecordDataset(pattern, None, {"one": 0.5, "two": 0.5}, features=["id"], infinite=False)
    assert len(set(ids(mixed))) > COUNT / 2


def test_options_of_files_are_refused(server: LocalServer, folder: Path) -> None:
    for wrong in ({"index_path": False}, {"mmap": False}, {"cache": "auto"}):
        with pytest.raises(ValueError, match="only files have"):
            TFRecordDataset(server.add(folder), **wrong)
    with pytest.raises(PermissionError, match="refuses the token"):
        TFRecordDataset(server.add(folder), storage_options={"token": "a wrong one of many"})


def test_views_are_what_splits_are_for_files(server: LocalServer, folder: Path) -> None:
    reader = server.open(folder)
    with pytest.raises(TypeError, match=r"reader\.select\(range\(start, stop\)\)"):
        tfrecord.make_splits(reader)
    views = [pickle.loads(pickle.dumps(reader.select(range(first, first + 20)))) for first in (0, 20, 40)]
    assert [ids(view) for view in views] == [list(range(first, first + 20)) for first in (0, 20, 40)]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `flight_workers.py` found: a process without a server, which may fork."""
    path = tmp_path_factory.mktemp("outside")
    write(path / "a.tfrecord", [example(number) for number in range(COUNT)])
    script = Path(__file__).parent / "flight_workers.py"
    with serve({"a": path}) as server:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("TFRECORD_TOKEN", None)
        command = [sys.executable, "-W", "ignore", str(script), server.url, server.token]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_read_each_record_once(outside: dict[str, Any], method: str) -> None:
    assert outside["before"] == outside["after"] == list(range(COUNT))
    epochs = [sorted(epoch) for epoch in outside[method]]
    assert epochs and epochs == [list(range(COUNT))] * len(epochs)


def test_forks_in_the_middle_of_a_pass(outside: dict[str, Any]) -> None:
    assert outside["taken"] + outside["rest of the parent"] == list(range(COUNT))
    assert outside["rest of the child"] == outside["rest of the parent"]
