"""The import direction: a module imports only modules that stand above it in these lists (lowest floor first)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# One line a layer; modules of one line do not import each other.
LAYERS: dict[str, list[str]] = {
    "indexer": [
        "errors",
        "_framing _crc",
        "_engine",
        "framing",
        "files streams paths",
        "index",
        "formats",
        "build",
        "__init__",
        "__main__",
    ],
    "tfrecord": [
        "example_pb2 features columns sampling iterator_utils",
    ],
}


def modules(package: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / package).rglob("*.py*")):
        if path.suffix in {".py", ".pyx"}:
            found[".".join(path.relative_to(ROOT / package).with_suffix("").parts)] = path
    assert found
    return found


def imports(package: str, name: str, path: Path) -> set[str]:
    """The modules of `package` that this file imports anywhere, inside functions too."""
    if path.suffix == ".pyx":
        lines = [line for line in path.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]
        return {line for line in lines if f"{package}." in line or "indexer" in line or "from ." in line}
    here = (package + "." + name).split(".")
    known = modules(package)
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            cut = node.level if path.name != "__init__.py" else node.level - 1
            base = here[: len(here) - cut] if path.name != "__init__.py" else here[: len(here) - 1 - cut]
            stem = ".".join([*(base if node.level else []), *([node.module] if node.module else [])])
            targets = [f"{stem}.{alias.name}" for alias in node.names] + [stem]
        for target in targets:
            if target.split(".")[0] == package:
                rest = target[len(package) + 1 :]
                for candidate in (rest, f"{rest}.__init__" if rest else "__init__"):
                    if candidate in known:
                        result.add(candidate)
    return result
