"""Writes that fail leave whole records, and say so where they cannot."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import POSIX, Full, examples, records

from indexer.errors import TFRecordError
from tfrecord.writer import TFRecordWriter


@pytest.mark.parametrize("room", range(1, 80, 7))
def test_a_full_file_is_cut_back_to_whole_records(room: int) -> None:
    file = Full(room)
    writer = TFRecordWriter(file)
    written = []
    for i in range(10):
        try:
            writer.write_bytes(bytes(i))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
        written.append(bytes(i))
    assert records(file.getvalue()) == written
    assert (writer.num_records, writer.tell()) == (len(written), len(file.getvalue()))
    file.room = 1000
    writer.write_bytes(b"more")
    writer.close()
    assert records(file.getvalue()) == [*written, b"more"]


def test_an_interrupt_in_the_middle_is_undone() -> None:
    class Interrupted(io.BytesIO):
        left = 3

        def write(self, data: Any) -> int:
            done = super().write(data)
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return done

    file = Interrupted()
    with TFRecordWriter(file) as writer:
        writer.write_bytes(b"a")
        writer.write_bytes(b"b")
        with pytest.raises(KeyboardInterrupt):
            writer.write_bytes(b"c")
        writer.write_bytes(b"d")
        assert (writer.num_records, writer.tell()) == (3, 51)
    assert records(file.getvalue()) == [b"a", b"b", b"d"]


def test_a_batch_is_written_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecord._writing.writer._BATCH_BYTES", 100)
    file = Full(1000)
    with TFRecordWriter(file) as writer:
        writer.write_batch({"x": np.arange(10)})
        size = writer.tell()
        with pytest.raises(OSError, match="space"):
            writer.write_batch({"x": np.arange(1000)})
        assert (writer.num_records, writer.tell(), len(file.getvalue())) == (10, size, size)
        writer.write_batch({"x": np.arange(10, 12)})
    assert examples(file.getvalue()) == [{"x": [i]} for i in range(12)]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_what_cannot_be_cut_back_takes_no_more(compression: str | None) -> None:
    file = Full(30, cut=False)
    writer = TFRecordWriter(file, compression_type=compression)
    with pytest.raises(OSError, match="space"):
        for _ in range(10):
            writer.write_bytes(os.urandom(1 << 18))
    file.room = 1 << 30
    with pytest.raises(TFRecordError, match="could not be undone"):
        writer.write_bytes(b"y")
    with pytest.raises(TFRecordError, match="ends inside a record"):
        writer.close()
    with pytest.raises(TFRecordError):
        records(file.getvalue())


@POSIX
@pytest.mark.parametrize("index", [False, True])
def test_a_disk_that_fills_up(tmp_path: Path, index: bool) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        from tfrecord.writer import TFRecordWriter
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        writer = TFRecordWriter(sys.argv[1], index=sys.argv[2] == "True")
        try:
            while True:
                writer.write_bytes(b"x" * 1234)
        except OSError as error:
            print(error.errno, writer.num_records, writer.tell())
        writer.close()
        """
    )
    path = str(tmp_path / "a")
    run = subprocess.run(
        [sys.executable, "-c", script, path, str(index)], check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == [str(errno.EFBIG), "8", "10000"]
    assert records(path) == [b"x" * 1234] * 8
    assert os.path.exists(path + ".tfindex") == index


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_full() -> None:
    with TFRecordWriter("/dev/full") as writer:
        for _ in range(2):
            with pytest.raises(OSError, match="space"):
                writer.write_bytes(b"x")
        assert writer.num_records == 0
    with (
        pytest.raises(OSError, match="space"),
        TFRecordWriter("/dev/full", compression_type="gzip") as writer,
    ):
        writer.write_bytes(b"x")


def test_files_that_return_nothing_from_write() -> None:
    class Quiet:
        data = b""

        def write(self, data: Any) -> None:
            self.data += bytes(data)

    class Busy(io.RawIOBase):
        def write(self, data: Any) -> None:
            return None

    file = Quiet()
    with TFRecordWriter(file) as writer:
        writer.write_bytes(b"x")
        writer.write_bytes(b"y")
    assert records(file.data) == [b"x", b"y"]
    with pytest.raises(BlockingIOError, match="non-blocking"):
        TFRecordWriter(Busy()).write_bytes(b"x")


def test_a_buffered_file_whose_disk_is_full() -> None:
    class Raw(io.RawIOBase):
        full = True

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "no space")
            return len(data)

    raw = Raw()
    file = io.BufferedWriter(raw, 100)
    writer = TFRecordWriter(file)
    writer.write_bytes(b"x")
    with pytest.raises(OSError, match="no space"):
        writer.write_bytes(b"x" * 1000)
    with pytest.raises(TFRecordError, match="could not be undone"):
        writer.write_bytes(b"y")
    with pytest.raises(OSError, match="no space"):
        writer.close()
    raw.full = False
    file.close()


@pytest.mark.parametrize("result", [0, -1, 10_000])
def test_a_write_that_lies_is_an_error(result: int) -> None:
    class Liar:
        def write(self, data: Any) -> int:
            return result

    with pytest.raises(OSError, match=rf"write\(\) returned {result} for"):
        TFRecordWriter(Liar()).write_bytes(b"x")


def test_close_says_where_the_file_ends_inside_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, index=True) as writer:
        writer.write_bytes(b"old")
    before = (tmp_path / "a.tfindex").read_bytes()
    writer = TFRecordWriter(path, compression_type="GZIP", index=True)
    writer._output._file = Failing(writer._output._file)
    with pytest.raises(OSError, match="full"):
        for _ in range(100):
            writer.write_bytes(os.urandom(5000))
    with pytest.raises(TFRecordError, match="ends inside a record") as caught:
        writer.close()
    assert str(path) in str(caught.value)
    writer.close()
    assert (tmp_path / "a.tfindex").read_bytes() == before
    # After an exception its own error is what comes out.
    with pytest.raises(OSError, match="full"):
        with TFRecordWriter(path, compression_type="GZIP") as writer:
            writer._output._file = Failing(writer._output._file)
            for _ in range(100):
                writer.write_bytes(os.urandom(5000))


class Failing:
    """A file that takes half of the second write, and cannot be cut."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._writes = 0

    def write(self, data: Any) -> int:
        self._writes += 1
        if self._writes < 2:
            return int(self._file.write(data))
        self._file.write(memoryview(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "full")

    def close(self) -> None:
        self._file.close()
