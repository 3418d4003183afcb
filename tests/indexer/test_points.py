from __future__ import annotations

import gzip
import io
import pickle
import random
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from compressed import PACKERS, framed, payloads, text

from indexer import inflaters
from indexer.build import build_index, check_index
from indexer.build_many import build_indexes
from indexer.errors import CompressionError, IndexFileError
from indexer.formats import load_index, verify_arrays, write_index
from indexer.framing import crc32c, frame_record
from indexer.inputstream import InputStream, open_stream
from indexer.points import _TABLE, SPACING, PointBuilder, Points

needs_zlib = pytest.mark.skipif(not inflaters.finds_blocks(), reason="there is no zlib library here")
pytestmark = needs_zlib


def points_of(stored: bytes) -> tuple[Points, bytes]:
    """The points of a stream, and its content."""
    builder = PointBuilder(len(stored))
    content = open_stream(io.BytesIO(stored), points=builder).read()
    found = builder.finish(len(stored), len(content))
    found.check_all()
    return found, content


def stream_at(stored: bytes, points: Points, number: int, kind: str) -> InputStream:
    point = points[number]
    file = io.BytesIO(stored[point.bit // 8 :])
    return InputStream(file, "x", kind, owned=False, point=point)


@pytest.fixture(params=["zlib", "isal"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr("indexer.inputstream.fast_zlib", lambda: None)
    return str(request.param)


@pytest.mark.parametrize("packer", PACKERS)
def test_every_point_leads_to_the_same_content(packer: str, engine: str) -> None:
    rng = random.Random(packer)
    data = framed(payloads(rng, 4 << 20))
    stored = PACKERS[packer](data, rng)
    points, content = points_of(stored)
    assert content == data
    # Level 0 has blocks of 32 KiB; other blocks end more rarely than points are wanted only in tiny files.
    assert len(points) > 2
    assert (points.outs[1:] - points.outs[:-1]).min() >= SPACING // 2
    assert (points.outs[1:] - points.outs[:-1]).max() < 4 * SPACING
    kind = "zlib" if packer == "zlib" else "gzip"
    for number in range(len(points)):
        out = int(points.outs[number])
        assert points.before(out) == number
        stream = stream_at(stored, points, number, kind)
        assert stream.position == out
        size = len(data) if number in (1, len(points) - 2) else 100_000
        assert stream.read(size) == data[out : out + size]


@pytest.mark.parametrize("shift", range(8))
def test_a_stream_may_begin_with_any_bit_of_a_byte(shift: int, engine: str) -> None:
    data = text(random.Random(1), 50_000)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = packer.compress(data) + packer.flush()
    moved = (int.from_bytes(body, "little") << shift | (1 << shift) - 1).to_bytes(len(body) + 1, "little")
    kind: Any = inflaters.FastInflater if engine == "isal" else inflaters.ZlibInflater
    inflater = kind(inflaters.RAW)
    inflater.feed(inflaters.shifted(moved, shift))
    assert inflater.read(1 << 20) == data
    assert inflater.read(1) == b"" and inflater.eof


def test_the_writers_flushes_need_no_windows() -> None:
    data = text(random.Random(2), 8 << 20)
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    step = SPACING * 7 // 8
    stored = (
        b"".join(
            packer.compress(data[at : at + step]) + packer.flush(zlib.Z_FULL_FLUSH)
            for at in range(0, len(data), step)
        )
        + packer.flush()
    )
    points, _ = points_of(stored)
    without = [not points[number].window for number in range(len(points))]
    assert len(without) >= 8 and sum(without) > len(without) - 3
    assert len(points.stored) < 80_000


def test_a_hundred_thousand_members_have_few_points() -> None:
    piece = gzip.compress(b"0123456789", 1)
    points, content = points_of(piece * 100_000)
    assert content == b"0123456789" * 100_000
    assert len(points) <= 2
    data = b"0123456789" * 30
    stored = gzip.compress(data, 1) * 20_000
    points, content = points_of(stored)
    assert 4 <= len(points) <= 12
    assert stream_at(stored, points, 3, "gzip").read(300) == data


def test_members_without_content_have_no_points_of_their_own() -> None:
    empty = gzip.compress(b"")
    points, content = points_of(empty * 3 + gzip.compress(b"abc") + empty)
    assert content == b"abc" and len(points) == 1


def test_a_stream_that_swells_costs_little() -> None:
    """A gigabyte of zeros in a megabyte."""
    size, zeros, crc = 1 << 30, bytes(1 << 20), 0
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first, more = (packer.compress(zeros) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(2))
    times = size // len(zeros)
    for _ in range(times):
        crc = zlib.crc32(zeros, crc)
    body = first + more * (times - 1) + packer.flush()
    stored = b"\x1f\x8b\x08" + bytes(7) + body + struct.pack("<II", crc, size)
    assert len(stored) < 1_100_000
    tracemalloc.start()
    points = PointBuilder(len(stored))
    with open_stream(io.BytesIO(stored), points=points) as stream:
        assert stream.skip(size + 1) == size
    found = points.finish(len(stored), size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) > 200
    assert peak < 6 << 20
    assert stream_at(stored, found, 150, "gzip").skip(100) == 100
    assert len(found.stored) < len(stored) // 10 + (1 << 20)


def test_points_never_take_more_than_a_tenth_and_a_mebibyte() -> None:
    builder = PointBuilder(1 << 20)
    rng = random.Random(3)
    for number in range(300):
        window = rng.randbytes(32 << 10) if number else b""
        builder.add(number * 80_000, number * SPACING, window, inside=bool(number))
    found = builder.finish(300 * 10_000, 300 * SPACING)
    assert 10 < len(found) < 40
    assert len(found.stored) <= (1 << 20) // 10 + (1 << 20)
    assert found.outs[0] == 0


def test_blocks_of_a_few_bits_do_not_stop_the_inflater_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    stored = packer.compress(bytes(700_000)) + packer.flush(zlib.Z_SYNC_FLUSH)
    stored += b"\0\0\0\xff\xff" * 50_000 + packer.compress(bytes(4 << 20)) + packer.flush()
    told: list[int] = []
    tell = inflaters.BlockInflater._tell
    monkeypatch.setattr(
        inflaters.BlockInflater, "_tell", lambda self, state, out: (told.append(out), tell(self, state, out))
    )
    points, content = points_of(stored)
    assert len(content) == 700_000 + (4 << 20)
    assert len(told) < 1000


# ---- in index files ------------------------------------------------------------------------------------


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    rng = random.Random(4)
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(framed(payloads(rng, 4 << 20)), 6))
    return path


def test_an_index_file_holds_them(packed: Path) -> None:
    built = build_index(packed)
    loaded = load_index(f"{packed}.tfindex", packed)
    assert built.points is not None and loaded.points is not None
    assert bytes(loaded.points.stored) == bytes(built.points.stored)
    assert len(loaded.points) == len(built.points) > 2
    again = pickle.loads(pickle.dumps(loaded))
    assert [again.points[n] for n in range(len(again.points))] == [
        loaded.points[n] for n in range(len(loaded.points))
    ]
    check_index(packed)
    verify_arrays(f"{packed}.tfindex")


def test_an_index_without_points_is_not_fresh(packed: Path) -> None:
    index = build_index(packed).replace(points=None)
    with open(f"{packed}.tfindex", "wb") as file:
        write_index(file, index)
    assert load_index(f"{packed}.tfindex", packed).points is None
    assert [result.status for result in build_indexes(packed)] == ["built"]
    assert [result.status for result in build_indexes(packed)] == ["fresh"]


def test_plain_files_have_none(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame_record(b"abc"))
    assert build_index(path).points is None
    assert b"sections" not in (tmp_path / "a.tfrecord.tfindex").read_bytes()


def test_without_the_library_an_index_says_that_it_has_none(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflaters, "_libz", lambda: None)
    with pytest.warns(UserWarning, match="no zlib library was found, so the index has no points"):
        assert build_index(packed).points is None
    assert [result.status for result in build_indexes(packed)] == ["fresh"]


def test_damage_in_the_section_is_found(packed: Path) -> None:
    index = build_index(packed)
    path = Path(f"{packed}.tfindex")
    stored = path.read_bytes()
    assert index.points is not None
    section = bytes(index.points.stored)
    start = stored.index(section)
    count = len(index.points)
    for place in [0, 4, 8, 16, 16 + 24 * count - 1, 16 + 24 * count + 5, len(section) - 1]:
        damaged = bytearray(stored)
        damaged[start + place] ^= 1
        path.write_bytes(damaged)
        loaded = load_index(path, packed)  # opening does not read it all
        with pytest.raises(IndexFileError, match="points"):
            verify_arrays(path)
        with pytest.raises(IndexFileError, match=r"point.*damaged.*tfrecord index"):
            assert loaded.points is not None
            loaded.points.check_all()


def with_table(points: Points, change: Any) -> bytes:
    """The section with another table, and the right checksum of it."""
    stored = bytes(points.stored)
    count = len(points)
    table = np.frombuffer(stored[16 : 16 + 24 * count], _TABLE).copy()
    change(table)
    raw = table.tobytes()
    return struct.pack("<IIQ", 1, crc32c(raw), count) + raw + stored[16 + 24 * count :]


def _set(name: str, row: int, value: int) -> Any:
    def change(table: Any) -> None:
        table[name][row] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_set("bit", 0, 8), id="does not start at 0"),
        pytest.param(_set("out", 0, 1), id="starts late"),
        pytest.param(_set("out", 2, 1), id="goes back"),
        pytest.param(_set("bit", 2, 1), id="goes back in the file"),
        pytest.param(_set("out", -1, 1 << 63), id="outside the content"),
        pytest.param(_set("bit", -1, 1 << 63), id="outside the file"),
        pytest.param(_set("window", 1, 1), id="windows of another size"),
        pytest.param(_set("window", 1, 0xFFFFFFFF), id="a huge window"),
        pytest.param(_set("inside", 1, 2), id="of an unknown kind"),
        pytest.param(_set("inside", 1, 0), id="a start with a window"),
        pytest.param(_set("inside", 0, 1), id="no start"),
    ],
)
def test_hostile_tables_are_refused(packed: Path, change: Any) -> None:
    index = build_index(packed)
    assert index.points is not None
    sizes = index.file_size, index.stream_size
    assert len(Points(with_table(index.points, lambda table: None), *sizes)) > 3
    with pytest.raises(IndexFileError, match="points are damaged"):
        len(Points(with_table(index.points, change), *sizes))


