from __future__ import annotations

import gzip
import itertools
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compressed import PACKERS, framed, payloads, text

import tfrecord
from indexer import inflaters
from indexer.build_many import build_indexes
from indexer.errors import CorruptRecordError, IndexFileError, StaleIndexError, TFRecordError
from indexer.formats import load_index, write_index
from indexer.framing import VERIFY_LENGTHS
from indexer.points import PointBuilder, Points
from indexer.scanning import scan_index
from tfrecord import TFRecordReader

pytestmark = pytest.mark.skipif(not inflaters.finds_blocks(), reason="there is no zlib library here")


def pack(folder: Path, packer: str, seed: int = 0, size: int = 4 << 20) -> tuple[Path, list[bytes]]:
    rng = random.Random(f"{packer}{seed}")
    records = payloads(rng, size)
    path = folder / f"{packer}{seed}.tfrecord"
    path.write_bytes(PACKERS[packer](framed(records), rng))
    return path, records


RECORDS_OF_2_0 = [bytes([65 + number]) * 7 * number for number in range(5)]
GZIP_OF_2_0 = bytes.fromhex(
    "1f8b0800000000000203636080004de619ec375e352d6287f2775f9f2fe8040146bbc41df9a0c2479f66da3ba300d32b"
    "760745a1b2d756676bbb60032bb64556c840159d383855d6150fd8a8b3fe3d007e35a8a296000000"
)
INDEX_OF_2_0 = bytes.fromhex(
    "544652494e44455801000000b1000000239708570000000089ab6e756d5f7265636f72647305a966696c655f73697a65"
    "58ab73747265616d5f73697a65cc96a86d74696d655f6e73cf0de0b6b3a7640000ab636f6d7072657373696f6ea4677a"
    "6970ab66696e6765727072696e74cf00000096a2a8357ea86d6574616461746181ab7265636f72645f74797065a56279"
    "746573a66172726179739295a0a33c75389105cd0100ce01b4db1695a0a33c75389105cd0140ce7fe62e77aa696e6465"
    "785f73697a65cd0168000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000100000000000000027000000000000004500000000000000"
    "6a0000000000000000000000000000000000000000000000000000000000000000000000000000000700000000000000"
    "0e0000000000000015000000000000001c00000000000000"
)


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, list[bytes]]:
    path, records = pack(tmp_path, "gzip")
    tfrecord.build_index(path)
    return path, records


def as_list(column: Any) -> list[bytes]:
    return [bytes(item) for item in column]


