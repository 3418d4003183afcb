"""What the tests of index formats share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from collected import PAYLOADS

from indexer.build import build_index


@pytest.fixture
def data(make_file: Any) -> Path:
    """A data file."""
    path: Path = make_file(PAYLOADS)
    return path


@pytest.fixture
def stored(data: Path, tmp_path: Path) -> Path:
    """The extended index of it."""
    path = tmp_path / "stored.tfindex"
    build_index(data, path)
    return path
