"""Records reach the file whole or not at all, whatever the file is and whatever fails."""

from __future__ import annotations

import errno
import gc
import gzip
import io
import os
import subprocess
import sys
import textwrap
import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer import build, framing, streams
from indexer.errors import CompressionError, CorruptRecordError, TFRecordError, TruncatedRecordError
from indexer.formats import load_index
from tfrecord import example_pb2
from tfrecord._engine import encode_kernel
from tfrecord._flatten import flatten_batch
from tfrecord.columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord.encode import RowFrames, encode_example, encode_sequence_example
from tfrecord.schema import SchemaCollector
from tfrecord.writer import TFRecordWriter

KERNEL = encode_kernel
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")


def records(source: Any) -> list[bytes]:
    """The payloads of a path or of bytes, both checksums checked."""
    if isinstance(source, (bytes, bytearray)):
        source = io.BytesIO(source)
    found = []
    for chunk in streams.iter_chunks(source):
        for start, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
            found.append(bytes(chunk.buffer[start + framing.HEADER_SIZE :][:length]))
    return found


def examples(source: Any) -> list[dict[str, list[Any]]]:
    found = []
    for record in records(source):
        features = example_pb2.Example.FromString(record).features.feature
        found.append(
            {key: list(getattr(features[key], features[key].WhichOneof("kind")).value) for key in features}
        )
    return found


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
    [("mode", "r"), ("mode", "wb"), ("compression_type", "zstd"), ("compression_type", "auto")],
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
    with pytest.raises(ValueError, match="needs a local path"):
        TFRecordWriter("memory://writer-test/c", index=True)
    with TFRecordWriter(f"file://{tmp_path}/c") as writer:
        writer.write_bytes(b"z")
    assert records(str(tmp_path / "c")) == [b"z"]


def test_a_new_file_only(tmp_path: Path) -> None:
    with TFRecordWriter(tmp_path / "a", mode="x") as writer:
        writer.write_bytes(b"x")
    with pytest.raises(FileExistsError):
        TFRecordWriter(tmp_path / "a", mode="x")
    assert records(str(tmp_path / "a")) == [b"x"]


# ---- writes that fail ----------------------------------------------------------------------------------


class Full(io.BytesIO):
    """Takes `room` bytes, then is full."""

    def __init__(self, room: int, *, cut: bool = True) -> None:
        super().__init__()
        self.room = room
        self.cut = cut

    def seekable(self) -> bool:
        return self.cut

    def write(self, data: Any) -> int:
        part = bytes(data)[: self.room - self.tell()]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(part)


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
    monkeypatch.setattr("tfrecord._writer._BATCH_BYTES", 100)
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


# ---- appending -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("existing", [None, 0, 3])
def test_appending(tmp_path: Path, compression: str | None, existing: int | None) -> None:
    path = tmp_path / "a"
    if existing is not None:
        with TFRecordWriter(path, compression_type=compression) as writer:
            for i in range(existing):
                writer.write_bytes(bytes([i]))
            size = writer.tell()
    with TFRecordWriter(path, mode="a", compression_type=compression) as writer:
        assert writer.num_records == (existing or 0)
        assert writer.tell() == (size if existing else 0)
        writer.write_bytes(b"new")
        assert writer.num_records == (existing or 0) + 1
    assert records(str(path)) == [bytes([i]) for i in range(existing or 0)] + [b"new"]


@pytest.mark.parametrize("left", [1, 11, 12, 15, 20, 27])
def test_an_incomplete_last_record_is_cut_off(tmp_path: Path, left: int) -> None:
    path = tmp_path / "a"
    whole = framing.frame_record(b"one") + framing.frame_record(b"two")
    path.write_bytes(whole + framing.frame_record(b"x" * 12)[:left])
    with pytest.warns(
        RuntimeWarning, match=rf"a: record 2 at offset {len(whole)} is incomplete; its {left} bytes"
    ):
        writer = TFRecordWriter(path, mode="a")
    assert (writer.num_records, writer.tell()) == (2, len(whole))
    writer.write_bytes(b"three")
    writer.close()
    assert records(str(path)) == [b"one", b"two", b"three"]


