"""The cache of whole objects: fetched once, bounded, shared by processes, safe against kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from range_server import RangeServer, serve

from indexer.errors import RemoteError
from indexer.stores import StoreOptions, Url, open_store
from indexer.stores.cache import Cache, cache_folder

pytest.importorskip("obstore")

pytestmark = pytest.mark.one_run
ROOT = Path(__file__).resolve().parents[2]
SIZE = 100_000
FILES = {name: np.random.default_rng(ord(name)).bytes(SIZE) for name in "abcdef"}


def cached(server: RangeServer, name: str, folder: Path, limit: int = 10**9) -> bytes:
    """The object's bytes by way of a cache."""
    store, key = open_store(server.url(name))
    descriptor = Cache(StoreOptions(cache=str(folder), cache_bytes=limit)).get(store, store.stat(key))
    assert descriptor is not None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def test_an_object_is_fetched_once(tmp_path: Path) -> None:
    with serve(files=FILES) as server:
        assert cached(server, "a", tmp_path) == FILES["a"] == cached(server, "a", tmp_path)
        assert [m for m, _, _ in server.requests].count("GET") == 1


def test_another_version_is_another_file(tmp_path: Path) -> None:
    with serve(files={"a": b"old bytes"}) as server:
        assert cached(server, "a", tmp_path) == b"old bytes"
        server.files["a"], server.etags["a"] = b"new bytes", '"2"'
        assert cached(server, "a", tmp_path) == b"new bytes"


def test_the_oldest_go_when_the_bound_is_reached(tmp_path: Path) -> None:
    with serve(files=FILES) as server:
        for name in "abcabd":
            assert cached(server, name, tmp_path, 3 * SIZE) == FILES[name]
            time.sleep(0.02)  # so that times of use differ
        assert len(list(tmp_path.glob("*.object"))) == 3
        server.requests.clear()
        cached(server, "a", tmp_path, 3 * SIZE)
        assert "GET" not in [m for m, _, _ in server.requests]


def test_what_is_open_stays(tmp_path: Path) -> None:
    with serve(files=FILES) as server:
        cache = Cache(StoreOptions(cache=str(tmp_path), cache_bytes=2 * SIZE))
        store, _ = open_store(server.url("a"))
        held = [cache.get(store, store.stat(name)) for name in "ab"]
        assert None not in held
        assert cache.get(store, store.stat("c")) is None
        os.close(held[0])  # type: ignore[arg-type]
        freed = cache.get(store, store.stat("c"))
        assert freed is not None
        for descriptor in (held[1], freed):
            os.close(descriptor)  # type: ignore[arg-type]


def test_an_object_larger_than_the_cache_is_an_error(tmp_path: Path) -> None:
    with serve(files=FILES) as server, pytest.raises(RemoteError, match="do not fit into cache_bytes=10"):
        cached(server, "a", tmp_path, 10)


def test_a_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    with serve(files=FILES, faults=dict.fromkeys(range(1, 50), "503")) as server:
        store, key = open_store(Url(server.url("a"), StoreOptions(max_retries=0)))
        with pytest.raises(RemoteError):
            Cache(StoreOptions(cache=str(tmp_path))).get(store, store.stat(key))
    assert {path.name for path in tmp_path.iterdir()} <= {"lock"}


def test_leftovers_of_the_dead_count_and_go(tmp_path: Path) -> None:
    (tmp_path / "dead.object.part").write_bytes(bytes(2 * SIZE))
    with serve(files=FILES) as server:
        assert cached(server, "a", tmp_path, 2 * SIZE) == FILES["a"]
    assert not (tmp_path / "dead.object.part").exists()


def test_the_folder_of_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFRECORD_CACHE", "/somewhere")
    assert cache_folder("auto") == "/somewhere"
    monkeypatch.delenv("TFRECORD_CACHE")
    pytest.importorskip("platformdirs")
    assert cache_folder("auto").endswith("tfrecord") and os.path.isabs(cache_folder("auto"))


FILL = """
import os, sys
from indexer.stores import StoreOptions, Url, open_store
from indexer.stores.cache import Cache
url, folder, limit, names = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
cache = Cache(StoreOptions(cache=folder, cache_bytes=limit))
for name in names:
    store, key = open_store(url + name)
    descriptor = cache.get(store, store.stat(key))
    if descriptor is None:
        continue
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    print(name, len(data), data[:8].hex(), flush=True)
"""


def fill(server: RangeServer, folder: Path, limit: int, names: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", FILL, server.url(""), str(folder), str(limit), names]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
def test_200_kills_leave_no_half_object(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    command = [sys.executable, Path(__file__).with_name("killing.py"), tmp_path, "200"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.stdout, done.stderr) == ("200 killed\n", "")


def test_a_kill_while_a_server_answers(tmp_path: Path) -> None:
    with serve(files=FILES, delay=0.002) as server:
        for attempt in range(4):
            folder = tmp_path / str(attempt)
            child = fill(server, folder, 10**9, "abcdef")
            assert child.stdout is not None
            if attempt % 3:
                child.stdout.readline()
            time.sleep(0.003 * attempt)
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
            for name, data in FILES.items():
                assert cached(server, name, folder) == data
            assert not list(folder.glob("*.part"))


def test_processes_share_a_cache_that_is_smaller_than_the_data(tmp_path: Path) -> None:
    with serve(files=FILES) as server:
        children = [
            fill(server, tmp_path, 3 * SIZE, ("abcdef"[i % 6 :] + "abcdef"[: i % 6]) * 3) for i in range(8)
        ]
        for child in children:
            out = child.communicate(timeout=120)[0]
            assert child.returncode == 0
            for name, size, head in map(str.split, out.splitlines()):
                assert (int(size), head) == (SIZE, FILES[name][:8].hex())
    assert sum(path.stat().st_size for path in tmp_path.glob("*.object")) <= 3 * SIZE
