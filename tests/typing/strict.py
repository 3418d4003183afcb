"""mypy as a strict user runs it. Runs with the same options share a cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The packages themselves are checked on their own; here only what they show counts.
OPTIONS = ["--strict", "--follow-imports=silent", "--ignore-missing-imports"]
OPTIONS += [
    "--config-file",
    str(ROOT / "pyproject.toml"),
    "--cache-dir",
    str(ROOT / ".mypy_cache" / "strict"),
]


def run_mypy(*paths: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what mypy leaves behind makes every later garbage collection take seconds."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", *OPTIONS, *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
