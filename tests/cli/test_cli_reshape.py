"""Split, merge, shuffle, select: the same records, each once, in the order asked."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples

from indexer.framing import scan
from tfrecord._cli.choosing import parse_positions, positions_of
from tfrecord._cli.conversion.layout import exact_record
from tfrecord.encode import encode_example


def payloads_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found = scan(data)
    assert found.reason is None
    places = zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
    return [data[at + 12 : at + 12 + length] for at, length in places]


RECORDS = [b"record %d" % i + bytes(i % 7) for i in range(23)]


@pytest.mark.parametrize(
    ("option", "value", "sizes"),
    [
        ("--shards", 4, [6, 6, 6, 5]),
        ("--shards", 25, [1] * 23 + [0, 0]),
        ("--records", 10, [10, 10, 3]),
        ("--records", 100, [23]),
    ],
)
def test_split_and_merge(
    run: Run, make_file: MakeFile, tmp_path: Path, option: str, value: int, sizes: list[int]
) -> None:
    source = make_file(RECORDS)
    assert run("split", option, value, source, tmp_path / "o.tfrecord")[0] == 0
    shards = [tmp_path / f"o.tfrecord-{i:05d}-of-{len(sizes):05d}" for i in range(len(sizes))]
    assert [len(payloads_of(shard)) for shard in shards] == sizes
    assert run("merge", tmp_path / "o.tfrecord-*", tmp_path / "whole")[0] == 0
    assert (tmp_path / "whole").read_bytes() == source.read_bytes()


def test_split_needs_one_of_its_options(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source = make_file(RECORDS)
    assert run("split", source, tmp_path / "o").code == 2
    assert run("split", "--shards", 2, "--records", 2, source, tmp_path / "o").code == 2
    assert run("split", "--shards", 2, source).code == 2
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_shuffle_is_a_permutation(run: Run, make_file: MakeFile, tmp_path: Path, compression: str) -> None:
    one = make_file(RECORDS, "one.tfrecord", compression)
    two = make_file([b"x" * i for i in range(40)], "two.tfrecord", compression)
    everything = RECORDS + [b"x" * i for i in range(40)]
    for seed in (1, 2, 1):
        assert run("shuffle", "--seed", seed, one, two, tmp_path / f"o{seed}")[0] == 0
    found = payloads_of(tmp_path / "o1")
    assert Counter(found) == Counter(everything) and found != everything
    assert payloads_of(tmp_path / "o2") != found
    assert run("shuffle", "--seed", 1, "--shards", 3, one, two, tmp_path / "s")[0] == 0
    parts = [payloads_of(tmp_path / f"s-{i:05d}-of-00003") for i in range(3)]
    assert sum(parts, []) == found


def test_select_positions(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source, output = make_file(RECORDS), tmp_path / "o"
    assert run("select", "--positions", "5,-1,0:3,5", source, output)[0] == 0
    assert payloads_of(output) == [RECORDS[i] for i in (5, 22, 0, 1, 2, 5)]
    outcome = run("select", "--positions", "23", source, tmp_path / "p")
    assert outcome.code == 2 and "23" in outcome.err and not (tmp_path / "p").exists()
    assert run("select", "--positions", "x", source, output).code == 2
    assert run("select", source, output).code == 2


@pytest.mark.parametrize("indexed", [False, True])
def test_select_where(run: Run, make_file: MakeFile, tmp_path: Path, indexed: bool) -> None:
    source, output = make_file(examples(20)), tmp_path / "o"
    if indexed:
        pytest.importorskip("tfrecord.schema")
        assert run("index", "--columns", "label", source)[0] == 0
    for text, labels in [
        ("label=3", {3}),
        ("label=1,2", {1, 2}),
        ("label!=1", {0, 2, 3}),
        ("label>=2", {2, 3}),
        ("label<0", set()),
    ]:
        assert run("select", "--where", text, source, output)[0] == 0, text
        found = [exact_record(payload, "example")[0]["label"].item() for payload in payloads_of(output)]
        assert set(found) == labels and len(found) == 5 * len(labels), text
    assert (
        run(
            "select", "--where", "label=1", "--where", "caption=picture number 5, größer", source, output
        ).code
        == 0
    )
    assert run("select", "--where", "nothing=1", source, output).code == 2
    assert run("select", "--where", "label", source, output).code == 2
    assert run("select", "--where", "label=x", source, output).code == 2
    assert "repeat --where" in run("select", "--where", "label=1 and size>3", source, output).err


def test_select_matches_any_value_of_a_list(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    lists = [[1, 2], [], [3], [2, 2]]
    source = make_file([encode_example({"n": (values, "int")}) for values in lists])
    assert run("select", "--where", "n=2", source, tmp_path / "o")[0] == 0
    found = [exact_record(payload, "example")[0]["n"].tolist() for payload in payloads_of(tmp_path / "o")]
    assert found == [[1, 2], [2, 2]]


def test_positions() -> None:
    for text, expected in [
        ("0", [0]),
        ("-1", [9]),
        ("2:4", [2, 3]),
        ("::5", [0, 5]),
        ("9,0", [9, 0]),
        ("5:2", []),
    ]:
        assert positions_of(parse_positions(text), 10).tolist() == expected
    assert positions_of(parse_positions("-2:"), 10).tolist() == [8, 9]


@pytest.mark.parametrize("form", ["tfrecord", "tfrecord.gz", "jsonl", "jsonl.gz", "tar", "npz", "parquet"])
def test_more_shards_than_files_may_be_open(run: Run, make_file: MakeFile, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    resource = pytest.importorskip("resource")
    path = make_file(examples(150))
    assert run("convert", path, tmp_path / f"w.{form}").code == 0  # imports need files, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        outcome = run("convert", "-", tmp_path / f"o.{form}", "--shards", "120", stdin=path.read_bytes())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert outcome.code == 0, outcome
    assert len(list(tmp_path.glob("o*-of-00120*"))) == 120


def test_a_missing_value_never_fits(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    made = [encode_example({"n": (i, "int")} if i % 2 else {"x": (i, "int")}) for i in range(6)]
    source, output = make_file(made), tmp_path / "o"
    assert run("index", "--columns", "n", source).code == 0
    for text, count in (("n<9", 3), ("n!=1", 2), ("n=0", 0)):
        assert run("select", "--where", text, source, output).code == 0
        assert run("info", "--json", output).json()["records"] == count, text


COMMANDS = {
    "merge": [],
    "split": ["--shards", "2"],
    "shuffle": [],
    "select": ["--positions", "0"],
    "salvage": [],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["o.parquet", "o.jsonl.gz"])
def test_names_of_other_formats(
    run: Run, make_file: MakeFile, tmp_path: Path, command: str, name: str
) -> None:
    """These commands write TFRecord, whatever the name says."""
    source = make_file(examples(3))
    outcome = run(command, *COMMANDS[command], source, tmp_path / name)
    assert outcome.code == 2 and "tfrecord convert writes" in outcome.err
    assert list(tmp_path.iterdir()) == [source]


def test_conditions_on_records_of_bytes(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    outcome = run("select", "--where", "x=1", make_file([b"\xff" * 9] * 3), tmp_path / "o")
    assert outcome.code == 2 and "the records are not Examples" in outcome.err