def test_where_the_warning_is_an_error_nothing_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = framing.frame_record(b"one") + b"\0"
    path.write_bytes(data)
    with warnings.catch_warnings(), pytest.raises(RuntimeWarning):
        warnings.simplefilter("error")
        TFRecordWriter(path, mode="a")
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "error", "reason", "record", "offset"),
    [
        (b"short", TruncatedRecordError, "truncated_header", 0, 0),
        (b"some other file that is long enough", CorruptRecordError, "bad_length_crc", 0, 0),
        (framing.frame_record(b"a") + bytes(40), CorruptRecordError, "bad_length_crc", 1, 17),
        (
            framing.frame_record(b"a") + framing.frame_record(b"bb")[:-1] + b"\0",
            CorruptRecordError,
            "bad_payload_crc",
            1,
            17,
        ),
    ],
)
def test_nothing_is_appended_to_a_damaged_file(
    tmp_path: Path, data: bytes, error: type[CorruptRecordError], reason: str, record: int, offset: int
) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        TFRecordWriter(path, mode="a")
    found = caught.value
    assert (found.path, found.reason, found.record, found.offset) == (str(path), reason, record, offset)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("stored", "asked", "says"),
    [
        ("gzip", None, "'GZIP'"),
        ("zlib", "gzip", "'ZLIB'"),
        (None, "gzip", "compression_type=None"),
        ("gzip", "zlib", "'GZIP'"),
        ("zlib", "zlib", "cannot be appended to"),
    ],
)
def test_appending_in_another_compression(
    tmp_path: Path, stored: str | None, asked: str | None, says: str
) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, compression_type=stored) as writer:
        writer.write_bytes(b"x")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=says):
        TFRecordWriter(path, mode="a", compression_type=asked)
    assert path.read_bytes() == before


def test_a_gzip_file_that_is_cut_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = gzip.compress(framing.frame_record(b"x" * 100))
    for bad, error in [(data[:-5], CompressionError), (data + b"junk", CompressionError)]:
        path.write_bytes(bad)
        with pytest.raises(error) as caught:
            TFRecordWriter(path, mode="a", compression_type="gzip")
        assert caught.value.path == str(path)
        assert path.read_bytes() == bad
    path.write_bytes(gzip.compress(framing.frame_record(b"x" * 100)[:50]))
    with pytest.raises(TruncatedRecordError) as cut:
        TFRecordWriter(path, mode="a", compression_type="gzip")
    assert (cut.value.record, cut.value.offset, cut.value.reason) == (0, 0, "truncated_record")


@pytest.mark.parametrize("zeros", [0, 1, 7, 8, 512, 40_000])
@pytest.mark.parametrize(
    "content", [b"", framing.frame_record(b"x" * 100), framing.frame_record(bytes(100_000))]
)
def test_zeros_after_the_last_gzip_member_make_room(tmp_path: Path, content: bytes, zeros: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content) + gzip.compress(b"") + gzip.compress(content) + bytes(zeros))
    before = records(str(path))
    with TFRecordWriter(path, mode="a", compression_type="gzip") as writer:
        writer.write_bytes(b"new")
    assert records(str(path)) == [*before, b"new"]


# ---- the index -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_the_index_is_that_of_a_build(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path, compression_type=compression, index=True) as writer:
        writer.write({"x": (1, "int")})
        writer.write_bytes(b"")
        writer.write_batch({"x": np.arange(100)})
        assert not (tmp_path / "a.tfrecord.tfindex").exists()
    written = load_index(str(path) + ".tfindex", str(path))
    built = build.build_index(str(path), str(tmp_path / "other.tfindex"))
    assert written.offsets.tolist() == built.offsets.tolist()
    assert written.lengths.tolist() == built.lengths.tolist()
    assert (written.compression, written.stream_size) == (built.compression, built.stream_size)
    assert len(written) == 102
    assert written.metadata["record_type"] == "example"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("sequence", [False, True])
