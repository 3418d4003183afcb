from __future__ import annotations

import io
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from collected import PAYLOADS

from indexer.build import build_index, scan_index
from indexer.errors import IndexFileError, StaleIndexError
from indexer.formats import MAGIC, load_index, load_summary, verify_arrays, write_index
from indexer.framing import VERIFY_ALL, crc32c
from indexer.index import RecordIndex


def extended(index: RecordIndex) -> bytes:
    file = io.BytesIO()
    write_index(file, index)
    return file.getvalue()


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
    assert loaded.offsets.tolist() == index.offsets.tolist()
    assert loaded.lengths.tolist() == index.lengths.tolist()
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


def test_columns_that_no_index_can_keep(data: Path) -> None:
    index = scan_index(data)
    for column in (np.array(["a"] * 4, object), np.array(["a"] * 4), np.array([1j] * 4)):
        with pytest.raises(ValueError, match="column 'c'"):
            extended(index.replace(columns={"c": column}))


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
    cases = hostile(fields_of(stored.read_bytes()))
    tracemalloc.start()
    for _, case in cases:
        stored.write_bytes(case)
        with pytest.raises(IndexFileError):
            load_index(stored, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


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


# ---- summaries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_a_summary_says_what_the_index_says(compression: str, make_file: Any, tmp_path: Path) -> None:
    data, place = make_file(PAYLOADS, "a.tfrecord.x", compression), str(tmp_path / "i")
    index = build_index(data, place).replace(metadata={"record_type": "bytes", "long": "x" * 50})
    Path(place).write_bytes(extended(index))
    found, whole = load_summary(place, str(data)), load_index(place, data)
    assert found is not None and len(found) == len(whole) == 4
    for name in ("path", "index_path", "file_size", "stream_size", "compression", "metadata"):
        assert getattr(found, name) == getattr(whole, name)
    with open(data, "ab") as file:
        file.write(b"more")
    with pytest.raises(StaleIndexError, match=r"the data has \d+ bytes, the index is for"):
        load_summary(place, str(data))


def test_what_has_no_summary(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "i"
    build_index(data, place, format="text")
    assert load_summary(str(place), str(data)) is None
    index = scan_index(data)
    place.write_bytes(extended(index.replace(metadata={"long": "x" * 40_000})))
    assert load_summary(str(place), str(data)) is None
    assert load_index(place, data).metadata == {"long": "x" * 40_000}


def test_a_damaged_header_gives_no_summary(data: Path, stored: Path) -> None:
    """What a summary is given for, an index is loaded from too, except for what its arrays are."""
    content = stored.read_bytes()
    end = 24 + struct.unpack_from("<I", content, 12)[0]
    damaged = [content[:cut] for cut in range(len(MAGIC), len(content))]
    damaged += [
        content[:place] + bytes([content[place] ^ 0x20]) + content[place + 1 :] for place in range(8, end)
    ]
    for case in [*damaged, *(case for name, case in hostile(fields_of(content)) if name != "half a magic")]:
        stored.write_bytes(case)
        with pytest.raises(IndexFileError):
            load_summary(str(stored), str(data))
    stored.write_bytes(
        packed(fields_of(content), num_records=20, arrays=[], index_size=250).ljust(250, b"\0")
    )
    with pytest.raises(IndexFileError, match="more records than the arrays have room for"):
        load_summary(str(stored), str(data))