@pytest.fixture
def no_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("it was spooled")

    monkeypatch.setattr("tfrecord._reading.spool.Spool._add", refuse)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_records_at_any_position(packer: str, num_threads: int, tmp_path: Path, no_spool: None) -> None:
    path, records = pack(tmp_path, packer)
    tfrecord.build_index(path)
    rng = random.Random(packer)
    with TFRecordReader(path, record_type="bytes", access="points", num_threads=num_threads) as reader:
        assert len(reader) == len(records)
        for size in (1, 3, 50):
            positions = [rng.randrange(len(records)) for _ in range(size)]
            assert as_list(reader.read_raw(positions)) == [records[place] for place in positions]
        assert as_list(reader.read_raw(range(len(records)))) == records
        for place in rng.sample(range(len(records)), 20):
            assert bytes(reader.raw(place)) == records[place]
        # In order: each read goes on where the last one ended.
        for place in range(len(records) // 2, len(records) // 2 + 30):
            assert bytes(reader.raw(place)) == records[place]
        for start, step in ((0, 1), (len(records) // 2, 1), (len(records) // 3, 7), (len(records), 1)):
            found = [bytes(payload) for _, payload in reader.iter_file(0, start=start, step=step)]
            assert found == records[start::step]


@pytest.mark.parametrize("packer", PACKERS)
def test_records_longer_than_the_distance_of_points(packer: str, tmp_path: Path, no_spool: None) -> None:
    rng = random.Random(packer)
    records = [b"a", text(rng, 5 << 20), b"", rng.randbytes(3 << 20), b"b", bytes(4 << 20), b"c"]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(PACKERS[packer](framed(records), rng))
    index = tfrecord.build_index(path)
    assert index.points is not None and len(index.points) > 6
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        for place in (6, 1, 4, 3, 5, 0, 2):
            assert bytes(reader.raw(place)) == records[place]
        assert as_list(reader.read_raw([5, 3, 6, 1])) == [records[place] for place in (5, 3, 6, 1)]
        assert [bytes(payload) for _, payload in reader.iter_file(0, start=2)] == records[2:]


def test_auto_uses_points_first_and_the_spool_in_the_end(
    packed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = packed
    spooled: list[Any] = []
    add = tfrecord._reading.spool.Spool._add  # type: ignore[attr-defined]
    monkeypatch.setattr(
        "tfrecord._reading.spool.Spool._add", lambda self, *args: spooled.append(args) or add(self, *args)
    )
    rng = random.Random(1)
    with TFRecordReader(path, record_type="bytes") as reader:
        for _ in range(3):
            place = rng.randrange(len(records))
            assert bytes(reader.raw(place)) == records[place]
        assert not spooled
        for _ in range(12):
            positions = rng.sample(range(len(records)), len(records) // 2)
            assert as_list(reader.read_raw(positions)) == [records[place] for place in positions]
        assert len(spooled) == 1
    with TFRecordReader(path, record_type="bytes", max_spool_bytes=1000) as reader:
        for _ in range(12):
            positions = rng.sample(range(len(records)), len(records) // 2)
            assert as_list(reader.read_raw(positions)) == [records[place] for place in positions]
    with TFRecordReader(path, record_type="bytes", access="spool") as reader:
        assert bytes(reader.raw(3)) == records[3]
    assert len(spooled) == 3


def test_points_where_there_are_none(tmp_path: Path) -> None:
    path, records = pack(tmp_path, "gzip", size=10_000)
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        with pytest.raises(IndexFileError, match=r"needs an extended index with points.*tfrecord index"):
            reader.raw(0)
        assert len(list(reader)) == len(records)
    index = tfrecord.build_index(path).replace(points=None)
    with open(f"{path}.tfindex", "wb") as file:
        write_index(file, index)
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        with pytest.raises(IndexFileError, match=r"needs an extended index with points.*tfrecord index"):
            reader.read_raw([0, 1])
    with TFRecordReader(path, record_type="bytes") as reader:
        assert bytes(reader.raw(0)) == records[0]


def test_an_index_of_2_0_has_no_points(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(GZIP_OF_2_0)
    Path(f"{path}.tfindex").write_bytes(INDEX_OF_2_0)
    with TFRecordReader(path, record_type="bytes") as reader:
        assert reader.has_index
        assert as_list(reader.read_raw([4, 0, 2])) == [RECORDS_OF_2_0[place] for place in (4, 0, 2)]
        assert [bytes(payload) for _, payload in reader.iter_file(0, start=3)] == RECORDS_OF_2_0[3:]
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        with pytest.raises(IndexFileError, match=r"needs an extended index with points.*tfrecord index"):
            reader.raw(4)
    assert [result.status for result in build_indexes(path)] == ["built"]
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        assert bytes(reader.raw(4)) == RECORDS_OF_2_0[4]


def test_a_wrong_name_of_access(packed: Any) -> None:
    with pytest.raises(ValueError, match=r"access is 'point'.*did you mean 'points'"):
        TFRecordReader(packed[0], access="point")  # type: ignore[call-overload]


def test_points_mean_nothing_for_plain_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed([b"a", b"b"]))
    for access in ("auto", "spool", "points"):
        assert as_list(TFRecordReader(path, record_type="bytes", access=access).read_raw([1, 0])) == [
            b"b",
            b"a",
        ]  # type: ignore[call-overload]


def replace_points(path: Path, change: Any) -> None:
    index = load_index(f"{path}.tfindex", path)
    assert index.points is not None
    stored = change(index.points)
    changed = index.replace(points=Points(stored, index.file_size, index.stream_size))
    with open(f"{path}.tfindex", "wb") as file:
        write_index(file, changed)


def with_windows(points: Points, change: Any) -> bytes:
    builder = PointBuilder()
    for number in range(len(points)):
        bit, out, window, inside = points[number]
        builder.add(bit, out, change(window), inside=inside)
    return bytes(builder.finish(*points._sizes).stored)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_windows_that_do_not_fit_raise(packed: Any, verify: bool, on_error: str) -> None:
    """Never a wrong record, and the data is not blamed."""
    path, records = packed
    replace_points(path, lambda points: with_windows(points, lambda window: window[::-1]))
    wrong = 0
    for access in ("auto", "points"):
        with TFRecordReader(
            path, record_type="bytes", verify=verify, on_error=on_error, access=access
        ) as reader:  # type: ignore[call-overload]
            for place in range(0, len(records), 3):
                for read in (lambda at: bytes(reader.raw(at)), lambda at: as_list(reader.read_raw([at]))[0]):
                    try:
                        assert read(place) == records[place]
                    except IndexFileError as error:
                        assert "do not fit the data" in str(error) and "tfrecord index" in str(error)
                        wrong += 1
    assert wrong
    index = load_index(f"{path}.tfindex", path)
    assert index.points is not None
    wrong = 0
    with TFRecordReader(path, record_type="bytes", verify=verify, on_error=on_error) as reader:  # type: ignore[call-overload]
        for start in np.searchsorted(index.offsets, index.points.outs[1:]).tolist():
            try:
                for number, payload in itertools.islice(reader.iter_file(0, start=start), 20):
                    assert payload == records[number]
            except IndexFileError as error:
                assert "do not fit the data" in str(error)
                wrong += 1
    assert wrong


def test_points_of_another_file_raise(packed: Any, tmp_path: Path) -> None:
    path, records = packed
    other, _ = pack(tmp_path, "gzip", 1)
    foreign = tfrecord.build_index(other)
    assert foreign.points is not None
    builder_sizes = foreign.points._sizes
    index = load_index(f"{path}.tfindex", path)
    sizes = max(builder_sizes[0], index.file_size), max(builder_sizes[1], index.stream_size)
    stored = bytes(foreign.points.stored)
    with open(f"{path}.tfindex", "wb") as file:
        write_index(file, index.replace(points=Points(stored, *sizes)))
    failed = 0
    with TFRecordReader(path, record_type="bytes", verify=False) as reader:
        for place in reversed(range(0, len(records), 2)):  # in order, the first point would be enough
            try:
                assert bytes(reader.raw(place)) == records[place]
            except IndexFileError:
                failed += 1
    assert failed


def test_a_file_that_was_replaced_raises(packed: Any, tmp_path: Path) -> None:
    path, records = packed
    with TFRecordReader(path, record_type="bytes"):
        path.write_bytes(path.read_bytes() + bytes(10))
        with pytest.raises(TFRecordError):
            TFRecordReader(path)
    other, _ = pack(tmp_path, "gzip", 2)
    path.write_bytes(other.read_bytes())
    with pytest.raises(StaleIndexError):
        TFRecordReader(path)


def damaged(path: Path, records: list[bytes], place: int) -> list[bytes]:
    """Change one byte of a record, whose length stays."""
    changed = list(records)
    assert records[place]
    data = bytearray(framed(records))
    at = len(framed(records[:place])) + 12
    data[at] ^= 1
    path.write_bytes(gzip.compress(bytes(data), 6))
    changed[place] = bytes(data[at : at + len(records[place])])
    return changed


@pytest.mark.parametrize("access", ["points", "spool", "auto"])
def test_damaged_records_are_told_as_always(access: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    records = payloads(rng, 3 << 20)
    path = tmp_path / "a.gz"
    place = max(number for number in range(len(records) - 3) if records[number])
    path.write_bytes(gzip.compress(framed(records), 6))
    damaged(path, records, place)
    with open(f"{path}.tfindex", "wb") as file:
        write_index(file, scan_index(path, verify=VERIFY_LENGTHS, points=True))
    with TFRecordReader(path, record_type="bytes", access=access) as reader:  # type: ignore[call-overload]
        for read in (lambda: reader.raw(place), lambda: reader.read_raw([0, place])):
            with pytest.raises(CorruptRecordError) as caught:
                read()
            assert (caught.value.record, caught.value.reason) == (place, "bad_payload_crc")
            assert caught.value.offset == len(framed(records[:place]))
    errors: list[Any] = []
    with TFRecordReader(path, record_type="bytes", access=access, on_error=errors.append) as reader:  # type: ignore[call-overload]
        found = as_list(reader.read_raw([place + 1, place, place - 1]))
        assert found == [records[place + 1], records[place - 1]]
        assert [error.record for error in errors] == [place]
        rest = [number for number, _ in reader.iter_file(0, start=place - 2)]
        assert rest == [number for number in range(place - 2, len(records)) if number != place]


@pytest.mark.parametrize("access", ["points", "auto"])
def test_a_damaged_stream(access: str, packed: Any) -> None:
    """The damage is in the middle: what comes before it can be read, and what does not is told."""
    path, records = packed
    stored = bytearray(path.read_bytes())
    middle = len(stored) // 2
    stored[middle : middle + 50] = bytes(50)
    path.write_bytes(stored)
    kinds = set()
    with TFRecordReader(path, record_type="bytes", access=access) as reader:  # type: ignore[call-overload]
        for place in range(len(records)):
            try:
                assert bytes(reader.raw(place)) == records[place]
                kinds.add("good")
            except TFRecordError as error:
                assert not isinstance(error, IndexFileError)
                assert error.record == place  # type: ignore[attr-defined]
                kinds.add("bad")
    assert kinds == {"good", "bad"}
    errors: list[Any] = []
    with TFRecordReader(path, record_type="bytes", access=access, on_error=errors.append) as reader:  # type: ignore[call-overload]
        found = as_list(reader.read_raw(range(len(records))))
        assert len(found) + len(errors) == len(records)
        assert set(found) <= set(records)


def test_a_long_record_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(framed([b"a", bytes(3 << 20), b"b"])))
    tfrecord.build_index(path)
    for access in ("points", "auto"):
        with TFRecordReader(path, record_type="bytes", access=access, max_record_bytes=1 << 20) as reader:  # type: ignore[call-overload]
            with pytest.raises(CorruptRecordError, match="record 1 .*max_record_bytes is 1048576"):
                reader.raw(1)
            with pytest.raises(CorruptRecordError, match="record 1 .*max_record_bytes is 1048576"):
                reader.read_raw([2, 1, 0])
            assert as_list(reader.read_raw([2, 0])) == [b"b", b"a"]


def test_threads_share_a_reader(packed: Any) -> None:
    path, records = packed
    positions = np.random.default_rng(0).integers(0, len(records), (3, 15, 4)).tolist()
    with TFRecordReader(path, record_type="bytes", access="points") as reader, ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda batches: [as_list(reader.read_raw(batch)) for batch in batches], positions)
        wanted = [[[records[place] for place in batch] for batch in batches] for batches in positions]
        assert list(found) == wanted


def test_a_pickled_reader_goes_on(packed: Any) -> None:
    path, records = packed
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        reader.raw(5)
        with pickle.loads(pickle.dumps(reader)) as again:
            assert bytes(again.raw(len(records) - 1)) == records[-1]


def test_splits_of_one_compressed_file(packed: Any, no_spool: None) -> None:
    path, records = packed
    splits = tfrecord.make_splits(path, 5, record_type="bytes")
    assert len(splits) == 5
    assert [bytes(record) for split in splits for record in split] == records
    rows = [row for split in splits for batch in split.batches(7) for row in as_list(batch)]
    assert rows == records


def test_urls(tmp_path: Path, no_spool: None) -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("obstore")
    path, records = pack(tmp_path, "gzip")
    fsspec.filesystem("memory").pipe("/pointed/a.tfrecord.gz", path.read_bytes())
    url = "memory://pointed/a.tfrecord.gz"
    tfrecord.build_index(url)
    rng = random.Random(8)
    with TFRecordReader(url, record_type="bytes", access="points") as reader:
        for size in (1, 60):
            positions = np.array([rng.randrange(len(records)) for _ in range(size)])
            assert as_list(reader.read_raw(positions)) == [records[place] for place in positions]
        start = len(records) - 10
        assert [bytes(payload) for _, payload in reader.iter_file(0, start=start)] == records[start:]
