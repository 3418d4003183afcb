from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import PAYLOADS, Collected

from indexer import scanning
from indexer.build import IndexWriter, build_index, check_index, find_index, scan_index, sidecar_path
from indexer.errors import (
    ChecksumError,
    CompressionError,
    IndexFileError,
    StaleIndexError,
    TruncatedRecordError,
    UnsupportedCompressionError,
)
from indexer.files import open_data
from indexer.formats import load_index
from indexer.framing import VERIFY_ALL, frame_record

# ---- names -----------------------------------------------------------------------------------------


def test_an_index_does_not_replace_compressed_data(tmp_path: Path) -> None:
    data, other = tmp_path / "a.tfrecord", tmp_path / "backup.gz"
    data.write_bytes(frame_record(b"x"))
    for content in (gzip.compress(data.read_bytes()), zlib.compress(data.read_bytes())):
        other.write_bytes(content)
        with pytest.raises(ValueError, match="would overwrite other data"):
            build_index(data, other)
        assert other.read_bytes() == content


def test_names(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS, "a.tfrecord")
    assert sidecar_path(data) == str(data) + ".tfindex"
    assert find_index(data) is None
    (tmp_path / "a.tfindex").touch()
    assert find_index(data) == str(tmp_path / "a.tfindex")
    assert find_index(tmp_path / "a.tfrecords") is None
    assert find_index(tmp_path / "a.tfrecord.gz") is None
    (tmp_path / "a.tfrecord.tfindex").touch()
    assert find_index(str(data)) == str(data) + ".tfindex"


# ---- one file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_build(compression: str, num_threads: int, make_file: Any) -> None:
    data = make_file(PAYLOADS * 50, "a.tfrecord", compression)
    collector = Collected()
    index = build_index(data, collector=collector, num_threads=num_threads)
    assert index.lengths.tolist() == [5, 0, 3, 300] * 50
    assert index.offsets.tolist()[:5] == [0, 21, 37, 56, 372]
    assert collector.payloads == PAYLOADS * 50
    assert (index.path, index.index_path, index.compression) == (
        str(data),
        str(data) + ".tfindex",
        compression,
    )
    loaded = load_index(sidecar_path(data), data)
    assert loaded.columns["size"].tolist() == index.lengths.tolist()
    assert loaded.metadata["record_type"] == "bytes"
    assert loaded.mtime_ns == data.stat().st_mtime_ns
    assert len(check_index(data)) == 200


