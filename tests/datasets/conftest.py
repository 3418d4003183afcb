"""What the tests of the torch datasets share."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from simulation import write_files  # noqa: E402


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """`write_files` in a folder of its own for each call."""
    numbers = itertools.count()

    def build(counts: list[int], **options: Any) -> list[str]:
        return write_files(tmp_path / str(next(numbers)), counts, **options)

    return build


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the warnings that are wanted elsewhere (shared decompression, queue for a permutation)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*compressed.*", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*ranks get one more batch", category=UserWarning)
        yield