def test_a_stream_of_an_impossible_size_is_refused(packed: Path) -> None:
    index = build_index(packed)
    assert index.points is not None
    with pytest.raises(IndexFileError, match="points are damaged"):
        len(Points(index.points.stored, index.file_size, 1 << 63))


def test_a_window_that_swells_is_refused() -> None:
    builder = PointBuilder(None)
    builder.add(0, 0, inside=False)
    builder.add(800, 2 * SPACING, bytes(1 << 20), inside=True)
    found = builder.finish(1000, 3 * SPACING)
    with pytest.raises(IndexFileError, match="window"):
        found[1]


@pytest.mark.parametrize(
    "section",
    [
        ["sections", 3],
        {"points": [1, 2]},
        {"points": [0, -1, 0]},
        {"points": [64, 1 << 62, 0]},
        {"points": [1 << 62, 1, 0]},
        {"points": [3, 1, 0]},
        {"points": ["a", 1, 0]},
        {"points": [0, True, 0]},
    ],
    ids=repr,
)
def test_hostile_places_of_sections_are_refused(section: Any, tmp_path: Path) -> None:
    target = tmp_path / "hostile.tfindex"

    def write(fields: dict[str, Any]) -> None:
        at = 1024
        known = {
            **{"num_records": 0, "file_size": 10, "stream_size": 0, "mtime_ns": None, "compression": "gzip"},
            **{"fingerprint": None, "metadata": {}, "digest": None, "settled": False, "masked": []},
            "arrays": [["", "<u8", [0], at, 0]] * 2,
            "index_size": at,
        }
        header = msgpack.packb({**known, **fields})
        prefix = struct.pack("<8s4I", b"TFRINDEX", 1, len(header), crc32c(header), 0)
        target.write_bytes((prefix + header).ljust(at, b"\0"))

    write({})
    assert load_index(target).points is None
    write({"sections": {"unknown": [1, 2, 3, 4]}})
    assert load_index(target).points is None
    write({"sections": section})
    with pytest.raises(IndexFileError, match="header is not valid"):
        load_index(target)


def test_a_stream_that_ends_early_behind_a_point() -> None:
    data = text(random.Random(6), 4 << 20)
    stored = gzip.compress(data)
    points, _ = points_of(stored)
    for cut in (len(stored) - 3, points[2].bit // 8, points[2].bit // 8 + 1000):
        stream = stream_at(stored[:cut], points, 2, "gzip")
        with pytest.raises(CompressionError) as caught:
            while piece := stream.read_some(1 << 16):
                assert data[stream.position - len(piece) : stream.position] == piece
        assert caught.value.reason == "truncated_stream"