def test_many_windows(make_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_WINDOW", 1000)
    monkeypatch.setattr(scanning, "_HELD", 3000)
    sizes = [*range(400), 5000, *range(300), 20_000, 0]
    collector = Collected()
    index = scan_index(make_file([b"z" * size for size in sizes]), verify=VERIFY_ALL, collector=collector)
    assert index.lengths.tolist() == sizes == [len(payload) for payload in collector.payloads]
    assert index.offsets.tolist() == np.cumsum([0] + [size + 16 for size in sizes])[:-1].tolist()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("format", ["extended", "text"])
def test_no_records_and_one(count: int, format: Any, make_file: Any) -> None:
    data = make_file([b"only"] * count)
    assert len(build_index(data, format=format)) == count
    assert len(check_index(data)) == count


def test_scan_writes_nothing(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS)
    whole = bytearray(data.read_bytes())
    whole[15] ^= 1
    data.write_bytes(whole)
    assert len(scan_index(data)) == 4  # a header scan does not look at payloads
    with pytest.raises(ChecksumError):
        scan_index(data, verify=VERIFY_ALL)
    assert os.listdir(tmp_path) == ["a.tfrecord"]
    assert len(scan_index(io.BytesIO(b"".join(map(frame_record, PAYLOADS))))) == 4


DAMAGES = [
    (lambda data: data[:-1], TruncatedRecordError, "truncated_record", 3, 56),
    (lambda data: data + b"\n", TruncatedRecordError, "truncated_header", 4, 372),
    (lambda data: data[:38] + b"!" + data[39:], ChecksumError, "bad_length_crc", 2, 37),
    (lambda data: data[:35] + b"!" + data[36:], ChecksumError, "bad_payload_crc", 1, 21),
]


@pytest.mark.parametrize(("damage", "error", "reason", "record", "offset"), DAMAGES)
@pytest.mark.parametrize("format", ["extended", "text"])
def test_damage_leaves_the_earlier_index(
    damage: Any,
    error: Any,
    reason: str,
    record: int,
    offset: int,
    format: Any,
    make_file: Any,
    tmp_path: Path,
) -> None:
    data = make_file(PAYLOADS)
    data.write_bytes(damage(data.read_bytes()))
    target = tmp_path / "i"
    target.write_bytes(b"the earlier one")
    with pytest.raises(error) as caught:
        build_index(data, target, format=format)
    found = caught.value
    assert (found.path, found.record, found.offset, found.reason) == (str(data), record, offset, reason)
    assert target.read_bytes() == b"the earlier one"
    assert sorted(os.listdir(tmp_path)) == ["a.tfrecord", "i"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "Git-LFS"),
        (b'{"a": [1, 2, 3], "b": "cdefgh"}', "JSON"),
    ],
)
def test_what_is_no_record_file(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(content)
    with pytest.raises(ChecksumError, match=words):
        build_index(tmp_path / "a.tfrecord")
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_a_cut_gzip_file(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS, "a.tfrecord.gz", "gzip")
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(CompressionError) as caught:
        build_index(data)
    assert (caught.value.reason, caught.value.record, caught.value.offset) == ("truncated_stream", 4, 372)


def test_a_text_index_of_a_compressed_file_is_refused(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS, "a.tfrecord.gz", "gzip")
    with pytest.raises(UnsupportedCompressionError, match="gzip"):
        build_index(data, format="text")
    assert os.listdir(tmp_path) == ["a.tfrecord.gz"]


def test_data_is_never_overwritten(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS)
    other = make_file(PAYLOADS, "part-00001")
    compressed = make_file(PAYLOADS, "b.tfrecord.gz", "gzip")
    (tmp_path / "link").symlink_to(data)
    os.link(data, tmp_path / "hard")
    contents = [path.read_bytes() for path in (data, other, compressed)]
    for target in (data, tmp_path / "link", tmp_path / "hard", other, compressed, "memory://x/y"):
        with pytest.raises(ValueError, match="overwrite|end in .tfindex"):
            build_index(data, target)
    with pytest.raises(IsADirectoryError):
        build_index(data, tmp_path)
    assert [path.read_bytes() for path in (data, other, compressed)] == contents
    with pytest.raises(ValueError, match="format"):
        build_index(data, format="xml")  # type: ignore[arg-type]


def test_a_damaged_index_may_be_replaced(make_file: Any) -> None:
    data = make_file(PAYLOADS)
    for junk in (b"", b"junk", b"TFRINDEX and more", os.urandom(100)):
        (data.parent / "i").write_bytes(junk)
        assert len(build_index(data, data.parent / "i")) == 4


def test_what_cannot_be_read_or_written(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS)
    with pytest.raises(FileNotFoundError):
        build_index(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        build_index(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        build_index(data, tmp_path / "absent" / "i")
    with pytest.raises(FileNotFoundError, match="no index.*indexer build"):
        check_index(data)


@pytest.mark.parametrize("change", ["append", "touch", "replace"])
def test_data_that_changes_meanwhile(change: str, make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS)

    class Meddler(Collected):
        def update(self, buffer: Any, payload_offsets: Any, lengths: Any) -> None:
            super().update(buffer, payload_offsets, lengths)
            if change == "append":
                with data.open("ab") as file:
                    file.write(frame_record(b"more"))
            elif change == "touch":
                os.utime(data, (5, 5))
            else:
                (tmp_path / "new").write_bytes(b"".join(map(frame_record, PAYLOADS)))
                os.replace(tmp_path / "new", data)

    with pytest.raises(IndexFileError, match="changed while") as caught:
        build_index(data, collector=Meddler())
    assert caught.value.path == str(data)
    assert os.listdir(tmp_path) == ["a.tfrecord"]


# ---- checking --------------------------------------------------------------------------------------


def test_check_finds_what_opening_cannot(make_file: Any) -> None:
    data = make_file([b"%03d" % number for number in range(3000)])
    build_index(data)
    whole = bytearray(data.read_bytes())
    whole[19 * 700 + 13] ^= 1  # a payload that no sample covers
    data.write_bytes(whole)
    assert len(load_index(sidecar_path(data), data)) == 3000
    with pytest.raises(ChecksumError) as caught:
        check_index(data)
    assert (caught.value.record, caught.value.offset) == (700, 19 * 700)


def test_check_finds_records_that_moved(make_file: Any) -> None:
    head, tail = [b"h" * 40] * 60, [b"t" * 40] * 60
    data = make_file([*head, b"aaa", b"", *tail])
    build_index(data, data.parent / "i", format="text")
    build_index(data)
    data.write_bytes(b"".join(map(frame_record, [*head, b"", b"aaa", *tail])))
    for index in (data.parent / "i", None):
        with pytest.raises(IndexFileError, match="record 60 is elsewhere|content differs"):
            check_index(data, index)


# ---- as it is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_index_writer(compression: str, make_file: Any) -> None:
    data = make_file(PAYLOADS, "a.tfrecord", compression)
    writer = IndexWriter()
    writer.add(5)
    writer.add_many([0])
    writer.add_many(np.array([3, 300], np.int64))
    assert len(writer) == 4
    index = writer.commit(data, compression=compression, metadata={"m": 1}, columns={"c": np.arange(4)})
    built = build_index(data, data.parent / "i")
    assert index.offsets.tolist() == built.offsets.tolist()
    assert index.fingerprint == built.fingerprint
    loaded = check_index(data)
    assert loaded.metadata == {"m": 1} and loaded.columns["c"].tolist() == [0, 1, 2, 3]


def test_index_writer_notices_other_bytes(make_file: Any, tmp_path: Path) -> None:
    data = make_file(PAYLOADS)
    writer = IndexWriter()
    writer.add_many([5, 0, 3, 299])
    with pytest.raises(IndexFileError, match="372 bytes"):
        writer.commit(data)
    assert len(writer) == 4 and os.listdir(tmp_path) == ["a.tfrecord"]


# ---- other data, and other times --------------------------------------------------------------------


def test_a_stale_index_is_never_used(make_file: Any) -> None:
    data = make_file(PAYLOADS)
    build_index(data)
    make_file(PAYLOADS[:2])
    with pytest.raises(StaleIndexError):
        check_index(data)


@pytest.mark.parametrize("verify", [0, 1])
def test_a_header_scan_without_a_map(verify: int, make_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_HOP", 64)
    sizes = [0, 5, 100, 30, 31, 32, 33, 47, 48, 49, 1000, 0, 0, 64, 3]
    data = make_file([b"h" * size for size in sizes])
    with open_data(data, mmap=False) as opened:
        index = scan_index(opened, verify=verify)
    assert index.lengths.tolist() == sizes
    assert index.offsets.tolist() == np.cumsum([0] + [size + 16 for size in sizes])[:-1].tolist()
    whole = data.read_bytes()
    starts = [*index.offsets.tolist(), len(whole)]
    for cut in range(len(whole)):
        record = max(place for place, start in enumerate(starts) if start <= cut)
        left = cut - starts[record]
        if not left:
            continue
        with pytest.raises(TruncatedRecordError) as caught:
            scan_index(io.BytesIO(whole[:cut]), verify=verify)
        reason = "truncated_header" if left < 12 else "truncated_record"
        assert (caught.value.record, caught.value.offset) == (record, starts[record])
        assert caught.value.reason == reason
    for record in (2, 10) if verify else ():
        damaged = bytearray(whole)
        damaged[starts[record] + 1] ^= 1
        with pytest.raises(ChecksumError) as wrong:
            scan_index(io.BytesIO(damaged), verify=verify)
        assert (wrong.value.record, wrong.value.offset) == (record, starts[record])


def test_compressed_objects(make_file: Any) -> None:
    data = make_file(PAYLOADS, "a.gz", "gzip")
    index = scan_index(io.BytesIO(data.read_bytes()), verify=VERIFY_ALL)
    assert index.lengths.tolist() == [5, 0, 3, 300] and index.compression == "gzip"
    with open_data(data) as opened:
        assert len(scan_index(opened)) == 4


def test_data_behind_a_url(make_file: Any, tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    url = "memory://build-test/a.tfrecord"
    memory.pipe("/build-test/a.tfrecord", make_file(PAYLOADS).read_bytes())
    with pytest.raises(ValueError, match="end in .tfindex"):
        build_index(url, "memory://build-test/other")
    assert len(build_index(url, tmp_path / "i")) == 4
    assert load_index(tmp_path / "i", url).path == url
    assert find_index(url) is None
    memory.pipe("/build-test/a.tfrecord.tfindex", (tmp_path / "i").read_bytes())
    assert find_index(url) == url + ".tfindex"
    assert load_index(url + ".tfindex", url).lengths.tolist() == [5, 0, 3, 300]
    assert scan_index(url).lengths.tolist() == [5, 0, 3, 300]
    memory.rm("/build-test/a.tfrecord.tfindex")
    assert build_index(url).index_path == url + ".tfindex" == find_index(url)
    assert load_index(url + ".tfindex", url).lengths.tolist() == [5, 0, 3, 300]


@pytest.mark.skipif(not os.path.isfile("/proc/self/status"), reason="there is no /proc")
def test_a_file_that_has_bytes_but_no_size(make_file: Any, tmp_path: Path) -> None:
    """Files of /proc say that they have none; an index of no records would deny what reading gives."""
    for call in (
        lambda: build_index("/proc/self/status", tmp_path / "i"),
        lambda: scan_index("/proc/self/status"),
    ):
        with pytest.raises(OSError, match="its size is 0") as caught:
            call()
        assert caught.value.filename == "/proc/self/status"
    assert not (tmp_path / "i").exists()
    assert len(build_index(make_file([]))) == 0  # an empty file has no records