def test_the_index_has_the_schema_of_a_build(
    tmp_path: Path, compression: str | None, sequence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrecord._written_index._RUN_BYTES", 100)
    monkeypatch.setattr("tfrecord._writer._BATCH_BYTES", 100)
    monkeypatch.setattr("tfrecord._writer._COPY_BELOW", 500)
    path = tmp_path / "a"
    lists = {"t": ([[1], [2, 3]], "int")} if sequence else None
    for mode in ("w", "a"):
        with TFRecordWriter(path, mode=mode, compression_type=compression, index=True) as writer:
            for i in range(20):
                writer.write({"x": (i, "int"), "y": ([0.5] * (i % 3), "float")}, lists)
            writer.write_bytes(encode_example({"s": ("x" * 1000, "byte")}))
            if not sequence:
                writer.write_batch({"x": np.arange(50)})
            writer.write({"x": (1, "int")}, lists)
        written = load_index(str(path) + ".tfindex", str(path))
        other = str(tmp_path / "other.tfindex")
        built = build.build_index(str(path), other, collector=SchemaCollector())
        assert written.lengths.tolist() == built.lengths.tolist()
        assert written.metadata == built.metadata
        assert "schema" in written.metadata


def test_a_batch_taken_back_costs_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, index=True) as writer:
        writer.write({"x": (1, "int")})
        send = writer._output._send

        def failing(data: Any) -> None:
            raise OSError("no space")

        monkeypatch.setattr(writer._output, "_send", failing)
        with pytest.raises(OSError, match="no space"):
            writer.write_batch({"y": np.arange(3)})
        monkeypatch.setattr(writer._output, "_send", send)
        writer.write({"x": (1, "int")})
    index = load_index(str(path) + ".tfindex", str(path))
    assert len(index) == 2
    assert "schema" not in index.metadata


def test_the_index_goes_on_when_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"x")
    with TFRecordWriter(path, mode="a", index=True) as writer:
        writer.write_bytes(b"yy")
    assert load_index(str(path) + ".tfindex", str(path)).lengths.tolist() == [1, 2]


def test_the_index_of_an_empty_file(tmp_path: Path) -> None:
    TFRecordWriter(tmp_path / "a", index=True).close()
    assert len(load_index(str(tmp_path / "a.tfindex"), str(tmp_path / "a"))) == 0


def test_after_an_exception_there_is_no_new_index(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, index=True) as writer:
        writer.write_bytes(b"x")
    old = (tmp_path / "a.tfindex").read_bytes()
    with pytest.raises(ZeroDivisionError), TFRecordWriter(path, index=True) as writer:
        writer.write_bytes(b"yy")
        raise ZeroDivisionError
    assert (tmp_path / "a.tfindex").read_bytes() == old
    with pytest.raises(TFRecordError, match=r"a\.tfindex"):
        load_index(str(path) + ".tfindex", str(path))


# ---- batches -------------------------------------------------------------------------------------------


def batch_of(columns: Any, **options: Any) -> list[dict[str, list[Any]]]:
    file = io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch(columns, **options)
    return examples(file.getvalue())


