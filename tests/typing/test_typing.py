"""The typed face: strict mypy over files of assertions on the public API."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TORCH = importlib.util.find_spec("torch") is not None
FILES = sorted(path for path in HERE.glob("*_api.py") if TORCH or path.name != "torch_api.py")
# The packages themselves are checked on their own; here only what they show counts.
OPTIONS = ["--strict", "--follow-imports=silent", "--config-file", str(HERE.parent.parent / "pyproject.toml")]


def test_strict_mypy_agrees() -> None:
    api = pytest.importorskip("mypy.api")
    assert len(FILES) >= 2
    out, err, code = api.run([*OPTIONS, *map(str, FILES)])
    assert code == 0, out + err


def test_a_wrong_assertion_is_caught(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from typing_extensions import assert_type\n"
        "from tfrecord.columns import BytesColumn\n"
        "def check(column: BytesColumn) -> None:\n"
        "    assert_type(column[0], str)\n"
    )
    out, _, code = api.run([*OPTIONS, str(wrong)])
    assert code == 1 and "wrong.py:4" in out and "assert-type" in out
