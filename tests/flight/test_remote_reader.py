"""The tests of `TFRecordReader`, with readers of a server in its place."""

from __future__ import annotations

import pytest
import test_reader
from local_server import LocalServer
from test_reader import *  # noqa: F403


@pytest.fixture(autouse=True)
def remote(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_reader, "TFRecordReader", server.open)
