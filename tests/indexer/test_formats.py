from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from collected import PAYLOADS

from indexer import textindex
from indexer.build import build_index
from indexer.errors import IndexFileError, StaleIndexError
from indexer.files import open_data
from indexer.formats import load_index, write_text_index
from indexer.framing import frame_record
from indexer.index import RecordIndex


def same(one: RecordIndex, other: RecordIndex) -> bool:
    pairs = ((one.offsets, other.offsets), (one.lengths, other.lengths))
    return all(a.tolist() == b.tolist() for a, b in pairs)


# ---- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 5000])
@pytest.mark.parametrize("format", ["extended", "text"])
def test_round_trips(count: int, format: Any, make_file: Any, tmp_path: Path) -> None:
    path = make_file([b"%d" % number for number in range(count)])
    built = build_index(path, tmp_path / "i", format=format)
    for data_path in (None, path):
        loaded = load_index(tmp_path / "i", data_path)
        assert same(loaded, built) and len(loaded) == count
        assert loaded.format == format and loaded.index_path == str(tmp_path / "i")
        assert loaded.path == (None if data_path is None else str(path))
        assert loaded.file_size == loaded.stream_size == path.stat().st_size
        loaded.check_all()
        assert not loaded.offsets.flags.writeable


def test_text_is_byte_for_byte_that_of_the_lineage(data: Path, tmp_path: Path) -> None:
    build_index(data, tmp_path / "i", format="text")
    assert (tmp_path / "i").read_bytes() == b"0 21\n21 16\n37 19\n56 316\n"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_file_is_marked(compression: str, make_file: Any, tmp_path: Path) -> None:
    path = make_file(PAYLOADS, "a.tfrecord.x", compression)
    build_index(path, tmp_path / "i")
    loaded = load_index(tmp_path / "i", path)
    assert loaded.compression == compression
    assert loaded.offsets.tolist() == [0, 21, 37, 56]
    assert (loaded.file_size, loaded.stream_size) == (path.stat().st_size, 372)
    with pytest.raises(ValueError, match="text format"):
        write_text_index(io.BytesIO(), loaded)
    (tmp_path / "t").write_bytes(b"0 21\n21 16\n37 19\n56 316\n")
    with pytest.raises(IndexFileError, match="compressed"):
        load_index(tmp_path / "t", path)


