"""Inputs that fuzzing found worth keeping, through the same checks as in ``scripts/fuzz.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from indexer._engine import engine as framing_engine
from tfrecord._kernels.engine import engine as decode_engine

ROOT = Path(__file__).resolve().parents[2]
SEEDS = sorted((ROOT / "tests" / "corpus").glob("*/*"))
sys.path.insert(0, str(ROOT / "scripts"))

from fuzzing import TARGETS  # noqa: E402


@pytest.mark.skipif(
    "reference" in (framing_engine, decode_engine), reason="compares the kernels with the reference"
)
@pytest.mark.parametrize("seed", SEEDS, ids=[f"{path.parent.name}-{path.name}" for path in SEEDS])
def test_seed(seed: Path) -> None:
    """The targets assert: they fail if a kernel and the reference give different results."""
    TARGETS[seed.parent.name](seed.read_bytes())


def test_every_target_has_seeds() -> None:
    assert {path.parent.name for path in SEEDS} == set(TARGETS)
