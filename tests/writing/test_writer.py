"""Records reach the file whole or not at all, whatever the file is and whatever fails."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import textwrap
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import POSIX, Full, examples, records

from indexer import framing
from tfrecord import example_pb2
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.reader import TFRecordReader
from tfrecord.writer import TFRecordWriter


@pytest.mark.parametrize("compression", [None, "", "NONE", "GZIP", "gzip", "ZLIB", " zlib "])
def test_what_is_written_is_there(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path, compression_type=compression) as writer:
        assert (writer.tell(), writer.num_records) == (0, 0)
        writer.write({"x": (1, "int")})
        writer.write({"n": (2, "int")}, {"t": ([[1], []], "int")})
        writer.write_bytes(b"")
        writer.write_bytes(memoryview(b"raw")[::-1])
        writer.write_bytes(np.array([1, 2], np.uint8))
        assert writer.num_records == 5
        size = writer.tell()
    expected = [
        encode_example({"x": (1, "int")}),
        encode_sequence_example({"n": (2, "int")}, {"t": ([[1], []], "int")}),
        b"",
        b"war",
        b"\x01\x02",
    ]
    assert records(str(path)) == expected
    assert size == sum(map(len, expected)) + 16 * len(expected)
    head = path.read_bytes()[:2]
    assert (head == b"\x1f\x8b") == ("gzip" in (compression or "").lower())
    if not (compression or "").strip().lower().startswith(("g", "z")):
        assert path.read_bytes() == b"".join(map(framing.frame_record, expected))


def test_the_second_parameter_has_the_lineages_name(tmp_path: Path) -> None:
    writer = TFRecordWriter(data_path=str(tmp_path / "a"))
    writer.write({}, sequence_datum={})
    writer.close()
    assert records(str(tmp_path / "a")) == [b"\x0a\x00\x12\x00"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "r"), ("mode", "wb"), ("compression_type", "lz4"), ("compression_type", "auto")],
)
def test_unknown_options_touch_no_file(tmp_path: Path, option: str, value: str) -> None:
    with pytest.raises(ValueError, match=value):
        TFRecordWriter(tmp_path / "a", **{option: value})
    assert not (tmp_path / "a").exists()


def test_close_twice_and_writing_afterwards(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a") as writer:
        writer.write_bytes(b"x")
        writer.close()
    writer.close()
    assert writer.closed
    calls: list[Callable[[], object]] = [
        lambda: writer.write({}),
        lambda: writer.write_bytes(b""),
        lambda: writer.write_batch({}),
        writer.flush,
        writer.__enter__,
    ]
    for call in calls:
        with pytest.raises(ValueError, match="a is closed"):
            call()
    assert records(str(tmp_path / "a")) == [b"x"]


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_an_exception_in_the_block_leaves_a_whole_file(tmp_path: Path, compression: str | None) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        TFRecordWriter(tmp_path / "a", compression_type=compression) as writer,
    ):
        writer.write_bytes(b"x")
        raise ZeroDivisionError
    assert records(str(tmp_path / "a")) == [b"x"]


def test_a_refused_record_leaves_the_others(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a") as writer:
        writer.write({"x": (1, "int")})
        with pytest.raises(TypeError, match="feature 'x'"):
            writer.write({"a": (2, "int"), "x": (None, "int")})
        with pytest.raises(ValueError, match="feature 'x'"):
            writer.write_batch({"x": np.array([1, 2**63], np.uint64)})
        with pytest.raises(TypeError, match="expected a bytes-like"):
            writer.write_bytes("text")
        writer.write({"x": (3, "int")})
        assert writer.num_records == 2
    assert examples(str(tmp_path / "a")) == [{"x": [1]}, {"x": [3]}]


def test_each_record_is_one_write() -> None:
    class File:
        def __init__(self) -> None:
            self.writes: list[bytes] = []

        def write(self, data: Any) -> int:
            self.writes.append(bytes(data))
            return len(data)

    file = File()
    with TFRecordWriter(file) as writer:
        writer.write({"x": (1, "int")})
        writer.write_bytes(b"y" * 100_000)
        writer.write_batch({"x": np.arange(3)})
    assert len(file.writes) == 3
    assert [len(records(data)) for data in file.writes] == [1, 1, 3]


def test_what_is_written_can_be_read_before_close(tmp_path: Path) -> None:
    writer = TFRecordWriter(tmp_path / "a")
    writer.write_bytes(b"x")
    assert records(str(tmp_path / "a")) == [b"x"]
    writer.close()
    writer = TFRecordWriter(tmp_path / "b", compression_type="GZIP")
    writer.write_bytes(b"x" * 1000)
    writer.flush()
    cut = zlib.decompressobj(31).decompress((tmp_path / "b").read_bytes())
    assert records(cut) == [b"x" * 1000]
    writer.close()
    assert records(str(tmp_path / "b")) == [b"x" * 1000]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_forgotten_writer_warns_and_keeps_its_records(tmp_path: Path, compression: str | None) -> None:
    writer = TFRecordWriter(tmp_path / "a", compression_type=compression)
    writer.write_bytes(b"x")
    with pytest.warns(ResourceWarning, match=r"unclosed <TFRecordWriter .*a, 1 records>"):
        del writer
        gc.collect()
    assert records(str(tmp_path / "a")) == [b"x"]


def test_a_writer_that_could_not_be_made_does_not_warn(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TFRecordWriter(tmp_path / "none" / "a")
    gc.collect()


@POSIX
def test_a_forked_copy_does_not_end_the_file(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        from tfrecord.writer import TFRecordWriter
        writer = TFRecordWriter(sys.argv[1], compression_type="gzip")
        writer.write_bytes(b"x")
        child = os.fork()
        if not child:
            writer.close()
            del writer
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        writer.write_bytes(b"y")
        writer.close()
        """
    )
    path = str(tmp_path / "a")
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert records(path) == [b"x", b"y"]


