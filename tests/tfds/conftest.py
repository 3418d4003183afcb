"""The peer: tensorflow-datasets, in the Python that TFRECORD_TFDS_PYTHON names."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from prepared import run_peer


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `peer.py` filled."""
    python = os.environ.get("TFRECORD_TFDS_PYTHON")
    if not python:
        pytest.skip("TFRECORD_TFDS_PYTHON names no Python with tensorflow-datasets")
    folder = tmp_path_factory.mktemp("tfds")
    run_peer(python, folder)
    return folder


@pytest.fixture(scope="session")
def written(peer: Path) -> dict[str, Any]:
    """Folders that TFDS wrote, and what it reads from them."""
    found: dict[str, Any] = pickle.loads((peer / "expected.pickle").read_bytes())
    return found
