"""`tfrecord convert` that fails: nothing is lost, and nothing half written stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import FORMATS, MakeFile, Run, examples

from indexer.framing import frame_record

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("form", FORMATS)
def test_damage_leaves_no_output(run: Run, make_file: MakeFile, tmp_path: Path, form: str) -> None:
    pytest.importorskip("pyarrow")
    source, output = make_file(examples(200)), tmp_path / f"o.{form}"
    data = bytearray(source.read_bytes())
    data[-9] ^= 1
    source.write_bytes(bytes(data))
    output.write_bytes(b"earlier")
    outcome = run("convert", source, output)
    assert outcome.code == 1 and "record 199" in outcome.err and "bad_payload_crc" in outcome.err
    assert output.read_bytes() == b"earlier"
    assert sorted(tmp_path.iterdir()) == sorted([source, output])


def test_failed_shards_bring_back_what_they_replaced(
    run: Run, make_file: MakeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_file(examples(9))
    names = [tmp_path / f"o-{i:05d}-of-00003" for i in range(3)]
    for name in names[:2]:
        name.write_bytes(b"earlier")
    replace = os.replace

    def fail(a: str, b: str) -> None:
        if b == str(names[2]):
            raise OSError(5, "Input/output error", b)
        replace(a, b)

    monkeypatch.setattr("os.replace", fail)
    assert run("split", "--shards", "3", source, tmp_path / "o").code == 2
    assert sorted(tmp_path.iterdir()) == sorted([source, *names[:2]])
    assert {name.read_bytes() for name in names[:2]} == {b"earlier"}


def test_inputs_are_never_written(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source = make_file(examples(3))
    before = source.read_bytes()
    (tmp_path / "link").symlink_to(source)
    for output in (source, tmp_path / "link", f"{tmp_path}/./a.tfrecord"):
        outcome = run("convert", source, output)
        assert outcome.code == 2 and "input" in outcome.err
    assert source.read_bytes() == before


def test_outputs_that_are_no_plain_files(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    source, real, link = make_file(examples(3)), tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"earlier")
    link.symlink_to(real)
    assert run("merge", source, link).code == 0
    assert link.is_symlink() and real.read_bytes() == source.read_bytes()
    assert run("merge", source, os.devnull).code == 0
    assert run("convert", source, tmp_path).code == 2
    assert run("convert", source, tmp_path / "no" / "out").code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tfrecord", "link", "real"]


def test_what_a_killed_run_left_goes_with_the_next(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    output = tmp_path / "out" / "o.tfrecord"
    output.parent.mkdir()
    output.write_bytes(b"earlier")
    source = make_file(examples(3))
    command = [sys.executable, "-W", "ignore", "-m", "tfrecord.cli", "convert", "-", str(output)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(map(frame_record, examples(50))) * 50)
        process.stdin.flush()
        for _ in range(600):
            if list(output.parent.glob(".*/*")):
                break
            time.sleep(0.05)
        (begun,) = output.parent.glob(".*/*")
        # Another output in the same folder does not disturb what is still being written.
        assert run("convert", source, output.parent / "other.tfrecord").code == 0
        assert begun.exists()
        process.kill()
    assert begun.exists() and output.read_bytes() == b"earlier"
    assert run("convert", source, output).code == 0
    assert sorted(path.name for path in output.parent.iterdir()) == ["o.tfrecord", "other.tfrecord"]
    assert output.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_leaves_nothing(make_file: MakeFile, tmp_path: Path, number: int) -> None:
    # A pipe that never ends keeps the command at work until the signal comes.
    output = tmp_path / "out" / "o.tfrecord"
    output.parent.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "tfrecord.cli", "merge", "-", str(output)]

    def interruptible() -> None:
        # What a shell starts in the background inherits SIGINT as ignored; the command must keep it so.
        signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interruptible
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"".join(map(frame_record, examples(50))) * 50)
        process.stdin.flush()
        for _ in range(600):
            if list(output.parent.iterdir()):
                break
            time.sleep(0.05)
        assert list(output.parent.iterdir()), "the command never began to write"
        process.send_signal(number)
        process.stdin.close()
        code = process.wait(60)
        assert b"Traceback" not in process.stderr.read()
    assert code == (130 if number == signal.SIGINT else 143)
    assert list(output.parent.iterdir()) == []


def test_given_up_parquet_says_one_line(make_file: MakeFile, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-m", "tfrecord.cli", "convert", str(make_file(examples(3)))]
    command += [str(tmp_path / "o.parquet"), "--text", "image/encoded"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "is not UTF-8 text" in done.stderr


@pytest.mark.parametrize("form", ["npz", "tar", "parquet", "arrow", "jsonl", "jsonl.gz"])
def test_files_that_are_cut_or_empty(run: Run, make_file: MakeFile, tmp_path: Path, form: str) -> None:
    if form in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{form}"
    assert run("convert", make_file(examples(30)), path).code == 0
    data = path.read_bytes()
    for size in (0, 1, 20, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        outcome = run("convert", path, tmp_path / "o.tfrecord")
        assert outcome.code in ((0, 1) if form.startswith("jsonl") or form == "tar" else (1,)), (
            size,
            outcome,
        )
        assert outcome.code == 0 or str(path) in outcome.err
