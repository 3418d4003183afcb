"""What the tests of the reader service share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow.flight")

from local_server import TOKEN, LocalServer  # noqa: E402

from tfrecord.flight.connection import _connections  # noqa: E402
from tfrecord.flight.server import ServiceOptions  # noqa: E402

# The tests of the reader, which run here too.
sys.path.append(str(Path(__file__).resolve().parents[1] / "reading"))


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., LocalServer]]:
    """Starts servers with the options of `ServiceOptions`; the same server for the same options."""
    servers: dict[Any, LocalServer] = {}

    def one(**options: Any) -> LocalServer:
        made = ServiceOptions(**options)
        return servers.get(made) or servers.setdefault(made, LocalServer(made))

    yield one
    for connection in list(_connections):  # a server ends when no call is open
        connection.close()
    for server in servers.values():
        server.flight.shutdown()


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of these servers, which clients find in their environment, since pickles do not hold it."""
    monkeypatch.setenv("TFRECORD_TOKEN", TOKEN)
    return TOKEN


@pytest.fixture
def server(token: str, start: Callable[..., LocalServer]) -> LocalServer:
    return start()
