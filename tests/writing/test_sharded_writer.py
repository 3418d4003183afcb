"""Shards are named, balanced and whole, with few files open at a time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer import build, framing, streams
from indexer.formats import load_index
from tfrecord import example_pb2
from tfrecord.encode import encode_example
from tfrecord.writer import ShardedTFRecordWriter


def numbers(path: str) -> list[int]:
    """The `x` of every record, checksums checked."""
    found = []
    for chunk in streams.iter_chunks(path):
        for start, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
            payload = bytes(chunk.buffer[start + framing.HEADER_SIZE :][:length])
            found.append(example_pb2.Example.FromString(payload).features.feature["x"].int64_list.value[0])
    return found


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("shards", [1, 3, 10, 70])
def test_records_are_dealt_in_turn(tmp_path: Path, shards: int, compression: str | None) -> None:
    with ShardedTFRecordWriter(tmp_path / "data", shards, compression_type=compression) as writer:
        for i in range(5):
            writer.write({"x": (i, "int")})
        writer.write_batch({"x": np.arange(5, 57)})
        writer.write_batch({"x": np.arange(57, 57)})
        writer.write({"x": (57, "int")})
        writer.flush()
        assert writer.num_records == 58
    names = [f"data-{i:05d}-of-{shards:05d}" for i in range(shards)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert writer.paths == tuple(str(tmp_path / name) for name in names)
    for i, path in enumerate(writer.paths):
        assert numbers(path) == list(range(i, 58, shards))


def test_no_records_at_all(tmp_path: Path) -> None:
    ShardedTFRecordWriter(str(tmp_path / "a"), 3).close()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0, 0]


def test_raw_records_and_sequences(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "a", 2) as writer:
        writer.write_bytes(b"x")
        writer.write({}, {})
    assert [Path(path).stat().st_size for path in writer.paths] == [17, 20]


def test_every_shard_has_its_index(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "a", 3, index=True) as writer:
        writer.write_batch({"x": np.arange(10)})
        writer.write({"x": (10, "int")})
    assert [len(load_index(path + ".tfindex", path)) for path in writer.paths] == [4, 4, 3]


def test_few_files_are_open(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    script = textwrap.dedent(
        """
        import resource, sys
        import numpy as np
        from tfrecord.writer import ShardedTFRecordWriter
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        with ShardedTFRecordWriter(sys.argv[1], 300, index=True) as writer:
            for i in range(400):
                writer.write({"x": (i, "int")})
            writer.write_batch({"x": np.arange(400, 700)})
        """
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=True)
    for i in (0, 150, 299):
        assert numbers(str(tmp_path / f"a-{i:05d}-of-00300")) == list(range(i, 700, 300))


def test_a_refused_record_changes_nothing(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "a", 2) as writer:
        writer.write({"x": (0, "int")})
        with pytest.raises(TypeError, match="feature 'x'"):
            writer.write({"x": (None, "int")})
        with pytest.raises(ValueError, match="feature 'x'"):
            writer.write_batch({"x": np.array([2**63], np.uint64)})
        writer.write({"x": (1, "int")})
    assert [numbers(path) for path in writer.paths] == [[0], [1]]


def test_a_batch_that_cannot_be_written_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrecord._writing.writer._BATCH_BYTES", 100)
    with ShardedTFRecordWriter(tmp_path / "a", 3) as writer:
        writer.write_batch({"x": np.arange(4)})
        output = writer._writers[1]._output
        send, left = output._send, [3]

        def failing(data: Any) -> None:
            left[0] -= 1
            if not left[0]:
                send(bytes(data)[:10])
                raise OSError("no space")
            send(data)

        output._send = failing  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no space"):
            writer.write_batch({"x": np.arange(1000)})
        assert writer.num_records == 4
        writer.write_batch({"x": np.arange(4, 9)})
    assert [numbers(path) for path in writer.paths] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_a_batch_that_fails_early_leaves_compressed_shards_usable(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "a", 2, compression_type="gzip") as writer:
        first = writer._writers[0]._output

        def failing(data: Any) -> None:
            raise OSError("no space")

        send, first._send = first._send, failing  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no space"):
            writer.write_batch({"x": np.arange(100_000)})
        first._send = send  # type: ignore[method-assign]
        assert not writer._writers[1]._output.broken
        assert writer.num_records == 0
        first._compressor, first.broken = None, False  # it can take no more: end it as an empty file
    assert numbers(writer.paths[1]) == []


def test_closing_and_what_comes_after(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), ShardedTFRecordWriter(tmp_path / "a", 2, index=True) as writer:
        writer.write({"x": (0, "int")})
        raise ZeroDivisionError
    writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-00000-of-00002", "a-00001-of-00002"]
    assert numbers(writer.paths[0]) == [0]
    for call in (
        lambda: writer.write({}),
        lambda: writer.write_bytes(b""),
        lambda: writer.write_batch({}),
        writer.flush,
    ):
        with pytest.raises(ValueError, match="a-00000-of-00002 .*closed"):
            call()


def test_all_shards_are_closed_where_one_fails(tmp_path: Path) -> None:
    writer = ShardedTFRecordWriter(tmp_path / "a", 3, compression_type="gzip")
    for i in range(3):
        writer.write({"x": (i, "int")})

    def failing(data: Any) -> None:
        raise OSError("no space")

    writer._writers[0]._output._send = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        writer.close()
    assert [numbers(path) for path in writer.paths[1:]] == [[1], [2]]


@pytest.mark.parametrize(
    ("shards", "error"),
    [(0, ValueError), (-1, ValueError), (True, ValueError), (1.5, TypeError), ("3", TypeError)],
)
def test_the_number_of_shards(tmp_path: Path, shards: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ShardedTFRecordWriter(tmp_path / "a", shards)
    assert not list(tmp_path.iterdir())


def test_the_folder_is_made(tmp_path: Path) -> None:
    ShardedTFRecordWriter(tmp_path / "new" / "folder" / "a", 2).close()
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 2
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        ShardedTFRecordWriter(tmp_path / "file" / "a", 2)


def test_shards_at_a_url() -> None:
    fsspec = pytest.importorskip("fsspec")
    with ShardedTFRecordWriter("memory://sharded-test/a", 2) as writer:
        writer.write_batch({"x": np.arange(5)})
    assert fsspec.open("memory://sharded-test/a-00001-of-00002").open().read() == b"".join(
        framing.frame_record(encode_example({"x": (i, "int")})) for i in (1, 3)
    )


def test_options_are_checked_before_files_are_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lz4"):
        ShardedTFRecordWriter(tmp_path / "a", 2, compression_type="lz4")
    assert not list(tmp_path.iterdir())


def test_the_base_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for base in ("", f"{tmp_path}/"):
        with pytest.raises(ValueError, match="base is"):
            ShardedTFRecordWriter(base, 2)
    assert not list(tmp_path.iterdir())


def test_threads_share_the_shards(tmp_path: Path) -> None:
    with ShardedTFRecordWriter(tmp_path / "a", 3, index=True) as writer:

        def work(number: int) -> None:
            for i in range(100):
                writer.write_bytes(b"%d-%d" % (number, i))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert writer.num_records == 600
    assert [len(build.check_index(path)) for path in writer.paths] == [200, 200, 200]
