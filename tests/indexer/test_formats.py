from __future__ import annotations

import io
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from indexer import textindex
from indexer.build import build_index, scan_index
from indexer.errors import IndexFileError, StaleIndexError
from indexer.files import open_data
from indexer.formats import MAGIC, load_index, verify_arrays, write_index, write_text_index
from indexer.framing import VERIFY_ALL, crc32c, frame_record
from indexer.index import RecordIndex

PAYLOADS = [b"alpha", b"", b"xyz", b"y" * 300]


def extended(index: RecordIndex) -> bytes:
    file = io.BytesIO()
    write_index(file, index)
    return file.getvalue()


@pytest.fixture
def data(make_file: Any) -> Path:
    path: Path = make_file(PAYLOADS)
    return path


@pytest.fixture
def stored(data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "stored.tfindex"
    build_index(data, path)
    return path


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


def test_extended_keeps_all_it_was_given(data: Path, tmp_path: Path) -> None:
    index = scan_index(data, verify=VERIFY_ALL).replace(
        metadata={"record_type": "example", "schema": {"label": ["int64", 4, 1, 1, None]}},
        columns={
            "label": np.array([3, -1, 2**62, 0]),
            "weight": np.array([0.5, np.nan, -np.inf, 1], "f4"),
            "flag": np.array([True, False, True, True]),
            "name": np.array([b"a", b"bcd", b"", b"\xff"]),
            "box": np.arange(8, dtype=">i2").reshape(4, 2),
        },
    )
    (tmp_path / "i").write_bytes(extended(index))
    loaded = load_index(tmp_path / "i", data)
    assert same(loaded, index)
    assert loaded.metadata == index.metadata
    assert list(loaded.columns) == list(index.columns)
    for name, column in index.columns.items():
        np.testing.assert_array_equal(loaded.columns[name], column)
    assert loaded.columns["box"].dtype == np.dtype("<i2")
    assert (loaded.fingerprint, loaded.mtime_ns) == (index.fingerprint, index.mtime_ns)
    verify_arrays(tmp_path / "i")


def test_arrays_are_aligned_and_little_endian(stored: Path) -> None:
    content = stored.read_bytes()
    magic, version, length, checksum, zero = struct.unpack_from("<8s4I", content)
    assert (magic, version, zero) == (b"TFRINDEX", 1, 0)
    header = content[24 : 24 + length]
    assert crc32c(header) == checksum
    table = msgpack.unpackb(header)["arrays"]
    assert [entry[:3] for entry in table] == [["", "<u8", [4]], ["", "<u8", [4]]]
    assert all(entry[3] % 64 == 0 for entry in table)
    assert struct.unpack_from("<4Q", content, table[0][3]) == (0, 21, 37, 56)
    assert struct.unpack_from("<4Q", content, table[1][3]) == (5, 0, 3, 300)
    assert len(content) == table[1][3] + 32


def test_arrays_are_views_that_outlive_the_file(stored: Path) -> None:
    index = load_index(stored)
    assert index.offsets.base is not None
    stored.unlink()
    assert index.offsets.tolist() == [0, 21, 37, 56]


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


def test_columns_that_no_index_can_keep(data: Path) -> None:
    index = scan_index(data)
    for column in (np.array(["a"] * 4, object), np.array(["a"] * 4), np.array([1j] * 4)):
        with pytest.raises(ValueError, match="column 'c'"):
            extended(index.replace(columns={"c": column}))


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


# ---- hostile ---------------------------------------------------------------------------------------


def packed(fields: dict[str, Any] | bytes, rest: bytes = b"", **changes: Any) -> bytes:
    header = fields if isinstance(fields, bytes) else msgpack.packb({**fields, **changes})
    prefix = struct.pack("<8s4I", b"TFRINDEX", 1, len(header), crc32c(header), 0)
    return prefix + header + rest


def fields_of(content: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgpack.unpackb(content[24 : 24 + struct.unpack_from("<I", content, 12)[0]])
    return fields


def test_every_cut_and_every_flipped_byte(data: Path, stored: Path) -> None:
    content = stored.read_bytes()
    for cut in range(1, len(content)):
        stored.write_bytes(content[:cut])
        with pytest.raises(IndexFileError):
            load_index(stored, data)
    arrays = fields_of(content)["arrays"]
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x20
        stored.write_bytes(damaged)
        try:
            index = load_index(stored, data)
            verify_arrays(stored)
        except IndexFileError:
            continue
        assert all(place < at or place >= at + 32 for _, _, _, at, _ in arrays), place
        assert index.offsets.tolist() == [0, 21, 37, 56]  # only padding was hit


def test_a_flipped_bit_of_an_array_is_noticed_when_it_is_used(make_file: Any, tmp_path: Path) -> None:
    data, stored = make_file([b"payload"] * 9), tmp_path / "i"
    build_index(data, stored)
    content = bytearray(stored.read_bytes())
    at = fields_of(bytes(content))["arrays"][0][3]
    content[at + 4 * 8] ^= 1
    stored.write_bytes(content)
    index = load_index(stored, data)
    index.entry(2)
    for position in (3, 4, 5):
        with pytest.raises(IndexFileError, match=f"entry {position} "):
            index.entry(position)
    with pytest.raises(IndexFileError, match="checksum of its offsets"):
        verify_arrays(stored)


def hostile(good: dict[str, Any]) -> list[tuple[str, bytes]]:
    arrays = good["arrays"]

    def array(**changes: Any) -> list[Any]:
        names = ["name", "type", "shape", "at", "checksum"]
        entry = dict(zip(names, arrays[0], strict=True))
        entry.update(changes)
        return [list(entry.values()), *arrays[1:]]

    deep = b"\x91" * 5000 + b"\x90"
    return [
        ("count", packed(good, num_records=2**63)),
        ("count zero", packed(good, num_records=0)),
        ("count negative", packed(good, num_records=-1)),
        ("count float", packed(good, num_records=4.0)),
        ("count bool", packed(good, num_records=True)),
        ("stream size", packed(good, stream_size=2**64 - 1)),
        ("file size", packed(good, file_size=-5)),
        ("index size", packed(good, index_size=10**15)),
        ("compression", packed(good, compression="lzma")),
        ("compression list", packed(good, compression=[1])),
        ("metadata", packed(good, metadata=3)),
        ("mtime", packed(good, mtime_ns="now")),
        ("fingerprint", packed(good, fingerprint=-1)),
        ("no arrays", packed(good, arrays=[])),
        ("arrays number", packed(good, arrays=7)),
        ("array short", packed(good, arrays=[[], []])),
        ("array shape", packed(good, arrays=array(shape=[2**62]))),
        ("array shape product", packed(good, arrays=array(shape=[2**40, 2**40, 0]))),
        ("array shape negative", packed(good, arrays=array(shape=[-4]))),
        ("array shapes", packed(good, arrays=array(shape=[4] + [1] * 40))),
        ("array at", packed(good, arrays=array(at=2**62))),
        ("array at negative", packed(good, arrays=array(at=-64))),
        ("array at odd", packed(good, arrays=array(at=arrays[0][3] + 1))),
        ("array object", packed(good, arrays=array(type="|O"))),
        ("array void", packed(good, arrays=array(type="|V8"))),
        ("array of another type", packed(good, arrays=array(type="<i8"))),
        ("array huge items", packed(good, arrays=array(type="|S999999999"))),
        ("array name", packed(good, arrays=array(name=b"x"))),
        ("no map", packed(msgpack.packb([1, 2]))),
        ("map of keys", packed(msgpack.packb({"a": 1}))),
        ("deep", packed(deep)),
        ("bomb of an array", packed(b"\xdd\xff\xff\xff\xff")),
        ("bomb of a map", packed(b"\xdf\xff\xff\xff\xff")),
        ("bomb of bytes", packed(b"\xc6\xff\xff\xff\xff")),
        ("bad msgpack", packed(b"\xc1")),
        ("extra", packed(msgpack.packb(good) + b"\x00")),
        ("empty header", packed(b"")),
        ("version", b"TFRINDEX" + struct.pack("<4I", 2, 0, 0, 0)),
        ("long header", b"TFRINDEX" + struct.pack("<4I", 1, 2**32 - 1, 0, 0)),
        ("magic only", b"TFRINDEX"),
        ("half a magic", b"TFRI"),
    ]


def test_hostile_headers(data: Path, stored: Path) -> None:
    content = stored.read_bytes()
    good = fields_of(content)
    rest = content[24 + struct.unpack_from("<I", content, 12)[0] :]
    cases = hostile(good)
    assert len(cases) > 35
    for name, case in cases:
        for tail in (b"", rest):
            stored.write_bytes(case + tail)
            with pytest.raises(IndexFileError) as caught:
                load_index(stored, data)
            assert caught.value.index_path == str(stored), name
            assert "Rebuild it: tfrecord" in str(caught.value)


def test_nothing_large_is_allocated_for_a_hostile_index(data: Path, stored: Path) -> None:
    import tracemalloc

    cases = hostile(fields_of(stored.read_bytes()))
    tracemalloc.start()
    for _, case in cases:
        stored.write_bytes(case)
        with pytest.raises(IndexFileError):
            load_index(stored, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


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


def test_a_header_of_very_many_parts_takes_little(tmp_path: Path) -> None:
    """Each of these would take sixty times its size."""
    path = tmp_path / "i"
    count = 4 << 20
    inner = b"\xdd" + struct.pack(">I", 1 << 15) + b"\x90" * (1 << 15)
    for header in (
        b"\xdd" + struct.pack(">I", count) + b"\x90" * count,
        b"\xdd" + struct.pack(">I", 128) + inner * 128,
        b"\xdd" + struct.pack(">I", 128) + inner.replace(b"\x90", b"\x80") * 128,
        b"\x80" * 2,
    ):
        path.write_bytes(struct.pack("<8s4I", MAGIC, 1, len(header), crc32c(header), 0) + header)
        tracemalloc.start()
        try:
            with pytest.raises(IndexFileError, match="header is not valid"):
                load_index(path)
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
        finally:
            tracemalloc.stop()


def test_metadata_that_no_header_can_hold() -> None:
    file = io.BytesIO()
    with pytest.raises(ValueError, match="an index holds at most"):
        write_index(file, RecordIndex([], [], metadata={"x": "y" * (17 << 20)}))
    assert not file.getvalue()


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
