"""Every Python example of the README runs, exactly as printed, in the order of the page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "README.md"


def examples(page: Path) -> list[tuple[int, str]]:
    """(line of the first code line, code) of each Python block."""
    text = page.read_text()
    return [
        (text[: match.start()].count("\n") + 2, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M)
    ]


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = examples(PAGE)
    assert len(blocks) > 10
    if importlib.util.find_spec("torch") is None:
        blocks = [(line, code) for line, code in blocks if "torch" not in code]
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks:
        # Padding puts the page's own line number into a traceback.
        exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), namespace)
