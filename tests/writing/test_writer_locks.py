"""One writer of a file at a time, whole records, and errors that name the file."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from written import Full, records

import tfrecord
from tfrecord.writer import ShardedTFRecordWriter, TFRecordWriter


@pytest.mark.parametrize("first", ["w", "a", "x"])
@pytest.mark.parametrize("second", ["w", "a"])
def test_a_second_writer_is_refused(first: str, second: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, mode=first) as writer:
        writer.write_bytes(b"one")
        with pytest.raises(BlockingIOError, match="another writer has this file open") as caught:
            TFRecordWriter(path, mode=second)
        assert caught.value.filename == str(path)
        writer.write_bytes(b"two")
    assert records(path) == [b"one", b"two"]
    with TFRecordWriter(path, mode="a") as writer:
        writer.write_bytes(b"three")
    assert records(path) == [b"one", b"two", b"three"]


def test_another_process_that_appends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    code = "import sys; from tfrecord.writer import TFRecordWriter; TFRecordWriter(sys.argv[1], mode='a')"
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"x" * (17 << 20))
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
        assert "BlockingIOError" in done.stderr and str(path) in done.stderr
        writer.write_bytes(b"y")
    assert [len(record) for record in records(path)] == [17 << 20, 1]


def test_a_child_that_lives_on_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ready, done = os.pipe(), os.pipe()
    writer = TFRecordWriter(path)
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    writer.close()
    with TFRecordWriter(path, mode="a") as again:
        again.write_bytes(b"x")
    os.write(done[1], b"1")
    os.waitpid(child, 0)
    for descriptor in (*ready, *done):
        os.close(descriptor)
    assert records(path) == [b"x"]


def test_a_large_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    payload = b"z" * (16 << 20)
    calls: list[int] = []
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: calls.append(len(parts)) or real(fd, parts))
    with TFRecordWriter(path) as writer:
        for _ in range(3):
            writer.write_bytes(payload)
    assert calls == [3, 3, 3]
    assert [len(record) for record in records(path)] == [len(payload)] * 3


@pytest.mark.parametrize("most", [1, 11, 12, 13, 500])
def test_a_short_vectored_write_is_completed(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrecord._writing.writer._COPY_BELOW", 10)
    real = os.write
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, b"".join(parts)[:most]))
    path = tmp_path / "a"
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"p" * 400)
        writer.write_bytes(b"q" * 30)
    assert records(path) == [b"p" * 400, b"q" * 30]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
from tfrecord.writer import TFRecordWriter
for compression in (None, "gzip"):
    try:
        with TFRecordWriter(sys.argv[1], compression_type=compression) as writer:
            for number in range(100):
                writer.write_bytes(bytes(__import__("os").urandom(100)))
    except OSError as error:
        print(error.filename)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path / "a")] * 2, done.stderr


def test_seekable_may_be_a_property() -> None:
    class Beam(io.BytesIO):
        seekable = False  # type: ignore[assignment]

    class Other(Full):
        seekable = property(lambda self: True)  # type: ignore[assignment]

    file = Beam()
    with TFRecordWriter(file) as writer:
        writer.write_bytes(b"x")
    assert records(file.getvalue()) == [b"x"]
    full = Other(50)
    with TFRecordWriter(full) as writer:
        writer.write_bytes(b"x")
        with pytest.raises(OSError):
            writer.write_bytes(b"y" * 100)
        writer.write_bytes(b"z")
    assert records(full.getvalue()) == [b"x", b"z"]


def test_many_shards_with_few_descriptors(tmp_path: Path) -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tfrecord.writer import ShardedTFRecordWriter
for compression in (None, "GZIP"):
    with ShardedTFRecordWriter(sys.argv[1], 150, compression_type=compression, index=True) as writer:
        for number in range(450):
            writer.write({"id": (number, "int")})
print("good")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], capture_output=True, text=True)
    assert done.stdout == "good\n", done.stderr
    assert len(tfrecord.TFRecordReader(tmp_path / "t@150")) == 450


@pytest.mark.parametrize("length", [241, 242, 247])
def test_long_names_get_an_index(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("n" * (length - 9) + ".tfrecord")
    with TFRecordWriter(path, index=True) as writer:
        writer.write({"id": (1, "int")})
    assert tfrecord.TFRecordReader(path).has_index
    assert len(tfrecord.build_index(path)) == 1
    assert sorted(os.listdir(tmp_path)) == [path.name, path.name + ".tfindex"]


@pytest.mark.parametrize("length", [248, 250, 255])
def test_names_too_long_for_an_index(length: int, tmp_path: Path) -> None:
    path = tmp_path / ("n" * (length - 9) + ".tfrecord")
    sidecar = f"{path}.tfindex"
    for make in (
        lambda: TFRecordWriter(path, index=True),
        lambda: tfrecord.write(path, {"id": [1]}, index=True),
        lambda: ShardedTFRecordWriter(str(path)[:-15], 2, index=True),
    ):
        with pytest.raises(OSError, match="too long for the index of .* index_path") as caught:
            make()
        assert caught.value.filename.endswith(".tfindex") and not os.listdir(tmp_path)
    tfrecord.write(path, {"id": [1]})
    for build in (lambda: tfrecord.build_index(path), lambda: TFRecordWriter(path, mode="a", index=True)):
        with pytest.raises(OSError, match="too long for the index of .* index_path") as caught:
            build()
        assert caught.value.filename == sidecar
    with pytest.warns(UserWarning, match="cannot be written .*too long.* kept in memory"):
        assert len(tfrecord.TFRecordReader(path, index="build")) == 1
    tfrecord.build_index(path, tmp_path / "i")
    assert tfrecord.TFRecordReader(path, index=tmp_path / "i").has_index
    assert sorted(os.listdir(tmp_path)) == ["i", path.name]


def test_an_index_of_no_records_is_kept_up(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for write in (tfrecord.write, lambda path, columns: TFRecordWriter(path).close()):
        TFRecordWriter(path, index=True).close()
        write(path, {"id": [1]})
        assert tfrecord.TFRecordReader(path).has_index


def test_shards_are_not_locked_against_themselves(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "t", 100) as writer:
        for number in range(300):
            writer.write({"id": (number, "int")})
    assert len(tfrecord.TFRecordReader(tmp_path / "t@100")) == 300
