"""A server with 256 descriptors that a hostile client attacks, and one that is killed while it is read."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path

import pytest
from hostile import Hostile, resident
from recorded import example, ids, write

from tfrecord.flight import connect, serve
from tfrecord.flight.addresses import Address

COUNT = 2000


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TFRECORD_TOKEN", raising=False)
    return write(tmp_path / "a.tfrecord", [example(number) for number in range(COUNT)])


def test_a_hostile_client(path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with serve(path, timeout=5) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limits[0], limits[1]))
            done = Hostile(server.url, server.token, most_connections=400).run(2)
            assert all(done.values())
            with connect(server.url) as reader:
                assert ids(reader.read([7, 1999])) == [7, 1999] and ids(reader) == list(range(COUNT))
            assert resident(server.pid) < 1 << 20
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_every_record_once_over_two_kills(path: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    got: list[list[int]] = [[] for _ in range(4)]

    def client(number: int, url: str, secret: str) -> None:
        with connect(url, token=secret, request_timeout=120) as reader:
            for batch in reader.batches(16, shuffle=True, seed=number):
                got[number] += ids(batch)
                pace.wait(0.002)

    pace = threading.Event()
    clients: list[threading.Thread] = []
    port = 0
    for life in range(3):
        with serve(path, token_file=token, port=port) as server:
            if not clients:
                port = Address.of(server.url).port
                clients = [
                    threading.Thread(target=client, args=(number, server.url, server.token))
                    for number in range(len(got))
                ]
                for thread in clients:
                    thread.start()
            before = sum(map(len, got))
            while sum(map(len, got)) < before + COUNT and any(thread.is_alive() for thread in clients):
                pace.wait(0.005)
            if life < 2:
                os.kill(server.pid, signal.SIGKILL)
            else:
                for thread in clients:
                    thread.join(120)
    assert [sorted(one) for one in got] == [list(range(COUNT))] * len(got)
