"""The typed face: strict mypy over files of assertions on the public API."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from strict import run_mypy

pytestmark = pytest.mark.xdist_group("mypy")

HERE = Path(__file__).parent
TORCH = importlib.util.find_spec("torch") is not None
FILES = sorted(path for path in HERE.glob("*_api.py") if TORCH or path.name != "torch_api.py")


def test_strict_mypy_agrees() -> None:
    assert len(FILES) >= 2
    done = run_mypy(*FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_assertion_is_caught(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing_extensions import assert_type\n"
        "from tfrecord.columns import BytesColumn\n"
        "def check(column: BytesColumn) -> None:\n"
        "    assert_type(column[0], str)\n"
    )
    done = run_mypy(wrong)
    assert done.returncode == 1 and "wrong.py:4" in done.stdout and "assert-type" in done.stdout
