"""JSON lines of others: one kind per feature, told by the whole file."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from samples import Run

import tfrecord
from tfrecord import TFRecordReader

ROOT = Path(__file__).resolve().parents[2]


def convert(run: Run, tmp_path: Path, lines: list[Any], *options: str) -> list[dict[str, Any]]:
    source, target = tmp_path / "a.jsonl", tmp_path / "a.tfrecord"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = run("convert", source, target, *options)
    assert outcome.code == 0, outcome.err
    with TFRecordReader(target, record_type="example") as reader:
        return reader[:].to_list() if len(reader) else []


def refused(run: Run, tmp_path: Path, lines: list[Any], *options: str) -> str:
    source, target = tmp_path / "a.jsonl", tmp_path / "refused.tfrecord"
    source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    outcome = run("convert", source, target, *options)
    assert outcome.code == 1 and not target.exists(), outcome
    return str(outcome.err)


@pytest.mark.parametrize("values", [[1, 1.5], [1.5, 1], [[1], [2, 2.5]], [True, 0.5], [1, {"float": [0.5]}]])
def test_numbers_of_one_feature_are_of_one_kind(run: Run, tmp_path: Path, values: list[Any]) -> None:
    convert(run, tmp_path, [{"x": value} for value in values])
    with TFRecordReader(tmp_path / "a.tfrecord") as reader:
        assert reader.schema["x"].kind == "float"


def test_integers_alone_stay_integers(run: Run, tmp_path: Path) -> None:
    assert convert(run, tmp_path, [{"x": 1}, {"x": [2**63 - 1]}, {"x": []}]) == [
        {"x": [1]},
        {"x": [2**63 - 1]},
        {"x": []},
    ]


def test_integers_that_floats_do_not_hold(run: Run, tmp_path: Path) -> None:
    lines = [{"x": 16777217}, {"x": 0.5}]
    assert "line 1: feature 'x': 16777217 is not exact as float32" in refused(run, tmp_path, lines)
    assert convert(run, tmp_path, lines, "--round-floats") == [{"x": [16777216.0]}, {"x": [0.5]}]
    assert convert(run, tmp_path, [{"x": 16777216}, {"x": 0.1}])[0] == {"x": [16777216.0]}
    for huge in (10**400, 1e39, 10**39):
        assert "too large" in refused(run, tmp_path, [{"x": huge}, {"x": 0.5}], "--round-floats")
    assert convert(run, tmp_path, [{"x": float("inf")}]) == [{"x": [float("inf")]}]


@pytest.mark.parametrize("lines", [[{"x": "a"}, {"x": 1}], [{"x": 1.5}, {"x": ["a"]}], [{"x": [1, "a"]}]])
def test_text_and_numbers_are_not_one_kind(run: Run, tmp_path: Path, lines: list[Any]) -> None:
    assert "feature 'x'" in refused(run, tmp_path, lines)


def test_empty_lists_take_the_kind_of_the_other_lines(run: Run, tmp_path: Path) -> None:
    lines = [{"id": 1, "n": [], "t": [], "none": []}, {"id": 2, "n": [0.5], "t": "a", "none": None}]
    assert convert(run, tmp_path, lines) == [
        {"id": [1], "n": [], "t": []},
        {"id": [2], "n": [0.5], "t": [b"a"]},
    ]


def test_null_is_missing_and_an_empty_object_has_no_kind(run: Run, tmp_path: Path) -> None:
    convert(run, tmp_path, [{"a": None, "b": 1}, {"a": {}}])
    with TFRecordReader(tmp_path / "a.tfrecord") as reader:
        assert bytes(reader.raw(0)) == tfrecord.encode_example({"b": (1, "int")})
        assert bytes(reader.raw(1)).hex().endswith("0a070a050a01611200")
        payloads = [bytes(reader.raw(i)) for i in range(2)]
    assert run("convert", tmp_path / "a.tfrecord", tmp_path / "b.jsonl").code == 0
    assert run("convert", tmp_path / "b.jsonl", tmp_path / "c.tfrecord").code == 0
    with TFRecordReader(tmp_path / "c.tfrecord") as reader:
        assert [bytes(reader.raw(i)) for i in range(2)] == payloads


def test_feature_lists_too(run: Run, tmp_path: Path) -> None:
    lines = [{"context": {"n": []}, "feature_lists": {"x": [[1], [], 2]}}]
    lines += [{"context": {"n": 3}, "feature_lists": {"x": [0.5]}}]
    source, target = tmp_path / "a.jsonl", tmp_path / "a.tfrecord"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("convert", source, target).code == 0
    with TFRecordReader(target) as reader:
        assert reader[:].feature_lists["x"].to_list() == [[[1.0], [], [2.0]], [[0.5]]]
        assert reader[:].context["n"].to_list() == [[], [3]]


def test_lines_longer_than_what_is_decompressed_at_once(run: Run, tmp_path: Path) -> None:
    texts = ["a" * 3_000_000, "", "b" * 2_000_000, "c"]
    data = "\n".join(json.dumps({"x": text}) for text in texts)  # the last line has no line break
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data.encode(), 1))
    assert run("convert", tmp_path / "a.jsonl.gz", tmp_path / "a.tfrecord").code == 0
    with TFRecordReader(tmp_path / "a.tfrecord") as reader:
        assert [record["x"] for record in reader] == [text.encode() for text in texts]


def test_pipes_and_gzip_are_read_twice_too(run: Run, tmp_path: Path) -> None:
    data = b'{"x": 1}\n{"x": 0.5}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    assert run("convert", tmp_path / "a.jsonl.gz", tmp_path / "a.tfrecord").code == 0
    command = [
        sys.executable,
        "-m",
        "tfrecord",
        "convert",
        "--from",
        "jsonl",
        "-",
        str(tmp_path / "b.tfrecord"),
    ]
    subprocess.run(command, input=data, check=True, cwd=ROOT, timeout=60)
    assert (tmp_path / "a.tfrecord").read_bytes() == (tmp_path / "b.tfrecord").read_bytes()
    with TFRecordReader(tmp_path / "b.tfrecord") as reader:
        assert reader[:]["x"].to_list() == [[1.0], [0.5]]
    assert "line 2" in refused(run, tmp_path, [{"x": 1}, '{"x":'])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"x": 1, "y": 2, "x": 3}', "an object has 'x' twice"),
        ('{"x": {"float": [1], "float": [2]}}', "an object has 'float' twice"),
        ('{"x": 1e400}', "the number 1e400 is too large"),
        ('{"x": [0.5, -1E+999]}', "the number -1E+999 is too large"),
        (f'{{"x": {"9" * 310}.5}}', "is too large"),
    ],
)
def test_values_that_json_would_lose(run: Run, tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": Infinity}\n' + line + "\n")
    outcome = run("convert", tmp_path / "a.jsonl", tmp_path / "o.tfrecord")
    assert outcome.code == 1 and "a.jsonl: line 2: " in outcome.err and reason in outcome.err
    assert not (tmp_path / "o.tfrecord").exists()