# ---- what it writes to ---------------------------------------------------------------------------------


class Short(io.RawIOBase):
    """An unbuffered file that takes at most 7 bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)[:7]
        self.data += part
        return len(part)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_short_writes_are_completed(compression: str | None) -> None:
    file = Short()
    with TFRecordWriter(file, compression_type=compression) as writer:
        for i in range(20):
            writer.write({"x": (i, "int")})
    assert examples(file.data) == [{"x": [i]} for i in range(20)]
    assert not file.closed


def test_a_callers_file_is_flushed_and_left_open(tmp_path: Path) -> None:
    memory = io.BytesIO(b"head")
    memory.seek(4)
    with TFRecordWriter(memory) as writer:
        writer.write_bytes(b"x")
    assert memory.getvalue() == b"head" + framing.frame_record(b"x")
    with open(tmp_path / "a", "wb") as file:
        with TFRecordWriter(file) as writer:
            writer.write_bytes(b"x")
        assert records(str(tmp_path / "a")) == [b"x"]
        assert not file.closed


def test_a_pipe() -> None:
    read, write = os.pipe()
    got: list[bytes] = []
    with open(read, "rb") as source, open(write, "wb", buffering=0) as target:
        thread = threading.Thread(target=lambda: got.append(source.read()))
        thread.start()
        with TFRecordWriter(target, compression_type="gzip") as writer:
            for i in range(5):
                writer.write_bytes(os.urandom(100_000) + bytes([i]))
        target.close()
        thread.join()
    assert [record[-1] for record in records(got[0])] == list(range(5))


def test_a_text_file_and_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="open for text"):
        TFRecordWriter(io.StringIO())
    with pytest.raises(TypeError):
        TFRecordWriter(3)
    for mode in ("x", "a"):
        with pytest.raises(ValueError, match="needs a path"):
            TFRecordWriter(io.BytesIO(), mode=mode)


def test_urls_and_fsspec_files(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    url = "memory://writer-test/a.tfrecord"
    with TFRecordWriter(url, compression_type="gzip") as writer:
        writer.write_bytes(b"x")
    assert records(fsspec.open(url).open().read()) == [b"x"]
    with pytest.raises(FileExistsError, match="writer-test"):
        TFRecordWriter(url, mode="x")
    with pytest.raises(ValueError, match="appending needs a local file"):
        TFRecordWriter(url, mode="a")
    with TFRecordWriter(fsspec.open("memory://writer-test/b", "wb")) as writer:
        writer.write_bytes(b"y")
    assert records(fsspec.open("memory://writer-test/b").open().read()) == [b"y"]
    with pytest.raises(ValueError, match="mode 'rb'"):
        TFRecordWriter(fsspec.open("memory://writer-test/b", "rb"))
    with TFRecordWriter("memory://writer-test/c", index=True) as writer:
        writer.write_bytes(b"z")
    assert TFRecordReader("memory://writer-test/c").has_index
    with pytest.raises(KeyError), TFRecordWriter("memory://writer-test/d") as writer:
        writer.write_bytes(b"z")
        raise KeyError
    assert not fsspec.filesystem("memory").exists("/writer-test/d")
    with TFRecordWriter(f"file://{tmp_path}/c") as writer:
        writer.write_bytes(b"z")
    assert records(str(tmp_path / "c")) == [b"z"]


def test_a_new_file_only(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a", mode="x") as writer:
        writer.write_bytes(b"x")
    with pytest.raises(FileExistsError):
        TFRecordWriter(tmp_path / "a", mode="x")
    assert records(str(tmp_path / "a")) == [b"x"]


def test_raw_records_of_any_size_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecord._writing.writer._COPY_BELOW", 100)
    file = io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_bytes(b"x" * 1000)
        writer.write_bytes(b"y")
    assert records(file.getvalue()) == [b"x" * 1000, b"y"]
    full = Full(1000)
    with pytest.raises(OSError, match="space"):
        TFRecordWriter(full).write_bytes(b"x" * 1000)
    assert full.getvalue() == b""


@pytest.mark.parametrize("record", [3, None, "text", [1], np.arange(3), example_pb2.Example()])
def test_raw_records_are_bytes(record: Any) -> None:
    with pytest.raises(TypeError, match="^write_bytes: got .*, expected .*bytes"):
        TFRecordWriter(io.BytesIO()).write_bytes(record)


def test_what_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"kept")
    for buffering in (-1, 0):
        with open(path, "rb", buffering=buffering) as file:
            with pytest.raises(ValueError, match="not open for writing"):
                TFRecordWriter(file)
    assert path.read_bytes() == b"kept"
    if os.path.exists(os.devnull):
        with pytest.raises(ValueError, match="regular file"):
            TFRecordWriter(os.devnull, index=True)
