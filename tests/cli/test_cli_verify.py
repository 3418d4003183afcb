"""Verify: the right word for every damage, going on after it."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples, odd_examples, odd_sequences

from indexer.errors import DecodeError, FeatureKindError
from indexer.framing import frame_record
from tfrecord._columns.decoding import decode_record
from tfrecord._repair.turns import Stopped, Turns
from tfrecord.features import compile_features

# Read as what they are, these files of the cases are good.
_GOOD_BY_CONTENT = {"plain_read_as_gzip", "zlib_read_as_gzip"}


def test_every_framing_case(run: Run, shared: Path, tmp_path: Path) -> None:
    cases = json.loads((shared / "cases" / "framing-cases.json").read_text())["cases"]
    assert len(cases) > 30
    for case in cases:
        path = tmp_path / case["name"]
        path.write_bytes(bytes.fromhex(case["hex"]))
        error = case["expected"]["error"]
        options = ["--compression", case["compression"] or "none"]
        outcome = run("verify", "--json", *options, path)
        if error == "unsupported_compression":
            assert outcome.code == 2 and error in outcome.err
            continue
        found = outcome.json()["files"][0]
        if error is None:
            assert outcome.code == 0 and found["records"] == case["expected"]["records"], case["name"]
            continue
        assert outcome.code == 1, case["name"]
        assert error in {damage["reason"] for damage in found["damages"]}, (case["name"], found)
        if "record_offset" in case["expected"]:
            first = found["damages"][0]
            assert (first["offset"], first["record"]) == (
                case["expected"]["record_offset"],
                case["expected"]["records"],
            ), case["name"]
        if case["name"] not in _GOOD_BY_CONTENT:
            words = run("verify", path)
            assert words.code == 1 and (error in words.out or case["compression"]), case["name"]


def test_real_files(run: Run, shared: Path) -> None:
    paths = [path for path in (shared / "data").iterdir() if path.suffix != ".md"]
    outcome = run("verify", "--json", *paths)
    document = outcome.json()
    assert outcome.code == 0 and document["ok"] and document["records"] == 25610
    assert {file["record_type"] for file in document["files"]} == {"example", "sequence_example"}


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_goes_on_after_damage(run: Run, tmp_path: Path, compression: str) -> None:
    frames = [bytearray(frame_record(payload)) for payload in examples(60)]
    frames[3][-1] ^= 1  # a payload
    frames[10][1] ^= 1  # a length
    frames[20] += b"inserted"
    frames[40][15] ^= 1
    starts = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    data = b"".join(map(bytes, frames))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(data, mtime=0) if compression else data)
    outcome = run("verify", "--json", path)
    found = outcome.json()["files"][0]
    assert outcome.code == 1
    places = [(damage["offset"], damage["reason"]) for damage in found["damages"]]
    assert places == [
        (starts[3], "bad_payload_crc"),
        (starts[10], "bad_length_crc"),
        (starts[21] - 8, "bad_length_crc"),
        (starts[40], "bad_payload_crc"),
    ]
    assert found["records"] == 57
    lines = run("verify", path).out.splitlines()
    assert len(lines) == 5 and all(str(path) in line for line in lines[:4])
    assert "4 damages in 1 of 1 file" in lines[4]


@pytest.mark.parametrize("threads", [1, 3])
def test_many_files_and_threads(run: Run, make_file: MakeFile, tmp_path: Path, threads: int) -> None:
    for i in range(5):
        make_file(examples(300), f"f{i}.tfrecord", "gzip" if i % 2 else "")
    outcome = run("verify", "--threads", threads, "--json", tmp_path)
    assert outcome.code == 0 and outcome.json()["records"] == 1500


@pytest.mark.parametrize("threads", [1, 4])
def test_damages_of_several_files_come_in_order(
    run: Run, make_file: MakeFile, tmp_path: Path, threads: int
) -> None:
    good = examples(50)
    for i in range(6):
        payloads = [*good[: 10 * i], b"\x0a\xff", *good, b"\xff"]
        make_file(payloads, f"f{i}.tfrecord", "gzip" if i % 3 else "")
    outcome = run("verify", "--threads", threads, tmp_path)
    lines = outcome.out.splitlines()
    assert outcome.code == 1 and "12 damages in 6 of 6 files; 450 good records" in lines.pop()
    places = [(i, record) for i in range(6) for record in (10 * i, 10 * i + 51)]
    for line, (i, record) in zip(lines, places, strict=True):
        assert f"f{i}.tfrecord" in line and f"record {record}" in line, line
    files = run("verify", "--threads", threads, "--json", tmp_path).json()["files"]
    assert [(f["num_damages"], f["records"]) for f in files] == [(2, 50 + 10 * i) for i in range(6)]


def test_turns() -> None:
    given: list[tuple[int, int]] = []
    turns = Turns(given.append)
    with ThreadPoolExecutor(3) as pool:

        def work(job: int) -> None:
            for i in range(20_000 if job == 1 else 5):
                assert sum(map(len, turns._held.values())) <= 10_000
                turns.put(job, (job, i))
            turns.done(job)

        later = [pool.submit(work, job) for job in (2, 1)]
        later[0].result()
        assert not given
        work(0)
        later[1].result()
    assert given == sorted(given) and len(given) == 20_010


def test_turns_end_where_one_fails() -> None:
    def broken(item: int) -> None:
        raise BrokenPipeError

    turns = Turns(broken)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: [turns.put(1, i) for i in range(20_000)])
        with pytest.raises(BrokenPipeError):
            turns.put(0, 0)
        turns.stop()
        with pytest.raises(Stopped):
            waiting.result()
    for call in (turns.check, lambda: turns.put(0, 0), lambda: turns.done(0)):
        with pytest.raises(Stopped):
            call()


def test_messages_are_parsed_completely(run: Run, make_file: MakeFile) -> None:
    good = examples(30)
    bad = bytearray(good[7])
    bad[1] ^= 0x55  # a length inside the message, under good checksums
    path = make_file([*good[:7], bytes(bad), *good[8:]])
    outcome = run("verify", "--json", path)
    found = outcome.json()["files"][0]["damages"]
    assert outcome.code == 1 and [(item["record"], item["reason"]) for item in found] == [(7, "bad_message")]
    assert "'tfrecord convert --on-error skip' writes the good records" in run("verify", path).out
    assert run("verify", "--checksums-only", path).code == 0
    assert run("verify", "--type", "bytes", path).code == 0


def test_every_message_of_the_cases(run: Run, make_file: MakeFile, shared: Path) -> None:
    cases = json.loads((shared / "cases" / "wire-cases.json").read_text())["cases"]
    payloads, bad = examples(12), set()
    every = compile_features(None)
    for case in cases:
        payload = bytes.fromhex(case["hex"])
        payloads += [payload, *examples(2)]
        try:
            decode_record(payload, every, every)
        except FeatureKindError:  # steps of several kinds: no reader takes them, but the message is valid
            pass
        except DecodeError:
            bad.add(len(payloads) - 3)
    assert len(bad) > 20
    outcome = run("verify", "--type", "example", "--json", make_file(payloads))
    found = outcome.json()["files"][0]
    assert {damage["record"] for damage in found["damages"]} == bad
    assert found["records"] == len(payloads) - len(bad)


def test_what_is_odd_but_valid(run: Run, make_file: MakeFile) -> None:
    assert run("verify", make_file(odd_examples(), "examples")).code == 0
    assert run("verify", make_file(odd_sequences(), "sequences")).code == 0
    raw = run("verify", make_file([b"\xff", b"no message"], "raw"))
    assert raw.code == 0 and "only checksums" in raw.out


def test_standard_input_and_missing_files(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    data = make_file(examples(5)).read_bytes()
    assert run("verify", "-", stdin=data).code == 0
    assert run("verify", "-", stdin=gzip.compress(data)).code == 0
    assert run("verify", "-", stdin=data[:-1]).code == 1
    assert run("verify", tmp_path / "absent").code == 2
    assert run("verify").code == 2


def test_empty_payloads_do_not_tell_what_records_are(run: Run, tmp_path: Path) -> None:
    frames = [bytearray(frame_record(payload)) for payload in (b"\xffraw", b"", b"\xfe bytes")]
    frames[0][-1] ^= 1
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"".join(map(bytes, frames)), mtime=0))
    found = run("verify", "--json", path).json()["files"][0]
    assert [(item["record"], item["reason"]) for item in found["damages"]] == [(0, "bad_payload_crc")]
    assert found["records"] == 2 and found["record_type"] == "bytes"
