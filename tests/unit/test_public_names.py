"""Public names: what they say of themselves, in help, in pickles and in repr."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexer
import tfrecord
from tfrecord import BytesColumn, ColumnBatch, FixedLenFeature, Ragged, SequenceBatch, TFRecordReader

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["tfrecord", "tfrecord.columns", "tfrecord.encode", "tfrecord.example_lists", "tfrecord.features"]
MODULES += ["tfrecord.loaders", "tfrecord.mixing", "tfrecord.parse", "tfrecord.process", "tfrecord.reader"]
MODULES += ["tfrecord.repair", "tfrecord.sampling", "tfrecord.schema", "tfrecord.splits", "tfrecord.writer"]
MODULES += ["indexer"]


def public_classes() -> list[type]:
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", ()):
            value = getattr(module, public)
            if inspect.isclass(value) and value.__module__.partition(".")[0] in ("tfrecord", "indexer"):
                found[value] = None
    return list(found)


@pytest.mark.parametrize("cls", public_classes(), ids=lambda cls: cls.__qualname__)
def test_public_classes_name_their_public_module(cls: type) -> None:
    parts = cls.__module__.split(".")
    assert not any(part.startswith("_") for part in parts), cls.__module__
    assert getattr(importlib.import_module(cls.__module__), cls.__qualname__) is cls
    assert len(public_classes()) > 20


def objects(path: Path) -> list[Any]:
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        writer.write({"x": ([1, 2], "int")})
    reader = TFRecordReader(path, features={"x": FixedLenFeature((2,), "int")})
    assert reader.schema
    batch = ColumnBatch(
        {"x": np.arange(2), "r": Ragged([1], [0, 1, 1]), "b": BytesColumn.from_list([b"", b""])}
    )
    views = [reader, reader.select([0]), reader.schema, tfrecord.load_index(f"{path}.tfindex")]
    return [
        *views,
        batch,
        SequenceBatch(batch, batch),
        tfrecord.make_splits(path, 1)[0],
        indexer.DecodeError("x"),
    ]


def test_pickles_name_no_private_module(tmp_path: Path) -> None:
    """Of what people keep in files; a reader and its parts travel between processes only."""
    for value in objects(tmp_path / "a.tfrecord"):
        data = pickle.dumps(value)
        assert type(pickle.loads(data)) is type(value)
        if isinstance(value, (ColumnBatch, SequenceBatch)):
            names = [arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)]
            assert "tfrecord.columns" in names and not any("tfrecord._" in name for name in names)


@pytest.mark.parametrize("missing", ["torch", "ray"])
def test_help_works_without_the_optional_packages(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import pydoc, tfrecord; "
    code += f"print(len(pydoc.render_doc(tfrecord)), dir(tfrecord).count({missing!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    size, named = map(int, done.stdout.split())
    assert size > 10_000 and named == 0


def test_the_hint_knows_a_source_folder_that_hides_an_installed_package(tmp_path: Path) -> None:
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    for folder in (checkout, site):
        (folder / "indexer").mkdir(parents=True)
        for source in (ROOT / "indexer").rglob("*.py"):
            target = folder / "indexer" / source.relative_to(ROOT / "indexer")
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(source.read_bytes())
    (checkout / "pyproject.toml").touch()
    code = "import warnings; warnings.simplefilter('always'); import indexer"

    def warned() -> str:
        command = [sys.executable, "-c", code]
        environment = {"PYTHONPATH": f"{checkout}:{site}", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=checkout, check=True
        )
        return done.stderr

    assert f"{checkout} is a source folder" in warned() and "pip install -e ." in warned()
    (site / "tfrecord-1.0.dist-info").mkdir()
    (site / "tfrecord-1.0.dist-info" / "METADATA").write_text("Name: tfrecord\nVersion: 1.0\n")
    (site / "indexer" / "_kernel" / "_framing.abi3.so").touch()
    assert f"installed in {site}, but the source folder {checkout} hides it" in warned()
    (site / "indexer" / "_kernel" / "_framing.abi3.so").unlink()
    (checkout / "pyproject.toml").unlink()
    assert "Install a C compiler and reinstall" in warned()


def test_type_checkers_know_every_option_of_a_reader() -> None:
    from tfrecord.reader import ReaderArguments

    options = set(inspect.signature(TFRecordReader.__init__).parameters)
    said = {"self", "paths", "features", "sequence_features", "record_type"}
    assert options - said == set(ReaderArguments.__annotations__)
