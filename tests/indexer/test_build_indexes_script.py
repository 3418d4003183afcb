from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from indexer.formats import load_index
from indexer.framing import frame_record

pytestmark = pytest.mark.one_run

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_indexes.py"
PAYLOADS = [b"alpha", b"", b"xyz"]
NAMES = ["a.tfrecord", "x/b.tfrecords", "x/y/c.tfrec", "d.tfrecord-00000-of-00010", "z/e.tfrecord.gz"]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_indexes_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(make_file: Any, tmp_path: Path) -> Path:
    for name in NAMES:
        make_file(PAYLOADS, f"tree/{name}", "gzip" if name.endswith(".gz") else "")
    (tmp_path / "tree" / "notes.txt").write_text("not data")
    return tmp_path / "tree"


def test_a_tree(script: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tree.parent / "log"
    assert script.main([str(tree), "--jobs", "3", "--places-only", "--log", str(log)]) == 0
    out = capsys.readouterr().out
    assert "5 built, 0 fresh, 0 failed" in out
    for name in NAMES:
        assert len(load_index(f"{tree / name}.tfindex", tree / name)) == 3
        assert f"built  {tree / name}: 3 records" in out
    assert len(log.read_text().splitlines()) == 5
    assert script.main([str(tree), "--places-only", "--log", str(log)]) == 0
    assert "0 built, 5 fresh, 0 failed" in capsys.readouterr().out
    assert len(log.read_text().splitlines()) == 10
    assert script.main([str(tree), "--places-only", "--force", "--no-recursive"]) == 0
    assert "2 built, 0 fresh, 0 failed" in capsys.readouterr().out


def test_failures_are_listed_while_others_are_built(
    script: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tree / "x" / "bad.tfrecord"
    bad.write_bytes(b"\x05\0\0\0\0")
    assert script.main([str(tree), "--places-only"]) == 1
    captured = capsys.readouterr()
    assert "5 built, 0 fresh, 1 failed" in captured.out
    assert captured.err.startswith(f"failed: {bad}: ") and "truncated_header" in captured.err
    assert not os.path.exists(f"{bad}.tfindex")


def test_text(script: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([str(tree / "a.tfrecord"), str(tree / "x" / "*.tfrecords"), "--format", "text"]) == 0
    assert (tree / "a.tfrecord.tfindex").read_text() == "0 21\n21 16\n37 19\n"
    assert "2 built" in capsys.readouterr().out


def test_wrong_usage(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["x", "--jobs", "0"], ["x", "--format", "xml"]):
        with pytest.raises(SystemExit) as caught:
            script.main(arguments)
        assert caught.value.code == 2
    assert script.main([str(tmp_path / "absent"), "--places-only"]) == 1
    assert "absent" in capsys.readouterr().err


@pytest.mark.parametrize("tqdm", [True, False])
def test_on_a_terminal(
    tqdm: bool,
    script: ModuleType,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    if tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert script.main([str(tree), "--places-only", "--jobs", "1"]) == 0
    assert ("file/s" if tqdm else "5 files done") in terminal.getvalue()
    assert capsys.readouterr().out.count("built  ") == 5


def test_as_a_command(tree: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tree), "--places-only"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tree)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "5 built" in result.stdout


def awkward(folder: Path) -> list[Path]:
    """A name with a line feed, and one that is no text."""
    names = [b"line\nfeed.tfrecord", b"not\xfftext.tfrecord"]
    paths = [folder / os.fsdecode(name) for name in names]
    try:
        for path in paths:
            path.write_bytes(frame_record(b"x"))
    except OSError:
        pytest.skip("this file system has no such names")
    return paths


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict"])
def test_any_name_is_one_line(encoding: str, tmp_path: Path) -> None:
    paths = awkward(tmp_path)
    paths[0].with_name("é.tfrecord").write_bytes(b"damaged")
    log = tmp_path / "log"
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--log", str(log)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONIOENCODING": encoding}
    result = subprocess.run(command, capture_output=True, env=environment)
    assert result.returncode == 1
    for text in (result.stdout.decode(), log.read_text(encoding="utf-8")):
        assert "line\\nfeed.tfrecord: 1 records\n" in text and "not\\udcfftext.tfrecord: 1 records\n" in text
    assert len(log.read_text(encoding="utf-8").splitlines()) == 3
    assert result.stderr.count(b"\n") == 1 and b"truncated_header" in result.stderr
    assert all(len(load_index(f"{path}.tfindex", path)) == 1 for path in paths)


def test_a_log_that_cannot_be_written(
    script: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        script.main([str(tree), "--log", str(tree / "no" / "log")])
    assert caught.value.code == 2 and "log cannot be written" in capsys.readouterr().err
