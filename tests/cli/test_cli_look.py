"""info, head, show, stats, index, bench: what they say of what is there."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples, odd_examples, odd_sequences

from indexer.shards import shard_sets
from tfrecord.encode import encode_example

# Of each real file: records, type, and a feature with its kind.
REAL = {
    "mnist.tfrecord": (1000, "example", ("image_floats", "float")),
    "taxi-00001-of-00002.tfrecord.gz": (5012, "example", ("company", "bytes")),
    "penguin_train-00000-of-00001.gz": (234, "example", ("species", "int64")),
    "ranking_sequence_eval.gz": (4500, "sequence_example", ("s", "bytes")),
    "adult_test.recordio.gz": (9769, "example", ("age", "int64")),
}


@pytest.mark.parametrize("name", REAL)
def test_info_of_real_files(run: Run, shared: Path, name: str) -> None:
    records, kind, (feature, feature_kind) = REAL[name]
    outcome = run("info", "--json", shared / "data" / name)
    (file,) = outcome.json()["files"]
    assert outcome.code == 0
    assert (file["records"], file["record_type"]) == (records, kind)
    assert file["compression"] == ("gzip" if name.endswith(".gz") else "")
    found = {item["name"]: item["kind"] for item in outcome.json()["features"]}
    assert found.get(feature) == feature_kind, found
    words = run("info", shared / "data" / name)
    assert words.code == 0 and f"{records:,}" in words.out and feature in words.out


@pytest.mark.parametrize("name", REAL)
def test_head_and_stats_of_real_files(run: Run, shared: Path, name: str) -> None:
    records, _, (feature, _) = REAL[name]
    path = shared / "data" / name
    words = run("head", "-n", 2, path)
    assert words.code == 0 and words.out.count("record ") >= 2
    document = run("stats", "--json", path).json()
    assert document["records"] == records
    assert feature in {column["name"] for column in document["columns"]}


def test_info_with_an_index(run: Run, make_file: MakeFile) -> None:
    path = make_file(examples(40))
    assert run("index", "--columns", "label", path).code == 0
    document = run("info", "--json", path).json()
    assert document["files"][0]["index"] == "extended" and document["files"][0]["index_columns"] == ["label"]
    features = {item["name"]: item for item in document["features"]}
    assert (features["tags"]["present"], features["tags"]["of"]) == (8, 40)
    assert (features["tags"]["min_values"], features["tags"]["max_values"]) == (0, 2)
    assert features["image/encoded"]["example"].startswith("PNG 3x2")
    assert run("index", "--format", "text", "--force", path).code == 0
    assert run("info", "--json", path).json()["files"][0]["index"] == "text"


def test_info_says_what_is_wrong(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    path = make_file(examples(10))
    assert run("index", path).code == 0
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    outcome = run("info", path)
    assert outcome.code == 1 and "stale" in outcome.out and str(path) in outcome.out
    (tmp_path / "a.tfrecord.tfindex").unlink()
    outcome = run("info", "--json", path)
    (file,) = outcome.json()["files"]
    assert outcome.code == 1 and file["records"] == 9 and "truncated_record" in file["problem"]
    other = make_file([], "text.tfrecord")
    other.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    outcome = run("info", other)
    assert outcome.code == 1 and "Git-LFS" in outcome.out


def test_incomplete_shards_are_said(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    for i in (0, 1, 2, 4):
        make_file(examples(2), f"d.tfrecord-{i:05d}-of-00005")
    outcome = run("info", tmp_path)
    assert outcome.code == 1 and "4 of 5 shards; missing: 00003" in outcome.out
    make_file(examples(2), "d.tfrecord-00003-of-00005")
    outcome = run("info", "--json", tmp_path)
    assert outcome.code == 0 and outcome.json()["shard_sets"][0]["complete"] is True
    assert outcome.json()["records"] == 10


def test_shard_sets_by_name(tmp_path: Path) -> None:
    names = [f"x/a-{i:05d}-of-00030.gz" for i in range(0, 30, 2)] + ["b-7-of-3", "plain"]
    first, second = shard_sets([str(tmp_path / name) for name in names])
    assert (first.present, first.num_missing, first.missing[:3]) == (15, 15, [1, 3, 5])
    assert second.odd == [7] and not second.complete
    huge = shard_sets([str(tmp_path / "a-00000-of-99999999999")])[0]
    assert huge.num_missing == 99999999998 and len(huge.missing) == 20


def test_show_positions(run: Run, make_file: MakeFile) -> None:
    one, two = make_file(examples(5), "one"), make_file(examples(3), "two", "gzip")

    def numbers(*arguments: object) -> list[tuple[str, int]]:
        outcome = run("show", "--json", one, two, *arguments)
        assert outcome.code == 0, outcome
        lines = [json.loads(line) for line in outcome.out.splitlines()]
        return [(Path(line["path"]).name, line["record"]) for line in lines]

    assert numbers("0") == [("one", 0)]
    assert numbers("-1") == [("two", 2)]
    assert numbers("4:6") == [("one", 4), ("two", 0)]
    assert numbers("7,0") == [("two", 2), ("one", 0)]
    for wrong in ("8", "-9"):
        outcome = run("show", one, two, wrong)
        assert outcome.code == 2 and wrong in outcome.err and outcome.out == ""
    assert run("show", one).code == 2
    assert run("show", "3").code == 2
    assert run("show", one, "0", "--nonsense").code == 2


def test_head_shows_what_people_read(run: Run, make_file: MakeFile) -> None:
    out = run("head", "-n", 1, make_file(examples(3))).out
    for text in ("PNG 3x2", '"picture number 0, größer"', "[0, 1.5]", "label", "int64"):
        assert text in out
    out = run("head", make_file(odd_examples(), "odd")).out
    assert "(no kind)" in out and "(no features)" in out and "[]" in out
    out = run("head", make_file(odd_sequences(), "sequences")).out
    assert "SequenceExample" in out and "3 steps" in out
    out = run("head", make_file([b"plain text", b"\xff\x00"], "raw")).out
    assert '"plain text"' in out and "raw bytes" in out
    out = run("head", "--columns", "label", make_file(examples(1))).out
    assert "label" in out and "caption" not in out
    assert "nothing" in run("head", "--columns", "nothing", make_file(examples(1))).err


def test_hostile_contents_do_not_reach_the_terminal(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    nasty = "\x1b]0;owned\x07\x1b[31m[bold]x[/bold]\u202e\x9b2J"
    path = make_file([encode_example({nasty: (nasty, "bytes")}), nasty.encode()], "bad\x1b[2J.tfrecord")
    for command in (["head"], ["info"], ["stats"], ["show", "0"], ["verify"], ["head", "--json"]):
        outcome = run(command[0], path, *command[1:])
        assert not set("\x1b\x07\x9b\u202e") & set(outcome.out + outcome.err), command
    assert "[bold]" in run("head", "--record-type", "example", path).out


def test_standard_input(run: Run, make_file: MakeFile) -> None:
    data = make_file(examples(6)).read_bytes()
    for stdin in (data, gzip.compress(data)):
        assert run("info", "--json", "-", stdin=stdin).json()["files"][0]["records"] == 6
        assert run("stats", "--json", "-", stdin=stdin).json()["records"] == 6
        assert len(run("head", "--json", "-", stdin=stdin).out.splitlines()) == 5
    for command in ("index", "bench", "view"):
        assert run(command, "-").code == 2
    assert run("show", "-", "0").code == 2


def test_index_command(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    for i in range(3):
        make_file(examples(4), f"sub/f{i}.tfrecord")
    bad = make_file(examples(4), "sub/bad.tfrecord")
    bad.write_bytes(bad.read_bytes()[:-1])
    outcome = run("index", "--json", "--jobs", 2, tmp_path)
    status = {Path(file["path"]).name: file["status"] for file in outcome.json()["files"]}
    assert outcome.code == 1
    assert status == {
        "bad.tfrecord": "failed",
        "f0.tfrecord": "built",
        "f1.tfrecord": "built",
        "f2.tfrecord": "built",
    }
    bad.unlink()
    outcome = run("index", "--json", tmp_path)
    assert outcome.code == 0 and {file["status"] for file in outcome.json()["files"]} == {"fresh"}
    assert run("index", "--check", tmp_path / "sub").code == 0
    # What is fresh but lacks a column is built again.
    for status in ("built", "fresh"):
        outcome = run("index", "--json", "--columns", "label", tmp_path)
        assert {file["status"] for file in outcome.json()["files"]} == {status}
    data = bytearray((tmp_path / "sub" / "f1.tfrecord").read_bytes())
    data[40] ^= 1
    (tmp_path / "sub" / "f1.tfrecord").write_bytes(bytes(data))
    outcome = run("index", "--check", tmp_path / "sub")
    assert outcome.code == 1 and "f1.tfrecord" in outcome.out
    (tmp_path / "sub" / "f2.tfrecord.tfindex").unlink()
    assert "no index" in run("index", "--check", tmp_path / "sub" / "f2.tfrecord").out
    assert run("index", tmp_path / "absent").code == 2
    assert run("index", "--format", "text", "--columns", "a", tmp_path).code == 2


def test_bench(run: Run, make_file: MakeFile) -> None:
    path = make_file(examples(50))
    document = run("bench", "--json", "--seconds", "0.01", path).json()
    assert len(document["measures"]) == 6 and all(
        item["records_per_second"] > 0 for item in document["measures"]
    )
    assert "random" in run("bench", "--seconds", "0.01", path).out
    assert run("bench", make_file([], "empty")).code == 2


def test_very_wide_records_are_shown_in_part(run: Run, make_file: MakeFile) -> None:
    path = make_file([encode_example({f"k{i:03d}": (i, "int") for i in range(503)})])
    for command in (["info"], ["head"], ["show", "0"], ["stats"]):
        outcome = run(command[0], path, *command[1:])
        assert outcome.code == 0 and "k499" in outcome.out and "k500" not in outcome.out
        assert "and 3 more features" in outcome.out
    assert "k502" in run("head", path, "--columns", "k502").out


def test_position_in_an_empty_file(run: Run, make_file: MakeFile) -> None:
    outcome = run("show", make_file([]), "0")
    assert outcome.code == 2 and "there are none" in outcome.err


def test_info_says_which_files_of_a_folder_it_left_out(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    make_file(examples(2), "a.tfrecord")
    make_file(examples(2), "b.odd.gz", "gzip")
    (tmp_path / "_SUCCESS").touch()
    outcome = run("info", tmp_path)
    assert outcome.code == 0 and "b.odd" not in outcome.out
    assert "1 other file in" in outcome.err and "b.odd.gz" in outcome.err
    assert "_SUCCESS" not in outcome.err
    (tmp_path / "a.tfrecord").unlink()
    outcome = run("info", tmp_path)
    assert outcome.code == 2 and "no data files in folder" in outcome.err


def test_info_of_lists_without_steps(run: Run, make_file: MakeFile, shared: Path) -> None:
    path = make_file([(shared / "data2" / "min_sequence_no_steps.tfrecord").read_bytes()[12:-4]])
    for _ in range(2):
        features = {item["name"]: item for item in run("info", "--json", path).json()["features"]}
        assert (features["boxes"]["min_values"], features["boxes"]["max_values"]) == (0, 0)
        assert "4611" not in run("info", path).out
        assert run("index", path).code == 0


def test_head_json_of_raw_records_has_number_and_payload(run: Run, make_file: MakeFile) -> None:
    path = make_file([b"one", b"\xff"])
    lines = [json.loads(line) for line in run("head", "--json", path).out.splitlines()]
    assert [(line["record"], line["type"]) for line in lines] == [(0, "bytes"), (1, "bytes")]
    assert lines[0]["payload"] == {"base64": "b25l"}


def test_wrong_names_come_with_the_near_ones(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    path, out = make_file(examples(5)), tmp_path / "out.tfrecord"
    for words in (
        ["stats", path, "--columns", "lable"],
        ["select", path, out, "--where", "lable=3"],
        ["convert", path, out, "--columns", "lable"],
        ["head", path, "--columns", "lable"],
    ):
        outcome = run(*words)
        assert "'lable'; did you mean 'label'?" in outcome.err, words
        assert outcome.code == (0 if words[0] == "head" else 2) and not out.exists()
    for words, near in (
        (["verfy", path], "'verify'"),
        (["head", path, "--colums", "x"], "--columns"),
        (["verify", path, "--type", "exmple"], "'example'"),
        (["convert", path, tmp_path / "o.parqet"], "'.parquet'"),
        (["convert", path, "--to", "prquet", tmp_path / "o"], "'parquet'"),
        (["verify", path, "--compression", "gzipp"], "'gzip'"),
    ):
        outcome = run(*words)
        assert outcome.code == 2 and "id you mean" in outcome.err and near in outcome.err, words


def test_warnings_are_lines_of_the_command(make_file: MakeFile) -> None:
    code = (
        "import sys, warnings, tfrecord.cli, tfrecord._cli.head as head\n"
        "head.batches = lambda *given, **options: warnings.warn('odd\\x1b records') or iter(())\n"
        "sys.exit(tfrecord.cli.main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "head", str(make_file([b"x"]))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "tfrecord: odd\\x1b records\n"
