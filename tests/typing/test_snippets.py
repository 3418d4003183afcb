"""The examples of the README and of docs/ as type checkers see them, page by page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Examples do not annotate their own functions, and use one name for several things.
MYPY = ["--strict", "--follow-imports=silent", "--config-file", str(ROOT / "pyproject.toml")]
MYPY += ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-redefinition", "--ignore-missing-imports"]
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
        lines = [""] * (text.count("\n") + 2)
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M):
            first = text[: match.start()].count("\n") + 1
            for number, line in enumerate(match.group(1).splitlines(), first):
                lines[number] = line
        target = folder / f"{re.sub('[^a-zA-Z0-9]', '_', page.stem)}_page.py"
        target.write_text("\n".join(lines) + "\n")
        made.append(target)
    return made


def mypy_errors(paths: list[Path]) -> list[str]:
    api = pytest.importorskip("mypy.api")
    out, err, _ = api.run([*MYPY, *map(str, paths)])
    assert not err, err
    return [line for line in out.splitlines() if ": error:" in line]


def pyright_errors(paths: list[Path]) -> list[str]:
    pytest.importorskip("pyright")
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        *map(str, paths),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    found = json.loads(done.stdout)["generalDiagnostics"]
    wrong = [item for item in found if item["severity"] == "error" and item.get("rule") not in IGNORED]
    return [f"{item['file']}:{item['range']['start']['line'] + 1}: {item['message']}" for item in wrong]


# What an example may need beside this package, and names that only the examples before it bind.
IGNORED = ("reportMissingImports", "reportMissingModuleSource", "reportPossiblyUnboundVariable")


def test_mypy_accepts_the_examples(tmp_path: Path) -> None:
    assert mypy_errors(pages(tmp_path)) == []


def test_pyright_accepts_the_examples(tmp_path: Path) -> None:
    assert pyright_errors(pages(tmp_path)) == []


@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors])
def test_misspelt_options_are_refused(tmp_path: Path, errors: object) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MISSPELT)
    assert callable(errors)
    lines = {int(re.search(r"wrong\.py:(\d+)", text)[1]) for text in errors([wrong])}  # type: ignore[index]
    assert lines == {4, 5, 6, 7, 8, 9}
