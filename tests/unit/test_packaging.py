"""What the sdist must hold to build the kernels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parents[2]


def test_every_source_of_the_kernels_is_named() -> None:
    named = set(re.findall(r'"([\w/]+\.(?:h|pxd|pxi|pyx))"', (ROOT / "pyproject.toml").read_text()))
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("indexer/_kernel", "tfrecord/_kernels")
        for path in (ROOT / folder).iterdir()
        if path.suffix in {".h", ".pxd", ".pxi", ".pyx"}
    }
    assert there and there == named
