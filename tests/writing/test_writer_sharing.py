"""Writers with several threads, in forked processes, and when an interrupt comes."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from indexer import build, framing, streams
from indexer.formats import load_index
from tfrecord.encode import encode_example
from tfrecord.writer import ShardedTFRecordWriter, TFRecordWriter

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")


def records(path: Path) -> list[bytes]:
    return [
        bytes(payload)
        for chunk in streams.iter_chunks(path)
        for payload in framing.slices(chunk.buffer, chunk.offsets, chunk.lengths, framing.HEADER_SIZE)
    ]


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_threads_write_at_once(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a"
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with TFRecordWriter(path, compression_type=compression, index=True) as writer:

            def work(number: int) -> None:
                for i in range(150):
                    if i % 3:
                        writer.write_bytes(b"%d-%d " % (number, i) * i)
                    elif i % 2:
                        writer.write({"x": (b"%d-%d" % (number, i), "byte")})
                    else:
                        writer.write_batch({"x": [b"%d-%d" % (number, i)] * 2})

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(set(records(path))) == 6 * 150 and writer.num_records == 6 * 175
    build.check_index(path)


@POSIX
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_forked_process_cannot_write(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, compression_type=compression, index=True) as writer:
        writer.write_bytes(b"one")
        child = os.fork()
        if child == 0:
            refused = 0
            for write in (
                lambda: writer.write_bytes(b"child"),
                lambda: writer.write({}),
                lambda: writer.write_batch({"x": [1]}),
                writer.flush,
            ):
                try:
                    write()
                except ValueError as error:
                    refused += str(path) in str(error)
            writer.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        writer.write_bytes(b"two")
    assert records(path) == [b"one", b"two"]
    assert len(build.check_index(path)) == 2


def test_a_writer_is_neither_pickled_nor_copied(tmp_path: Path) -> None:
    for target in (tmp_path / "a", io.BytesIO()):
        with TFRecordWriter(target) as writer:
            for how in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match="cannot be pickled or copied"):
                    how(writer)
            writer.write_bytes(b"x")  # the file is still open


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("step", ["add", "add_lengths", "show", "count"])
def test_an_interrupt_between_a_write_and_its_index(
    tmp_path: Path, compression: str | None, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is in the file: so it is in the index."""
    path = tmp_path / "a"
    with TFRecordWriter(path, compression_type=compression, index=True) as writer:
        writer.write({"x": (0, "int")})
        index: Any = writer._index
        target, name = {
            "show": (index._collector, "update"),
            "count": (index, "add_lengths"),
        }.get(step, (index, step))
        real = getattr(target, name)

        def interrupted(*args: Any) -> None:
            if step == "count":
                real(*args)
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(target, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            if step in ("add", "show"):
                writer.write_bytes(encode_example({"x": (1, "int")}) if step == "add" else bytes(1 << 24))
            else:
                writer.write_batch({"x": [1]})
        writer.write({"x": (2, "int")})
    assert len(records(path)) == len(build.check_index(path)) == 3
    schema = load_index(f"{path}.tfindex", path).metadata.get("schema")
    assert step == "show" or schema["num_records"] == 3


@POSIX
@pytest.mark.parametrize("make", [TFRecordWriter, lambda path: ShardedTFRecordWriter(path, 2)])
def test_a_fork_while_another_thread_writes_does_not_hang(make: Any, tmp_path: Path) -> None:
    writer = make(tmp_path / "a")
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with writer._lock:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this is what it warns of
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        refused = 0
        for name, arguments in (
            ("write", ({},)),
            ("write_bytes", (b"",)),
            ("write_batch", ({"x": [1]},)),
            ("flush", ()),
        ):
            try:
                getattr(writer, name)(*arguments)
            except ValueError as error:
                refused += "process" in str(error)
        writer.close()
        os._exit(refused)
    status = os.waitpid(child, 0)[1]
    go.set()
    thread.join()
    writer.close()
    assert os.waitstatus_to_exitcode(status) == 4
