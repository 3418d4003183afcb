"""The `tfrecord2idx` command and its two functions."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indexer.errors import ChecksumError, CompressionError, TruncatedRecordError
from indexer.framing import frame_record
from tfrecord.tools.tfrecord2idx import create_index, create_indices, main

RECORDS = [b"alpha", b"", b"xyz"]
DATA = b"".join(map(frame_record, RECORDS))
INDEX = "0 21\n21 16\n37 19\n"


def write(path: Path, data: bytes = DATA) -> Path:
    path.write_bytes(data)
    return path


def test_one_file(tmp_path: Path, capsys: Any) -> None:
    data, index = write(tmp_path / "a.tfrecord"), tmp_path / "somewhere.idx"
    assert main([str(data), str(index)]) == 0
    assert index.read_text() == INDEX
    out, err = capsys.readouterr()
    assert out == f"{index}: 3 records\n" and err == ""
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "somewhere.idx"]
    index.unlink()
    create_index(data, index)
    assert index.read_text() == INDEX


@pytest.mark.parametrize(("data", "text"), [(b"", ""), (frame_record(b"one"), "0 19\n")], ids=["none", "one"])
def test_no_record_and_one(tmp_path: Path, data: bytes, text: str) -> None:
    assert main([str(write(tmp_path / "a.tfrecord", data)), str(tmp_path / "i")]) == 0
    assert (tmp_path / "i").read_text() == text


NAMES = {
    "a.tfrecord": "a.tfindex",
    "b.tfrec": "b.tfrec.tfindex",
    "c.tfrecords": "c.tfrecords.tfindex",
    "d.tfrecord-00000-of-00002": "d.tfrecord-00000-of-00002.tfindex",
    "a.b.tfrecord": "a.b.tfindex",
}


def test_a_folder(tmp_path: Path, capsys: Any) -> None:
    others = ["_SUCCESS", "notes.txt", "old.tfindex", ".hidden.tfrecord"]
    for name in [*NAMES, *others]:
        write(tmp_path / name)
    (tmp_path / "sub.tfrecord").mkdir()
    assert main([str(tmp_path)]) == 0
    made = set(os.listdir(tmp_path)) - {*NAMES, *others, "sub.tfrecord"}
    assert made == set(NAMES.values())
    assert all((tmp_path / name).read_text() == INDEX for name in made)
    assert capsys.readouterr().out.count(": 3 records\n") == len(NAMES)


def test_a_folder_into_another(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in NAMES:
        write(tmp_path / "data" / name)
    out = tmp_path / "new" / "indexes"
    assert main([str(tmp_path / "data"), str(out)]) == 0
    assert sorted(os.listdir(out)) == sorted(NAMES.values())
    assert sorted(os.listdir(tmp_path / "data")) == sorted(NAMES)
    create_indices(tmp_path / "data", out)
    create_indices(tmp_path / "data")
    assert len(os.listdir(tmp_path / "data")) == 2 * len(NAMES)


DAMAGE = [
    ("bad payload", DATA[:-5] + b"!" + DATA[-4:], ChecksumError, 2, 37),
    ("cut header", DATA + b"\n", TruncatedRecordError, 3, 56),
    ("cut record", DATA[:-1], TruncatedRecordError, 2, 37),
    ("text", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ChecksumError, 0, 0),
]


@pytest.mark.parametrize(("data", "kind", "record", "offset"), [case[1:] for case in DAMAGE], ids=range(4))
def test_damage_leaves_the_old_index(
    tmp_path: Path, capsys: Any, data: bytes, kind: type[Exception], record: int, offset: int
) -> None:
    path, index = write(tmp_path / "a.tfrecord", data), tmp_path / "a.tfindex"
    for before in (None, "0 1\n"):
        if before is not None:
            index.write_text(before)
        assert main([str(path), str(index)]) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"tfrecord2idx: {path}: record {record} at offset {offset}: ")
        with pytest.raises(kind) as caught:
            create_index(path, index)
        error: Any = caught.value
        assert (error.path, error.record, error.offset) == (str(path), record, offset)
        assert (index.read_text() if index.exists() else None) == before
    assert sorted(os.listdir(tmp_path)) == ["a.tfindex", "a.tfrecord"]


def test_a_folder_with_one_bad_file(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "a.tfrecord")
    write(tmp_path / "b.tfrecord", DATA[:-1])
    write(tmp_path / "c.tfrecord")
    assert main([str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "b.tfrecord: record 2 at offset 37" in err and "1 of 3 files failed" in err
    assert sorted(path.name for path in tmp_path.glob("*.tfindex")) == ["a.tfindex", "c.tfindex"]
    (tmp_path / "c.tfindex").unlink()
    with pytest.raises(TruncatedRecordError) as caught:
        create_indices(tmp_path)
    assert (caught.value.path, caught.value.record) == (str(tmp_path / "b.tfrecord"), 2)
    assert (tmp_path / "c.tfindex").exists()


def test_gzip_is_named_and_gets_no_index(tmp_path: Path, capsys: Any) -> None:
    data, index = write(tmp_path / "a.tfrecord", gzip.compress(DATA)), tmp_path / "a.tfindex"
    assert main([str(data), str(index)]) == 1
    assert "it is gzip" in capsys.readouterr().err
    with pytest.raises(CompressionError, match="gzip") as caught:
        create_index(data, index)
    assert caught.value.path == str(data) and not index.exists()


def test_files_that_are_not_there(tmp_path: Path, capsys: Any) -> None:
    assert main([str(tmp_path / "none.tfrecord"), str(tmp_path / "i")]) == 1
    assert "none.tfrecord" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 1
    assert f"no TFRecord files in folder {tmp_path}" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
    assert main([str(write(tmp_path / "a.tfrecord")), str(tmp_path / "no" / "folder")]) == 1
    assert "no/folder" in capsys.readouterr().err


def test_wrong_use(tmp_path: Path, capsys: Any) -> None:
    data = write(tmp_path / "a.tfrecord")
    other = write(tmp_path / "b.tfrecord")
    for arguments, message in [
        ([], "required: DATA"),
        (["--nope"], "unrecognized arguments: --nope\n"),
        ([data, "--nope", tmp_path / "i"], "unrecognized arguments: --nope\n"),
        ([data], "is not a folder; to index one file, give the path of the index too"),
        ([tmp_path / "none"], "does not exist"),
        ([data, tmp_path / "i", "more"], "unrecognized arguments: more"),
        ([data, tmp_path], "is a folder: give the path of the index file"),
        ([tmp_path, data], "is a folder, but"),
        ([data, data], "overwrite"),
        ([data, other], "overwrite"),
        (["--what", data], "--what"),
    ]:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert caught.value.code == 2 and message in err and "usage: tfrecord2idx" in err and not out
    assert data.read_bytes() == other.read_bytes() == DATA
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "b.tfrecord"]


def test_the_module_is_a_command(tmp_path: Path) -> None:
    data, index = write(tmp_path / "a.tfrecord"), tmp_path / "a.tfindex"
    command = [sys.executable, "-m", "tfrecord.tools.tfrecord2idx"]
    done = subprocess.run([*command, data, index], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and index.read_text() == INDEX
    done = subprocess.run([*command], capture_output=True, text=True)
    assert done.returncode == 2
    done = subprocess.run([*command, write(data, DATA[:-1]), index], capture_output=True, text=True)
    assert done.returncode == 1 and "record 2 at offset 37" in done.stderr
    done = subprocess.run([*command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "FOLDER [OUT_FOLDER]" in done.stdout


def test_names_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    try:
        write(tmp_path / os.fsdecode(b"not\xfftext.tfrecord"))
    except OSError:
        pytest.skip("this file system has no such names")
    command = [sys.executable, "-m", "tfrecord.tools.tfrecord2idx", tmp_path]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"not\\udcfftext.tfindex: 3 records\n")


def test_names_of_the_1_x_package(tmp_path: Path) -> None:
    code = (
        "import tfrecord\n"
        "assert callable(tfrecord.tools.tfrecord2idx.create_index)\n"
        "from tfrecord.tools import create_index\n"
        "assert create_index is tfrecord.tools.tfrecord2idx.create_index\n"
    )
    for words in (["-c", code], ["-m", "tfrecord.tools.tfrecord2idx", "--help"]):
        subprocess.run([sys.executable, "-W", "error", *words], check=True, capture_output=True)
