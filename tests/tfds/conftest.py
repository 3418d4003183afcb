"""The peer: tensorflow-datasets, in the Python that TFRECORD_TFDS_PYTHON names."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from prepared import run_peer


@pytest.fixture(scope="session")
def peer_python() -> str:
    """The peer's Python."""
    python = os.environ.get("TFRECORD_TFDS_PYTHON")
    if not python:
        pytest.skip("TFRECORD_TFDS_PYTHON names no Python with tensorflow-datasets")
    return python


@pytest.fixture(scope="session")
def written(peer_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Folders that TFDS wrote, and what it reads from them: see `peer.py`."""
    folder = tmp_path_factory.mktemp("tfds")
    run_peer(peer_python, "folders", str(folder))
    found: dict[str, Any] = pickle.loads((folder / "expected.pickle").read_bytes())
    return found
