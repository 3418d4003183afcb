"""What commands do with messages of other types, and with one message that is not valid."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import example, ints, sequence
from samples import MakeFile, Run

import tfrecord
from tfrecord import TFRecordReader

BAD = bytes.fromhex("ffff67617262616765")
FOREIGN = [bytes.fromhex(text) for text in ("12020801", "12026869", "0a020801", "0a026869")]


def payloads_of(path: Path) -> list[bytes]:
    with TFRecordReader(path, record_type="bytes") as reader:
        return [bytes(payload) for payload in reader]


FORMATS = ["jsonl", "parquet", "arrow", "npz", "tar", "tfrecord.gz"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_other_messages_go_round_byte_for_byte(
    run: Run, make_file: MakeFile, tmp_path: Path, suffix: str
) -> None:
    payloads = [*FOREIGN, b"", b"\xff\0\n"]
    there, back = tmp_path / f"b.{suffix}", tmp_path / "c.tfrecord"
    assert run("convert", make_file(payloads), there).code == 0
    assert run("convert", there, back).code == 0
    assert payloads_of(back) == payloads


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
@pytest.mark.parametrize("name", ["min_elwc", "ranking_eval_elwc", "min_string_int_messages", "lingvo_en_fr"])
def test_files_of_other_software_go_round(
    run: Run, shared: Path, tmp_path: Path, name: str, suffix: str
) -> None:
    source = shared / "data2" / f"{name}.tfrecord"
    there, back = tmp_path / f"b.{suffix}", tmp_path / "c.tfrecord"
    assert run("convert", source, there).code == 0
    assert run("convert", there, back).code == 0
    assert payloads_of(back) == payloads_of(source)


def test_example_lists_are_named(run: Run, shared: Path) -> None:
    for command in ("info", "head", "stats"):
        done = run(command, shared / "data2" / "min_elwc.tfrecord")
        assert done.code == 0 and "parse_example_list" in done.err, command


@pytest.fixture
def damaged(make_file: MakeFile) -> Path:
    return make_file([BAD if i == 3 else example(x=ints(i)) for i in range(10_000)])


PLACE = "record 3 at offset 90"


@pytest.mark.parametrize("command", ["info", "stats", "verify", "head", "index"])
def test_one_bad_message_of_10000(run: Run, damaged: Path, command: str) -> None:
    done = run(command, damaged)
    assert done.code == 1
    assert ("record 3" if command == "index" else PLACE) in done.err + done.out


def test_stats_and_index_miss_one_record(run: Run, damaged: Path) -> None:
    (column,) = run("stats", "--json", damaged).json()["columns"]
    assert (column["present"], column["missing"]) == (9_999, 1)
    run("index", damaged)
    found = tfrecord.load_index(f"{damaged}.tfindex")
    assert len(found) == 10_000 and found.metadata["schema"]["num_invalid"] == 1
    (column,) = run("stats", "--json", damaged).json()["columns"]
    assert (column["present"], column["missing"]) == (9_999, 1)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow", "npz"])
def test_convert_writes_nothing_or_says_what_is_missing(run: Run, damaged: Path, suffix: str) -> None:
    target = damaged.parent / f"b.{suffix}"
    done = run("convert", damaged, target)
    assert done.code == 1 and PLACE in done.err and not target.exists()
    assert [path.name for path in damaged.parent.iterdir()] == [damaged.name]
    done = run("convert", "--on-error", "skip", damaged, target)
    assert done.code == 1 and PLACE in done.err and "1 record is not a valid message" in done.err
    assert "9,999 records" in done.out + done.err and target.exists()


def test_convert_to_bytes_keeps_all(run: Run, damaged: Path, tmp_path: Path) -> None:
    assert run("convert", "--record-type", "bytes", damaged, tmp_path / "b.jsonl").code == 0
    assert run("convert", tmp_path / "b.jsonl", tmp_path / "c.tfrecord").code == 0
    assert payloads_of(tmp_path / "c.tfrecord") == payloads_of(damaged)


def test_record_type_overrides(run: Run, make_file: MakeFile) -> None:
    path = make_file([sequence({"c": ints(1)}, {"s": [ints(2)]})] * 3)
    for said, found in (("auto", "SequenceExample"), ("example", "Example"), ("bytes", "bytes")):
        assert found in run("head", "--record-type", said, path).out
    done = run("head", "--record-type", "exampel", path)
    assert done.code == 2 and "example" in done.err
