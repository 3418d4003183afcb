"""Every Python example of the README and of the guides runs, exactly as printed, in the order of the page."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> list[tuple[int, str]]:
    """(line of the first code line, code) of each Python block."""
    text = page.read_text()
    return [
        (text[: match.start()].count("\n") + 2, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = examples(page)
    if page.name == "README.md":
        assert len(blocks) > 10
    if importlib.util.find_spec("torch") is None:
        blocks = [(line, code) for line, code in blocks if "torch" not in code]
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks:
        # Padding puts the page's own line number into a traceback.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)
        assert namespace
