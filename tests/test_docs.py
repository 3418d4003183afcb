"""Every Python example of the README and of docs/ runs as printed, page by page, in an empty folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# What torch and torchdata say of this machine and of each other.
QUIET = "This DataLoader will create|'set_vital' is deprecated"
# Packages that a page's examples need beside the ones that a page may import anyway.
NEEDED = {
    name: re.compile(rf"^\s*(import|from) {name}\b|\b{name}\.", re.M)
    for name in ("torch", "pandas", "polars", "ray", "dask", "pyspark")
}
# Pages that read folders which somebody else has made, and what makes them for the test.
FOLDERS = {"tfds": ROOT / "tests" / "tfds" / "documented.py"}
# Pages whose examples start processes, which cannot import functions of a test: each is run as a program.
PROGRAMS = ("ray", "splits")


def examples(page: Path) -> list[tuple[int, str]]:
    """(line of the first code line, code) of each Python block."""
    text = page.read_text()
    return [
        (text[: match.start()].count("\n") + 2, match.group(1))
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.S | re.M)
    ]


def is_installed(name: str) -> bool:
    """A folder without code, such as tests/ray, is not a package."""
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None


def run_program(page: Path, blocks: list[tuple[int, str]]) -> None:
    """Each block on the lines of the page, in a process of its own."""
    lines: list[str] = []
    for line, code in blocks:
        lines += [""] * (line - 1 - len(lines)) + code.splitlines()
    Path(f"{page.stem}_page.py").write_text("\n".join(lines))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, f"{page.stem}_page.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """A page that starts Ray runs after the other tests of Ray, and has time for its many processes."""
    starts_ray = any(NEEDED["ray"].search(code) for _, code in examples(page))
    return [pytest.mark.xdist_group("ray"), pytest.mark.timeout(1200)] if starts_ray else []


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=marks(page)) for page in PAGES if examples(page)],
)
def test_the_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails if an example raises, and most of them end with an assert."""
    blocks = examples(page)
    for name in ("pyarrow", "duckdb", "pandas", "polars") if page.stem == "columns" else ():
        pytest.importorskip(name)
    if page.stem == "service":
        pytest.importorskip("pyarrow.flight")
    for name, uses in NEEDED.items():
        if not is_installed(name):
            blocks = [(line, code) for line, code in blocks if not uses.search(code)]
    if page.stem == "README":  # it reads the folder first that it shows how to write later
        blocks.sort(key=lambda block: "ShardedTFRecordWriter" not in block[1])
    monkeypatch.chdir(tmp_path)
    if page.stem in FOLDERS:
        pytest.importorskip("PIL")
        monkeypatch.syspath_prepend(str(FOLDERS[page.stem].parent))
        importlib.import_module(FOLDERS[page.stem].stem).write_all(tmp_path)
    if page.stem in PROGRAMS:
        run_program(page, blocks)
        return
    namespace: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=QUIET)
        for line, code in blocks:
            # Padding puts the page's own line number into a traceback.
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_the_readme_is_short_and_has_examples() -> None:
    assert len(examples(ROOT / "README.md")) >= 8
    assert (ROOT / "README.md").read_text().count("\n") < 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
