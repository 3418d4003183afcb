"""A local server of three shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from range_server import RangeServer, serve
from remote_shards import COUNT

import tfrecord


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards with indexes; labels are kept in them."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"index": True, "columns": ["label"]}
    with tfrecord.ShardedTFRecordWriter(folder / "t", 3, **options) as writer:
        for i in range(COUNT):
            values = rng.standard_normal(int(rng.integers(1, 400)), dtype=np.float32)
            writer.write({"id": (i, "int"), "label": (i % 7, "int"), "values": (values, "float")})
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with serve(files={path.name: path.read_bytes() for path in folder.iterdir()}) as served:
        yield served
