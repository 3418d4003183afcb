"""What a shell's glob takes along, and indexes that lack the schema."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples

import indexer
import tfrecord


def test_indexes_beside_the_data_are_no_data(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        tfrecord.build_index(make_file(examples(5), name))
    everything = sorted(os.fspath(path) for path in tmp_path.iterdir())
    assert len(everything) == 4
    assert run("verify", *everything).out.startswith("2 files, 10 records")
    assert run("index", *everything).code == 0
    assert run("merge", *everything, tmp_path / "all.tfrecord").code == 0
    assert len(tfrecord.TFRecordReader(tmp_path / "all.tfrecord")) == 10
    # One that is named alone is what the user means.
    assert run("verify", tmp_path / "a.tfrecord.tfindex").code == 1


def test_an_index_without_a_schema_is_made_anew(run: Run, make_file: MakeFile) -> None:
    path = make_file(examples(5))
    indexer.build_index(path)
    assert "record_type" not in indexer.load_index(f"{path}.tfindex", path).metadata
    assert run("index", path).code == 0
    assert indexer.load_index(f"{path}.tfindex", path).metadata["record_type"] == "example"


@pytest.mark.parametrize("width", ["80", "160"])
def test_no_name_and_no_number_is_cut(
    width: str, run: Run, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    name = "dropoff_census_tract_of_the_trip"
    records = [tfrecord.encode_example({name: (value, "float")}) for value in (17031081000.0, 17031082000.0)]
    out = run("stats", make_file(records)).out
    assert name in out
    assert "1.7031081e+10" in out and "1.7031082e+10" in out
