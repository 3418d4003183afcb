"""Inputs that fuzzing found worth keeping, through the same checks as in ``scripts/fuzz.py``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from indexer._engine import engine as framing_engine
from tfrecord._kernels.engine import engine as decode_engine

ROOT = Path(__file__).resolve().parents[2]
SEEDS = sorted((ROOT / "tests" / "corpus").glob("*/*"))


@pytest.fixture(scope="module")
def fuzz() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "scripts" / "fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    "reference" in (framing_engine, decode_engine), reason="compares the kernels with the reference"
)
@pytest.mark.parametrize("seed", SEEDS, ids=[f"{path.parent.name}-{path.name}" for path in SEEDS])
def test_seed(fuzz: Any, seed: Path) -> None:
    """The targets assert: they fail if a kernel and the reference give different results."""
    fuzz.TARGETS[seed.parent.name](seed.read_bytes())


def test_every_target_has_seeds(fuzz: Any) -> None:
    assert {path.parent.name for path in SEEDS} == set(fuzz.TARGETS)
