"""Every Python example of the README and of the guides runs, exactly as printed, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if path.exists()]


def examples(page: Path) -> list[tuple[int, str]]:
    """(line, code) of each ```python block."""
    text = page.read_text()
    return [
        (text[: match.start()].count("\n") + 2, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M)
    ]
