"""Imports point one way: a module imports only modules of the lines above its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# One line a layer, lowest first; modules of one line do not import each other. The packages `tfrecord.torch`
# and `tfrecord._cli` stand on the core; their own modules only have to be free of cycles.
LAYERS = {
    "indexer": """
        checks errors _framing atomic
        _engine
        framing files
        compression index paths textindex
        binding
        formats shards streams
        scanning
        build
        __init__ __main__
    """,
    "tfrecord": """
        _arrays _display _locks _optional _permutation _values example_pb2 features iterator_utils
        _damage _decode _encode encode_reference _reference_wire
        _output _atomic _inflate _resync tensor_proto
        _arrow _files _reference _spool _streaming _tensors mixing process salvage sampling
        _engine _bytes_column
        _ragged schema
        _from_arrow _indexes _show _written_index
        columns
        _finishing _flatten _located _records
        encode parse
        _decoding _writer
        _merged _parts _sharded_writer loaders
        reader writer
    """,
}
RANKS = {
    package: {
        "" if name == "__init__" else name: rank
        for rank, line in enumerate(lines.strip().splitlines())
        for name in line.split()
    }
    for package, lines in LAYERS.items()
}
# What stands above the core: the datasets, the command and its tools, and the face of the package.
ABOVE = ("torch", "_cli", "cli", "tools", "__main__", "")


def modules(package: str) -> dict[str, Path]:
    """Name within the package ("" is its face) -> file, kernels too."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py*")):
        if path.suffix in {".py", ".pyx"}:
            parts = list(path.relative_to(ROOT / package).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            targets += [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    result = set()
    for target in targets:
        owner, _, rest = target.partition(".")
        if owner in LAYERS:
            known = modules(owner)
            while rest and rest not in known:
                rest = rest.rpartition(".")[0]
            result.add((owner, rest))
    return result - {(package, name)}


def core(package: str) -> dict[str, Path]:
    found = modules(package)
    return found if package == "indexer" else {n: p for n, p in found.items() if n.split(".")[0] not in ABOVE}


@pytest.mark.parametrize("package", LAYERS)
def test_every_module_has_its_layer(package: str) -> None:
    assert sorted(core(package)) == sorted(RANKS[package])


@pytest.mark.parametrize("package", LAYERS)
def test_imports_point_down(package: str) -> None:
    wrong = []
    for name, path in core(package).items():
        for owner, other in sorted(imported(package, name, path)):
            below = (
                owner == "indexer"
                if owner != package
                else RANKS[package].get(other, 99) < RANKS[package][name]
            )
            if not below:
                wrong.append(f"{package}.{name} imports {owner}.{other}")
    assert not wrong


def test_no_cycle_anywhere() -> None:
    uses = {name: imported("tfrecord", name, path) for name, path in modules("tfrecord").items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"cycle: {' -> '.join((*trail, name))}"
        if name not in done:
            for owner, other in uses[name]:
                if owner == "tfrecord":
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
        ("tfrecord", ["torch", "tensorflow", "pyarrow", "pandas", "polars", "click", "rich", "fsspec"]),
    ],
)
def test_what_an_import_does_not_load(module: str, absent: list[str]) -> None:
    code = f"import {module}, sys; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
