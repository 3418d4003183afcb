"""What all tests share: where the outside test data is, and a maker of record files."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from indexer.framing import frame_record

MakeFile = Callable[..., Path]

# Machines differ in speed, and no test is about time.
settings.register_profile("default", deadline=None)
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of outside test data; the test is skipped where it is absent."""
    given = os.environ.get("TFRECORD_SHARED")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "cases").is_dir():
        pytest.skip(f"no test data at {folder}; TFRECORD_SHARED may name another place")
    return folder


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    """``make_file(payloads, name="a.tfrecord", compression="")`` writes a record file and gives its path."""

    def make(payloads: Sequence[bytes], name: str = "a.tfrecord", compression: str = "") -> Path:
        data = b"".join(map(frame_record, payloads))
        if compression == "gzip":
            data = gzip.compress(data)
        elif compression == "zlib":
            data = zlib.compress(data)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return make
