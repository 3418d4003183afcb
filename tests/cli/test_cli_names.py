"""What commands say about names of features: in terms of their own options, and once."""

from __future__ import annotations

from pathlib import Path

from messages import example, ints, sequence
from samples import MakeFile, Run

from indexer.formats import load_index


def test_an_index_column_that_cannot_be_kept(run: Run, make_file: MakeFile) -> None:
    path = make_file([example(label=ints(1), many=ints(1, 2))])
    lists = make_file([sequence({}, {"steps": [ints(1)]})], "lists.tfrecord")
    for file, name, reason in (
        (path, "lable", "did you mean 'label'"),
        (path, "many", "has 2 values"),
        (lists, "steps", "is a feature list, of which an index can keep the length: 'len(steps)'"),
    ):
        outcome = run("index", file, "--columns", name, "--force")
        assert outcome.code == 1 and reason in outcome.out and "--columns '' builds" in outcome.out
        assert "columns=[" not in outcome.out + outcome.err
    assert run("index", path, "--columns", "label").code == 0
    assert list(load_index(f"{path}.tfindex").columns) == ["label"]
    assert run("index", path, "--columns", "", "--force").code == 0
    assert not list(load_index(f"{path}.tfindex").columns)


def test_select_says_once_what_no_record_has(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    outcome = run("select", make_file([example(label=ints(1))]), tmp_path / "o", "--where", "lable=1")
    assert outcome.code == 2 and outcome.err.count("lable") == 1 and "allow_missing" not in outcome.err
