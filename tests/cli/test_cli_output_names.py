"""What the name of an output says, and names that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfrecord._cli.formats import output_format

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
