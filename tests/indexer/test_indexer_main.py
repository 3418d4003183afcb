from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import indexer
import tfrecord
from indexer.__main__ import main
from indexer.formats import load_index
from indexer.framing import frame_record
from tfrecord.encode import encode_example

pytestmark = pytest.mark.one_run

PAYLOADS = [b"alpha", b"", b"xyz"]


@pytest.mark.parametrize("index", [None, "other.idx"])
@pytest.mark.parametrize("format", [[], ["--format", "text"]])
def test_build_check_show(
    index: str | None, format: list[str], make_file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    data = make_file(PAYLOADS)
    given = [str(data)] + ([] if index is None else [str(data.parent / index)])
    place = given[1] if index else str(data) + ".tfindex"
    assert main(["build", *given, *format]) == 0
    assert capsys.readouterr().out == f"{data}: 3 records, index {place}\n"
    assert len(load_index(place, data)) == 3
    assert main(["check", *given, "--threads", "2"]) == 0
    assert "3 records, all good" in capsys.readouterr().out
    assert main(["show", *given, "--records", "2"]) == 0
    out = capsys.readouterr().out
    assert "records   3" in out and "1 at 21: 0 bytes" in out and "1 more" in out
    assert ("text" if format else "extended") in out


def test_damage_is_1(make_file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_file(PAYLOADS)
    assert main(["build", str(data)]) == 0
    data.write_bytes(data.read_bytes()[:-1])
    capsys.readouterr()
    for command, words in (
        ("build", "record 2 at offset 37"),
        ("check", "Rebuild it"),
        ("show", "Rebuild it"),
    ):
        assert main([command, str(data)]) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and words in captured.err and str(data) in captured.err


def test_missing_files_are_1(tmp_path: Path, make_file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("build", "check", "show"):
        assert main([command, str(tmp_path / "absent")]) == 1
    data = make_file(PAYLOADS)
    assert main(["check", str(data)]) == 1
    assert f"python -m indexer build {data}" in capsys.readouterr().err
    assert main(["build", str(tmp_path)]) == 1


def test_a_text_index_of_gzip_is_1(make_file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_file(PAYLOADS, "a.tfrecord.gz", "gzip")
    assert main(["build", str(data), "--format", "text"]) == 1
    assert "gzip" in capsys.readouterr().err
    assert main(["build", str(data)]) == 0
    assert main(["show", str(data)]) == 0
    assert "gzip" in capsys.readouterr().out


def test_wrong_usage_is_2(make_file: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_file(PAYLOADS)
    before = data.read_bytes()
    assert main(["build", str(data), str(data)]) == 2
    assert "overwrite" in capsys.readouterr().err
    assert data.read_bytes() == before
    for arguments in ([], ["build"], ["mend", str(data)], ["build", str(data), "--format", "xml"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    root = Path(indexer.__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "indexer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, **options)


def test_as_a_command(make_file: Any) -> None:
    data = make_file(PAYLOADS)
    assert run("build", str(data)).returncode == 0
    assert run("check", str(data)).returncode == 0
    data.write_bytes(b"no records here, only text")
    result = run("build", str(data))
    assert result.returncode == 1 and "looks like text" in result.stderr and "Traceback" not in result.stderr
    assert run("build").returncode == 2


def test_names_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    data = tmp_path / os.fsdecode(b"not\xfftext \xc3\xa9.tfrecord")
    try:
        data.write_bytes(frame_record(b"x"))
    except OSError:
        pytest.skip("this file system has no such names")
    for encoding in ("utf-8:strict", "ascii:strict"):
        for command in ("build", "check", "show"):
            environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONWARNINGS": "ignore"}
            result = subprocess.run(
                [sys.executable, "-m", "indexer", command, str(data)], capture_output=True, env=environment
            )
            assert (result.returncode, result.stderr) == (0, b"")
            assert b"not\\udcfftext" in result.stdout


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str], make_file: Any) -> None:
    for command in ("check", "show"):
        assert main([command, str(tmp_path / "no")]) == 1
        assert "No such file" in capsys.readouterr().err
        assert main([command, str(make_file(PAYLOADS))]) == 1
        assert "has no index; build it" in capsys.readouterr().err


@pytest.mark.parametrize("stale", [False, True])
def test_an_index_that_holds_more_is_not_replaced(stale: bool, make_file: Any, capsys: Any) -> None:
    path = make_file([encode_example({"x": (i, "int")}) for i in range(5)])
    tfrecord.build_index(path, columns=["x"])
    sidecar = Path(f"{path}.tfindex")
    before = sidecar.read_bytes()
    if stale:
        path.write_bytes(path.read_bytes() * 2)
    assert main(["build", str(path)]) == 2
    error = capsys.readouterr().err
    for word in ("column 'x'", "schema", "tfrecord.build_index", "tfrecord index", "--drop-columns"):
        assert word in error
    assert sidecar.read_bytes() == before
    assert main(["build", "--format", "text", str(path)]) == 2 and "column 'x'" in capsys.readouterr().err
    assert main(["build", "--drop-columns", str(path)]) == 0
    index = load_index(sidecar, path)
    assert not index.metadata and not index.columns
    assert main(["build", str(path)]) == 0
