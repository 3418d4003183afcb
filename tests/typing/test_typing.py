"""The typed face: strict mypy over files of assertions on the public API."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TORCH = importlib.util.find_spec("torch") is not None
FILES = sorted(path for path in HERE.glob("*_api.py") if TORCH or path.name != "torch_api.py")
# The packages themselves are checked on their own; here only what they show counts.
OPTIONS = ["--strict", "--follow-imports=silent", "--config-file", str(HERE.parent.parent / "pyproject.toml")]


def mypy(*paths: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what mypy leaves behind makes every later garbage collection take seconds."""
    pytest.importorskip("mypy")
    return subprocess.run([sys.executable, "-m", "mypy", *OPTIONS, *paths], capture_output=True, text=True)


def test_strict_mypy_agrees() -> None:
    assert len(FILES) >= 2
    done = mypy(*FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_assertion_is_caught(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing_extensions import assert_type\n"
        "from tfrecord.columns import BytesColumn\n"
        "def check(column: BytesColumn) -> None:\n"
        "    assert_type(column[0], str)\n"
    )
    done = mypy(wrong)
    assert done.returncode == 1 and "wrong.py:4" in done.stdout and "assert-type" in done.stdout
