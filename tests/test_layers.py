"""Imports point one way: a room imports only rooms on the lines above its own, and no room has a cycle."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parent.parent

# One line per floor, lowest first; rooms of one floor do not import each other. A room is a folder or
# a module of the package. `indexer` is one floor of `tfrecord`'s house, so its own modules are its rooms.
FLOORS = {
    "indexer": """
        display options errors names progress sniffing _kernel atomic inflaters
        zstd
        compressors
        _engine commits stores
        framing datafile
        localfile points
        remotefile
        files
        compression outputs paths stored_columns textindex
        index inputstream
        shards streams
        fingerprint
        extendedindex
        formats
        scanning
        build
        build_many
        __init__ __main__
    """,
    "tfrecord": """
        _dtypes _startup _kernels errors _optional example_pb2 iterator_utils tools
        features
        _columns images process sampling tensor_proto
        schema
        _writing columns mixing parse
        _reading encode example_lists writer
        _repair loaders
        reader repair
        flight splits tfds
        _cli ray torch
        __init__ cli
        __main__
    """,
}
RANKS = {
    package: {room: rank for rank, line in enumerate(lines.strip().splitlines()) for room in line.split()}
    for package, lines in FLOORS.items()
}


# Imports that point up, made only when a user calls for them: `reader.view()` opens the page.
LATE = {"tfrecord._reading.page": {("tfrecord", "_cli.viewer.opened")}}


@functools.cache
def modules(package: str) -> dict[str, Path]:
    """Name within the package ("" is its face) -> file, kernels too."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py*")):
        if path.suffix in {".py", ".pyx"}:
            parts = list(path.relative_to(ROOT / package).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(name: str) -> str:
    return name.split(".")[0] or "__init__"


@functools.cache
def imported(package: str, name: str, path: Path) -> set[tuple[str, str]]:
    """(package, module) of ours that a file imports, inside functions too."""
    # Of a kernel only the import lines are Python.
    text = path.read_text()
    if path.suffix == ".pyx":
        text = "\n".join(
            line for line in text.splitlines() if re.match(r"(import|from) [\w.]+( import .*)?$", line)
        )
    inside = [package, *(name.split(".") if name else [])]
    folder = inside if path.stem == "__init__" else inside[:-1]
    targets: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            targets += [f"{stem}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "optional")):
            targets += [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    result = set()
    for target in targets:
        owner, _, rest = target.partition(".")
        if owner in FLOORS:
            known = modules(owner)
            while rest and rest not in known:
                rest = rest.rpartition(".")[0]
            result.add((owner, rest))
    return result - {(package, name), *LATE.get(f"{package}.{name}", ())}


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_has_its_floor(package: str) -> None:
    assert sorted({room(name) for name in modules(package)}) == sorted(RANKS[package])


@pytest.mark.parametrize("package", FLOORS)
def test_imports_point_down(package: str) -> None:
    ranks = RANKS[package]
    wrong = []
    for name, path in modules(package).items():
        for owner, other in sorted(imported(package, name, path)):
            lazy_face = name == "" and room(other) in ("flight", "ray", "tfds", "torch")  # loaded when used
            if owner != package:
                below = owner == "indexer"
            else:
                below = room(other) == room(name) or ranks[room(other)] < ranks[room(name)] or lazy_face
            if not below:
                wrong.append(f"{package}.{name} imports {owner}.{other}")
    assert not wrong


@pytest.mark.parametrize("package", FLOORS)
def test_no_cycle_anywhere(package: str) -> None:
    uses = {name: imported(package, name, path) for name, path in modules(package).items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"cycle: {' -> '.join((*trail, name))}"
        if name not in done:
            for owner, other in uses[name]:
                if owner == package:
                    visit(other, (*trail, name))
            done.add(name)

    for name in uses:
        visit(name, ())
    assert done == set(uses)


def test_only_the_torch_package_imports_torch() -> None:
    users = {
        name
        for name, path in modules("tfrecord").items()
        if path.suffix == ".py" and re.search(r"^\s*(import|from) torch\b", path.read_text(), re.M)
    }
    assert users and all(name.split(".")[0] == "torch" for name in users)


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("indexer", ["tfrecord", "torch", "google.protobuf"]),
        (
            "tfrecord",
            ["torch", "tensorflow", "pyarrow", "pandas", "polars", "click", "rich", "fsspec", "PIL"],
        ),
    ],
)
def test_what_an_import_does_not_load(module: str, absent: list[str]) -> None:
    code = f"import {module}, sys; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