def test_a_batch_is_the_records_one_by_one() -> None:
    n = 50
    rng = np.random.default_rng(1)
    columns = {
        "i": rng.integers(-(2**63), 2**63 - 1, n),
        "f": rng.standard_normal((n, 3)),
        "b": [f"text {i}".encode() + bytes(i % 3) for i in range(n)],
        "r": Ragged(rng.integers(0, 300, 2 * n), np.arange(n + 1) * 2),
    }
    one, whole = io.BytesIO(), io.BytesIO()
    with TFRecordWriter(one) as writer:
        for i in range(n):
            writer.write(
                {
                    "i": (columns["i"][i], "int"),
                    "f": (columns["f"][i], "float"),
                    "b": (columns["b"][i], "byte"),
                    "r": (columns["r"][i], "int"),
                }
            )
    with TFRecordWriter(whole) as writer:
        writer.write_batch(columns)
        assert writer.num_records == n
    assert whole.getvalue() == one.getvalue()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.array([1, 2], np.uint8), [[1], [2]]),
        (np.array([True, False]), [[1], [0]]),
        (np.array([1.5, 2.5]), [[1.5], [2.5]]),
        (np.arange(4).reshape(2, 2).T, [[0, 2], [1, 3]]),
        (np.arange(8).reshape(2, 2, 2), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (np.arange(10)[::-5], [[9], [4]]),
        (np.array([1, 2], ">i4"), [[1], [2]]),
        (np.zeros((2, 0)), [[], []]),
        ([1, 2], [[1], [2]]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (range(2), [[0], [1]]),
        (([1, 2], "float"), [[1.0], [2.0]]),
        ((np.array([1, 2], object), "int"), [[1], [2]]),
        (["a\0", "\u00fc"], [[b"a\0"], ["\u00fc".encode()]]),
        ([b"a\0", bytearray(b"b")], [[b"a\0"], [b"b"]]),
        (np.array([b"a", b"bcd"]), [[b"a"], [b"bcd"]]),
        (np.array(["a", "bcd"]), [[b"a"], [b"bcd"]]),
        (np.array([["a", "b"], ["c", "d"]], object), [[b"a", b"b"], [b"c", b"d"]]),
        (BytesColumn.from_list([b"a", b"bc"]), [[b"a"], [b"bc"]]),
        (BytesColumn((b"abc", b"xyz"), [1, 0], [2, 3], [0, 1]), [[b"bc"], [b"xyz"]]),
        (BytesColumn((b"abcd",), [0, 1, 2, 3], [1, 1, 1, 1], shape=(2, 2)), [[b"a", b"b"], [b"c", b"d"]]),
        (Ragged(np.arange(3.0), [0, 0, 3]), [[], [0, 1, 2]]),
        (Ragged(np.arange(6).reshape(3, 2), [0, 1, 3]), [[0, 1], [2, 3, 4, 5]]),
        (Ragged(BytesColumn.from_list([b"a", b"b", b"c"]), [0, 2, 3]), [[b"a", b"b"], [b"c"]]),
    ],
)
def test_kinds_of_columns(column: Any, expected: list[list[Any]]) -> None:
    assert [row["x"] for row in batch_of({"x": column})] == expected


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"x": 3}, TypeError, "feature 'x': got int 3, expected an array"),
        ({"x": "ab"}, TypeError, "feature 'x': got str of length 2, expected an array"),
        ({"x": np.array(3)}, TypeError, "feature 'x': got an array of int64, shape ()"),
        ({"x": [[1], [2, 3]]}, ValueError, "feature 'x': got a ragged nested list"),
        ({"x": [1, None]}, TypeError, "feature 'x': got int 1 at position 0"),
        ({"x": ["a", None]}, TypeError, "feature 'x': got None at position 1"),
        ({"x": np.array([1j])}, TypeError, "feature 'x': got an array of complex128"),
        (
            {"x": np.array([0, 2**63], np.uint64)},
            ValueError,
            "feature 'x': got int 9223372036854775808 at position 1",
        ),
        ({"x": np.array([0, 1e39])}, ValueError, "feature 'x': got float 1e+39 at position 1"),
        ({"x": (np.array([1.5]), "int")}, TypeError, "feature 'x': got an array of float64"),
        ({"x": (np.array([1]), "byte")}, TypeError, "feature 'x': got an array of int64"),
        ({"x": (BytesColumn.from_list([b"a"]), "int")}, TypeError, "feature 'x': got byte strings"),
        ({"x": (np.array(["a"]), "int")}, TypeError, "feature 'x': got"),
        ({"x": (np.array([1]), "foo")}, ValueError, "feature 'x': got the type name 'foo'"),
        ({"a": [1, 2], "x": [1]}, ValueError, "feature 'x': got 1 rows, expected 2"),
        ({1: [1]}, TypeError, "feature 1: got int 1 as a feature's name"),
        (
            {"x": Ragged(Ragged(np.arange(2), [0, 2]), [0, 1])},
            TypeError,
            "feature 'x': got a Ragged of Ragged",
        ),
        ({"x": np.ma.array([1, 2], mask=[0, 1])}, ValueError, "feature 'x': got an array with masked values"),
        ([1, 2], TypeError, "write_batch: got list of length 2, expected a dict of columns"),
        (None, TypeError, "write_batch: got None, expected a dict of columns"),
    ],
)
def test_columns_that_are_refused(columns: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        batch_of(columns)
    assert str(caught.value).startswith(text)


def test_missing_is_not_empty() -> None:
    present = {"x": np.array([True, False, True]), "r": np.array([False, True, True])}
    columns = {"x": np.arange(3), "r": Ragged(np.arange(2.0), [0, 0, 0, 2])}
    expected = [{"x": [0]}, {"r": []}, {"x": [2], "r": [0.0, 1.0]}]
    assert batch_of(columns, present=present) == expected
    assert batch_of(ColumnBatch(columns, present)) == expected
    with pytest.raises(ValueError, match="feature 'y': got present flags without a column"):
        batch_of(columns, present={"y": present["x"]})
    with pytest.raises(
        ValueError, match=r"feature 'x': got present flags of int64, shape \(3,\), expected bool"
    ):
        batch_of(columns, present={"x": np.arange(3)})
    with pytest.raises(ValueError, match="says itself what is present"):
        batch_of(ColumnBatch(columns), present=present)


def test_batches_without_rows_or_columns() -> None:
    assert batch_of({}) == []
    assert batch_of({"x": []}) == []
    assert batch_of(ColumnBatch({}, num_rows=3)) == [{}, {}, {}]


def test_rows_of_steps() -> None:
    context = ColumnBatch({"n": np.arange(3)})
    lists = ColumnBatch(
        {
            "t": Ragged(Ragged(np.arange(5), [0, 2, 2, 5]), [0, 2, 2, 3]),
            "d": Ragged(np.arange(6.0).reshape(3, 2), [0, 0, 3, 3]),
            "w": Ragged(Ragged(BytesColumn.from_list([b"a", b"b"]), [0, 1, 2]), [0, 1, 1, 2]),
            "k": np.arange(6).reshape(3, 2),
        },
        present={"w": np.array([True, False, True])},
    )
    file, one = io.BytesIO(), io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch(SequenceBatch(context, lists))
    with TFRecordWriter(one) as writer:
        rows: list[tuple[Any, Any, Any, Any]] = [
            ([[0, 1], []], [], [["a"]], [0, 1]),
            ([], [[0, 1], [2, 3], [4, 5]], None, [2, 3]),
            ([[2, 3, 4]], [], [["b"]], [4, 5]),
        ]
        for i, (t, d, w, k) in enumerate(rows):
            sequence = {"t": (t, "int"), "d": (d, "float"), "w": (w, "byte"), "k": (k, "int")}
            if w is None:
                del sequence["w"]
            writer.write({"n": (i, "int")}, sequence)
    assert file.getvalue() == one.getvalue()


def test_arrow_and_polars() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "i": pa.array([1, None, 3], pa.int16()),
            "s": pa.array(["a", "b\0", None]),
            "l": pa.array([[1.5], [], None], pa.list_(pa.float32())),
            "b": pa.array([b"x", b"", b"yz"], pa.binary_view()),
            "d": pa.array(["u", "v", "u"]).dictionary_encode(),
            "t": pa.array([True, False, True]),
            "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        }
    )
    expected = [
        {"i": [1], "s": [b"a"], "l": [1.5], "b": [b"x"], "d": [b"u"], "t": [1], "f": [1, 2]},
        {"s": [b"b\0"], "l": [], "b": [b""], "d": [b"v"], "t": [0], "f": [3, 4]},
        {"i": [3], "b": [b"yz"], "d": [b"u"], "t": [1], "f": [5, 6]},
    ]
    assert batch_of(table) == expected
    assert batch_of(table.to_batches()[0].slice(1)) == expected[1:]

    class Stream:
        """What duckdb and others give."""

        def __arrow_c_stream__(self, schema: Any = None) -> Any:
            return table.__arrow_c_stream__(schema)

    assert batch_of(Stream()) == expected
    with pytest.raises(TypeError, match="'x'"):
        batch_of(pa.table({"x": pa.array([0], pa.timestamp("s"))}))
    polars = pytest.importorskip("polars")
    assert batch_of(polars.DataFrame({"x": [1, 2], "s": ["a", None]})) == [
        {"x": [1], "s": [b"a"]},
        {"x": [2]},
    ]


