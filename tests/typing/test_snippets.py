"""The examples of the README and of docs/ as type checkers see them, all pages in one run of each checker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from strict import ROOT, run_mypy

pytestmark = pytest.mark.xdist_group("mypy")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Examples do not annotate their own functions, and use one name for several things.
ALLOWED = "# mypy: allow-untyped-defs, allow-untyped-calls, allow-redefinition"
MISSPELT = """
import tfrecord
from tfrecord.torch import TFRecordDataset
tfrecord.TFRecordReader("a").batches(2, shuffel=True)
TFRecordDataset("a", shuffel=True)
TFRecordDataset("a", split="exat")
tfrecord.TFRecordWriter("a", mode="q")
tfrecord.TFRecordReader("a", record_type="exmple")
tfrecord.write("a", {}, compression_type="gizp")
"""


def pages(folder: Path) -> list[Path]:
    """The code of each page on its own lines."""
    made = []
    for page in PAGES:
        text = page.read_text()
        lines = [ALLOWED, *[""] * (text.count("\n") + 1)]
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M):
            first = text[: match.start()].count("\n") + 1
            for number, line in enumerate(match.group(1).splitlines(), first):
                lines[number] = line
        target = folder / f"{re.sub('[^a-zA-Z0-9]', '_', page.stem)}_page.py"
        target.write_text("\n".join(lines) + "\n")
        made.append(target)
    return made


def mypy_errors(paths: list[Path]) -> list[tuple[str, int, str]]:
    done = run_mypy(*paths)
    assert not done.stderr, done.stderr
    found = (re.match(r"(.*?):(\d+): error: (.*)", line) for line in done.stdout.splitlines())
    return [(Path(match[1]).name, int(match[2]), match[3]) for match in found if match]


def pyright_errors(paths: list[Path]) -> list[tuple[str, int, str]]:
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, *map(str, paths)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (Path(item["file"]).name, item["range"]["start"]["line"] + 1, item["message"])
        for item in found
        if item["severity"] == "error" and item.get("rule") not in IGNORED
    ]


# What an example may need beside this package, and names that only the examples before it bind.
IGNORED = ("reportMissingImports", "reportMissingModuleSource", "reportPossiblyUnboundVariable")


@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors])
def test_the_examples_are_accepted_and_misspelt_options_refused(
    tmp_path: Path, errors: Callable[[list[Path]], list[tuple[str, int, str]]]
) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MISSPELT)
    found = errors([*pages(tmp_path), wrong])
    assert [error for error in found if error[0] != wrong.name] == []
    assert {line for name, line, _ in found if name == wrong.name} == {4, 5, 6, 7, 8, 9}