# ---- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"0 21\r\n21 16\r\n37 19\r\n56 316\r\n",
        b"0 21\n21 16\n37 19\n56 316",
        b"0 21 \n21 16\t\n37  19\n 56 316  \n\n\n",
        b"0\t21\n\n21 16\n37 19\n056 0316\n",
    ],
)
def test_text_that_may_be_read(text: bytes, data: Path, tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(text)
    assert load_index(tmp_path / "i", data).lengths.tolist() == [5, 0, 3, 300]
    assert load_index(tmp_path / "i").offsets.tolist() == [0, 21, 37, 56]


BAD_TEXT = [
    (b"0 21\n21 16\n37 19\n56 three\n", "line 4 is not"),
    (b"0 21\n21 -16\n", "line 2 is not"),
    (b"0 +21\n", "line 1 is not"),
    (b"0 2e1\n", "line 1 is not"),
    (b"0\n21 16\n", "line 1 is not"),
    (b"0 21 5\n", "line 1 is not"),
    (b"0 21\x00\n", "line 1 is not"),
    (b"0 21\r21 16\n", "line 1 is not"),
    ("0 ２１\n".encode(), "line 1 is not"),
    (b"0 18446744073709551616\n", "line 1 is not"),
    (b"0 99999999999999999999999999\n", "line 1 is not"),
    (b"0 18446744073709551615\n", "entry 0 "),
    (b"0 21\n21 18446744073709551600\n", "entry 1 "),
    (b"0 21\n21 15\n", "entry 1 "),
    (b"16 21\n", "entry 0 "),
    (b"0 21\n37 19\n56 316\n", "entry 1 "),
    (b"0 21\n21 16\n21 16\n37 19\n", "entry 2 "),
    (b"21 16\n0 21\n37 19\n", "entry 0 "),
    (b"0 21\n20 16\n", "entry 1 "),
]


@pytest.mark.parametrize(("text", "words"), BAD_TEXT)
def test_text_that_is_refused(text: bytes, words: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(text)
    for data_path in (None, data):
        with pytest.raises(IndexFileError, match=words) as caught:
            load_index(tmp_path / "i", data_path)
        assert caught.value.index_path == str(tmp_path / "i")
        assert "Rebuild it: tfrecord" in str(caught.value)


@pytest.mark.parametrize("text", [b"0 21\n21 16\n37 19\n", b"", b"0 21\n21 16\n37 19\n56 317\n", b"0 372\n"])
def test_text_of_another_file(text: bytes, data: Path, tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(text)
    with pytest.raises(StaleIndexError) as caught:
        load_index(tmp_path / "i", data)
    assert (caught.value.path, caught.value.index_path) == (str(data), str(tmp_path / "i"))


def test_text_much_longer_than_its_data(data: Path, tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(b"\n" * 5000)
    with pytest.raises(IndexFileError, match="longer than any index"):
        load_index(tmp_path / "i", data)


def test_an_index_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "i").touch()
    assert len(load_index(tmp_path / "i", tmp_path / "empty")) == 0
    (tmp_path / "i").write_bytes(b"\n")
    assert len(load_index(tmp_path / "i", tmp_path / "empty")) == 0


# ---- staleness -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["extended", "text"])
def test_changes_of_the_data(format: Any, data: Path, tmp_path: Path) -> None:
    place = tmp_path / "i"
    build_index(data, place, format=format)
    whole = data.read_bytes()
    os.utime(data, (1, 1))
    assert len(load_index(place, data)) == 4  # a new time alone is no change
    other_last = whole[: 372 - 316] + frame_record(b"z" * 100) + frame_record(b"q" * 184)
    others = [
        whole + frame_record(b"more"),
        whole[:-316],
        b"",
        frame_record(b"four.") + whole[21:-1],
        other_last,
    ]
    assert len(others[-1]) == len(whole)
    for other in others:
        data.write_bytes(other)
        with pytest.raises(StaleIndexError) as caught:
            load_index(place, data)
        assert (caught.value.path, caught.value.index_path) == (str(data), str(place))
    data.write_bytes(whole)
    assert len(load_index(place, data)) == 4


def test_another_file_of_the_same_sizes_is_told_apart(data: Path, stored: Path) -> None:
    data.write_bytes(b"".join(map(frame_record, [b"ALPHA", *PAYLOADS[1:]])))
    with pytest.raises(StaleIndexError, match="content differs"):
        load_index(stored, data)


def test_an_opened_file_may_be_given(data: Path, stored: Path) -> None:
    with open_data(data) as opened:
        assert len(load_index(stored, opened)) == 4
        assert bytes(opened.view(0, 1)) == b"\x05"


def test_missing_files(data: Path, stored: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_index(tmp_path / "absent", data)
    with pytest.raises(FileNotFoundError):
        load_index(stored, tmp_path / "absent")


@pytest.mark.parametrize("count", [2, 3, 10, 1000])
@pytest.mark.parametrize("part", ["payload", "footer", "header"])
def test_one_damaged_record_leaves_the_index_in_use(tmp_path: Path, count: int, part: str) -> None:
    payloads = [b"%08d" % i for i in range(count)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(frame_record, payloads)))
    build_index(path)
    good = path.read_bytes()
    for record in {0, count // 2, count - 1}:
        damaged = bytearray(good)
        damaged[record * 24 + {"header": 3, "payload": 13, "footer": 22}[part]] ^= 1
        path.write_bytes(damaged)
        assert len(load_index(str(path) + ".tfindex", path)) == count


@pytest.mark.parametrize("count", [1, 2, 3, 10, 1000])
def test_another_file_of_the_same_shape_is_told_apart(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame_record(b"%08d" % i) for i in range(count)))
    build_index(path)
    path.write_bytes(b"".join(frame_record(b"%08d" % (i + 7)) for i in range(count)))
    with pytest.raises(StaleIndexError, match="content differs") as caught:
        load_index(str(path) + ".tfindex", path)
    assert caught.value.path == str(path)


def test_the_index_of_a_data_file(data: Path, make_file: Any) -> None:
    for path in (data, make_file(PAYLOADS, "b.tfrecord.gz", "gzip")):
        with pytest.raises(IndexFileError, match="data, not an index") as caught:
            load_index(path)
        assert caught.value.path == str(path)
        build_index(path)
        index = load_index(path)
        assert (index.path, index.index_path, len(index)) == (str(path), f"{path}.tfindex", 4)


def test_text_is_written_in_blocks(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textindex, "_BLOCK", 3)
    build_index(data, tmp_path / "i", format="text")
    assert (tmp_path / "i").read_bytes() == b"0 21\n21 16\n37 19\n56 316\n"


def test_a_large_file_that_is_no_index_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.write(b"\x7fELF")
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(IndexFileError, match="line 1 is not 'offset size'") as caught:
            load_index(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert caught.value.index_path == str(path)
    # A large index is read all the same.
    lines = "".join(f"{number * 16} 16\n" for number in range(40_000))
    path.write_text(lines)
    assert len(load_index(path)) == 40_000