def test_pandas_series_and_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2], "s": ["a", "b"]})
    assert batch_of({name: frame[name] for name in frame}) == [
        {"x": [1], "s": [b"a"]},
        {"x": [2], "s": [b"b"]},
    ]
    with pytest.raises(TypeError, match="write_batch: got DataFrame, expected .*from_pandas"):
        batch_of(frame)


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 40, 200])
@pytest.mark.parametrize("bits", [1, 7, 8, 27, 28, 29, 63, 64])
def test_integers_of_every_length(width: int, bits: int) -> None:
    rng = np.random.default_rng(width * bits)
    high = rng.integers(0, 2**63, (20, width)).astype(np.uint64) * np.uint64(2)
    numbers = (high >> rng.integers(64 - bits, 64, (20, width)).astype(np.uint64)).astype(np.int64)
    numbers[::3] = numbers[0, 0] & 1  # rows of one-byte values too
    assert [row["x"] for row in batch_of({"x": numbers})] == numbers.tolist()
    assert examples(framing.frame_record(encode_example({"x": (numbers, "int")}))) == [
        {"x": numbers.reshape(-1).tolist()}
    ]


@pytest.mark.parametrize("which", ["values", "more values", "splits", "lengths"])
def test_columns_that_change_while_they_are_written(which: str) -> None:
    numbers, splits = np.arange(4), np.array([0, 1, 2, 4])
    text = BytesColumn((b"abcdefgh",), np.zeros(3, np.int64), np.ones(3, np.int64))
    flat = flatten_batch({"i": Ragged(numbers, splits), "b": text, "f": np.arange(3.0)}, None)
    rows = RowFrames(flat)
    ints, strings = flat.columns[0], flat.columns[1]
    assert ints.values is not None and ints.splits is not None and strings.lengths is not None
    if which == "values":
        ints.values[2] = -1
    elif which == "more values":
        ints.values[:] = 1 << 40
    elif which == "splits":
        ints.splits[1] = 2
    else:
        strings.lengths[:] = 8
    with pytest.raises(RuntimeError, match="changed by another thread"):
        rows.frames(0, 3)


