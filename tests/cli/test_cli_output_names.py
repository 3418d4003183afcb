"""What the name of an output says, and names that are no text."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples

from tfrecord._cli import app
from tfrecord._cli.conversion.formats import output_format

TFRECORD = [
    "a.tfrecord",
    "a.tfrecords",
    "a.TFRec",
    "a.tfrecord-00000-of-00010",
    "a.tfrecord-00000-of-00010.gz",
    "a.tfrecord.gz",
    "train-00000-of-00010",
    "train-00000-of-00010.gz",
    "toy.nocompress-tfe-tfrecord-00000-of-00002",
    "data",
    "data.gz",
    "some.folder/data",
    ".hidden",
    "-",
    "/dev/null",
]


@pytest.mark.parametrize("name", TFRECORD)
def test_names_of_tfrecord(name: str) -> None:
    assert output_format(name) == "tfrecord"


@pytest.mark.parametrize("name", ["o.csv", "o.json", "o.txt.gz", "o.tfrecord.bak", "o.parquets"])
def test_an_unknown_suffix_is_asked_about(name: str, run, make_file, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path, output = make_file([b"x"]), tmp_path / name
    for more in ([], ["--shards", "2"]):
        outcome = run("convert", path, output, *more)
        assert outcome.code == 2 and ".parquet" in outcome.err and "--to" in outcome.err
        assert list(tmp_path.iterdir()) == [path]
    assert run("convert", path, output, "--to", "tfrecord").code == 0
    assert output.exists()


def test_output_whose_name_is_no_text(make_file, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Printing it on a strict stream is no failure."""
    path = make_file([b"x"])
    output = os.fsencode(tmp_path) + b"/n\xff.tfrecord"
    try:
        open(output, "wb").close()
    except OSError:
        pytest.skip("a file system whose names are UTF-8")
    done = subprocess.run(
        [sys.executable, "-m", "tfrecord", "convert", os.fsencode(path), output],
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr
    assert b"n\\udcff.tfrecord" in done.stdout
    assert os.path.getsize(output) == 17


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("o.tfrecord.gz", b"\x1f\x8b"),
        ("O.TFRECORD.GZ", b"\x1f\x8b"),
        ("o.tfrecord.gzip", b"\x1f\x8b"),
        ("o.jsonl.GZ", b"\x1f\x8b"),
        ("o.tfrecord.zz", b"\x78\x9c"),
        ("o.tfrecord.zlib", b"\x78\x9c"),
    ],
)
def test_a_name_of_a_compressed_file_is_kept(
    name: str, head: bytes, run: Run, make_file: MakeFile, tmp_path: Path
) -> None:
    source = make_file(examples(20))
    assert run("convert", source, tmp_path / name).code == 0
    assert (tmp_path / name).read_bytes()[:2] == head
    assert run("convert", tmp_path / name, tmp_path / "back.tfrecord").code == 0
    assert (tmp_path / "back.tfrecord").read_bytes() == source.read_bytes()


def test_the_command_gives_the_streams_back(
    run: Run, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    assert app.run(["verify", str(make_file(examples(3)))]) == 0
    assert stream.errors == "strict"