@pytest.mark.skipif(KERNEL is None, reason="the reference needs no bounds")
@pytest.mark.parametrize("problem", ["fall", "outside", "bytes", "buffer"])
def test_columns_that_are_not_what_they_say(problem: str) -> None:
    if problem in ("fall", "outside"):
        splits = np.array([0, 2, 1] if problem == "fall" else [0, 1, 9])
        column: Any = Ragged._trusted(np.arange(2), splits)
    else:
        ids = None if problem == "bytes" else np.array([0, 7], np.int32)
        lengths = np.array([1, 9 if problem == "bytes" else 1])
        column = BytesColumn._trusted((b"ab",), np.zeros(2, np.int64), lengths, ids)
    with pytest.raises(ValueError, match="feature 'x': got in row 1 .* outside"):
        batch_of({"x": column})


def test_a_large_batch_goes_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecord._writer._BATCH_BYTES", 200)
    assert batch_of({"x": np.arange(300)}) == [{"x": [i]} for i in range(300)]


def test_a_row_of_two_gibibytes_is_refused() -> None:
    huge = np.broadcast_to(np.zeros(1, np.int64), 2**16)
    column = BytesColumn((bytes(2**16),), huge, np.full(2**16, 2**15), shape=(1, 2**16))
    with pytest.raises(ValueError, match="feature 'x': got in row 0 a record of 2 GiB or more"):
        TFRecordWriter(io.BytesIO()).write_batch({"x": column})


def test_raw_records_of_any_size_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecord._writer._COPY_BELOW", 100)
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


def test_the_warning_of_a_cut_tail_points_at_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(framing.frame_record(b"x") + b"cut")
    with pytest.warns(RuntimeWarning, match="record 1 at offset 17") as caught:
        TFRecordWriter(path, mode="a").close()
    assert caught[0].filename == __file__


def test_lists_of_arrays_and_large_integers_in_a_batch() -> None:
    def stored(column: Any) -> list[bytes]:
        file = io.BytesIO()
        with TFRecordWriter(file) as writer:
            writer.write_batch({"x": column})
        return records(file.getvalue())

    assert stored([np.arange(2), [5, 6]]) == [encode_example({"x": (v, "int")}) for v in ([0, 1], [5, 6])]
    with pytest.raises(ValueError, match="'x': got an array with masked values"):
        stored([1.0, np.ma.masked])
    # NumPy makes floats of these.
    with pytest.raises(ValueError, match="'x': got int 9223372036854775808 at position 1"):
        stored([-1, 2**63])
    with pytest.raises(TypeError, match="'x': got a list that gives no array"):
        stored([[Broken()]])


class Broken:
    def __array__(self, *args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("no")
