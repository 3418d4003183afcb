"""Levels of compression, zstd, and streams that can be entered."""

from __future__ import annotations

import gzip
import io
import random
import warnings
import zlib
from pathlib import Path
from typing import Any

import pytest
from compressed import framed, payloads

import tfrecord
from indexer.errors import UnsupportedCompressionError
from indexer.formats import load_index
from tfrecord import ShardedTFRecordWriter, TFRecordReader, TFRecordWriter
from tfrecord.cli import main

RECORDS = payloads(random.Random(1), 4 << 20)
DATA = framed(RECORDS)


def as_list(column: Any) -> list[bytes]:
    return [bytes(item) for item in column]


def write(path: Path, **options: Any) -> bytes:
    with TFRecordWriter(path, **options) as writer:
        for record in RECORDS:
            writer.write_bytes(record)
    return path.read_bytes()


@pytest.fixture(params=["zlib", "isal"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setattr("indexer.compressors.fast_zlib", lambda: None)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("level", [None, 0, 1, 3, 9])
def test_levels(compression: str, level: int | None, tmp_path: Path, engine: None) -> None:
    path = tmp_path / "a"
    stored = write(path, compression_type=compression, compression_level=level)
    assert (gzip.decompress if compression == "GZIP" else zlib.decompress)(stored) == DATA


def test_levels_differ(tmp_path: Path) -> None:
    sizes = [
        len(write(tmp_path / "a", compression_type="GZIP", compression_level=level)) for level in (0, 1, 6)
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > len(DATA)
    default = len(write(tmp_path / "a", compression_type="GZIP"))
    assert default == sizes[2]


@pytest.mark.parametrize(
    ("compression", "level"),
    [
        ("GZIP", 10),
        ("GZIP", -1),
        ("ZLIB", "6"),
        ("GZIP", True),
        ("GZIP", 1.5),
        ("ZSTD", 0),
        ("ZSTD", 23),
        (None, 6),
    ],
)
def test_levels_that_there_are_not(compression: Any, level: Any, tmp_path: Path) -> None:
    if compression == "ZSTD":
        pytest.importorskip("zstandard")
    with pytest.raises(ValueError, match="compression_level"):
        TFRecordWriter(tmp_path / "a", compression_type=compression, compression_level=level)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("level", [None, 1])
@pytest.mark.parametrize("way", ["one by one", "batch", "whole"])
def test_a_written_index_has_points_without_windows(
    compression: str, level: int | None, way: str, tmp_path: Path, engine: None
) -> None:
    path = tmp_path / "a"
    options: Any = {"compression_type": compression, "compression_level": level, "index": True}
    values = {"x": [record[:50_000] for record in RECORDS]}
    if way == "one by one":
        write(path, **options)
    elif way == "batch":
        with TFRecordWriter(path, **options) as writer:
            writer.write_batch(values)
    else:
        tfrecord.write(path, values, **options)
    index = load_index(f"{path}.tfindex", path)
    assert index.points is not None
    index.points.check_all()
    points = [index.points[number] for number in range(len(index.points))]
    assert len(points) >= index.stream_size * 8 // 7 >> 20
    assert not any(point.window for point in points)
    assert len(index.points.stored) == 16 + 24 * len(points)
    with TFRecordReader(path, access="points", record_type="bytes") as reader:
        places = random.Random(2).sample(range(len(reader)), 20)
        found = as_list(reader.read_raw(places))
        assert found == [bytes(payload) for _, payload in _ordered(reader, places)]


def _ordered(reader: Any, places: list[int]) -> list[tuple[int, bytes]]:
    every = dict(reader.iter_file(0))
    return [(place, every[place]) for place in places]


def test_flushes_cost_less_than_one_percent(tmp_path: Path) -> None:
    assert len(write(tmp_path / "a", compression_type="ZLIB")) < 1.01 * len(zlib.compress(DATA))


def test_appending_to_gzip_keeps_points(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write(path, compression_type="GZIP", index=True)
    write(path, compression_type="GZIP", index=True, mode="a")
    index = load_index(f"{path}.tfindex", path)
    assert index.points is not None and len(index) == 2 * len(RECORDS)
    index.points.check_all()
    assert int((index.points.outs[1:] - index.points.outs[:-1]).max()) < 2 << 20
    with TFRecordReader(path, access="points", record_type="bytes") as reader:
        assert as_list(reader.read_raw(range(len(index)))) == RECORDS * 2
        assert bytes(reader.raw(len(RECORDS) + 5)) == RECORDS[5]


def test_appending_to_an_empty_member(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"") + bytes(10))
    write(path, compression_type="GZIP", index=True, mode="a")
    with TFRecordReader(path, access="points", record_type="bytes") as reader:
        assert as_list(reader.read_raw(range(len(RECORDS)))) == RECORDS


# ---- zstd ----------------------------------------------------------------------------------------------


@pytest.fixture
def zstandard() -> Any:
    return pytest.importorskip("zstandard")


@pytest.mark.parametrize("level", [None, 1, 12])
def test_zstd(level: int | None, tmp_path: Path, zstandard: Any) -> None:
    path = tmp_path / "a.tfrecord.zst"
    stored = write(path, compression_type="zstd", compression_level=level, index=True)
    assert zstandard.ZstdDecompressor().decompressobj().decompress(stored) == DATA
    assert load_index(f"{path}.tfindex", path).points is None
    for index in ("auto", False):
        with TFRecordReader(tmp_path, record_type="bytes", index=index) as reader:
            assert reader.paths == (str(path),) and reader.compression(0) == "zstd"
            assert list(reader) == RECORDS
            assert as_list(reader.read_raw([5, 1, len(RECORDS) - 1])) == [RECORDS[5], RECORDS[1], RECORDS[-1]]
    with TFRecordReader(path, record_type="bytes", access="points") as reader:
        with pytest.raises(UnsupportedCompressionError, match="zstd file has no points"):
            reader.raw(0)


def test_appending_to_zstd_adds_a_frame(tmp_path: Path, zstandard: Any) -> None:
    path = tmp_path / "a.zst"
    write(path, compression_type="ZSTD", index=True)
    write(path, compression_type="ZSTD", index=True, mode="a")
    with TFRecordReader(path, record_type="bytes") as reader:
        assert as_list(reader.read_raw(range(2 * len(RECORDS)))) == RECORDS * 2


def test_a_zstd_file_can_be_read_up_to_a_flush(tmp_path: Path, zstandard: Any) -> None:
    target = io.BytesIO()
    with TFRecordWriter(target, compression_type="ZSTD") as writer:
        writer.write_bytes(b"abc")
        writer.flush()
        assert zstandard.ZstdDecompressor().decompressobj().decompress(target.getvalue()) == framed([b"abc"])


def test_shards_of_zstd(tmp_path: Path, zstandard: Any) -> None:
    with ShardedTFRecordWriter(
        tmp_path / "a.tfrecord", 3, compression_type="ZSTD", compression_level=1
    ) as writer:
        for number in range(10):
            writer.write_bytes(b"%d" % number)
    assert sorted(TFRecordReader(tmp_path, record_type="bytes")) == [b"%d" % number for number in range(10)]  # type: ignore[type-var]


def test_commands_know_zstd(tmp_path: Path, zstandard: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed, again = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord.zst", tmp_path / "c.tfrecord"
    write(plain)
    pytest.importorskip("click")
    assert main(["convert", str(plain), str(packed)]) == 0
    assert packed.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert main(["verify", str(packed)]) == 0
    assert main(["info", str(packed)]) == 0
    assert "zstd" in capsys.readouterr().out
    assert main(["convert", str(packed), str(again)]) == 0
    assert again.read_bytes() == DATA


def test_salvage_of_zstd(tmp_path: Path, zstandard: Any) -> None:
    path, whole = tmp_path / "a.tfrecord.zst", tmp_path / "b.tfrecord.zst"
    half = len(RECORDS) // 2
    pack = zstandard.ZstdCompressor(write_checksum=True).compress
    first, second = pack(framed(RECORDS[:half])), pack(framed(RECORDS[half:]))
    damaged = bytearray(first)
    damaged[len(first) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged) + second)
    report = tfrecord.salvage(path, whole)
    assert report.compression == "zstd" and len(report.stream_damages) >= 1
    found = [bytes(record) for record in TFRecordReader(whole, record_type="bytes")]
    assert found[-(len(RECORDS) - half) :] == RECORDS[half:]
    assert len(found) > len(RECORDS) - half
    path.write_bytes(first[:-5])
    report = tfrecord.salvage(path, whole)
    assert [damage.reason for damage in report.stream_damages] == ["truncated_stream"]
    path.write_bytes(first + b"xyz" + second)
    assert tfrecord.salvage(path, whole).records == len(RECORDS)


@pytest.mark.parametrize(("name", "kind"), [("a.tfrecord.gz", "GZIP"), ("a.zz", "ZLIB"), ("a.ZST", "ZSTD")])
def test_a_name_that_promises_compression(tmp_path: Path, name: str, kind: str) -> None:
    with pytest.warns(UserWarning, match=rf"{name} is written without compression.*'{kind}'") as caught:
        TFRecordWriter(tmp_path / name).close()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TFRecordWriter(tmp_path / name, compression_type="").close()
        TFRecordWriter(tmp_path / name, mode="a").close()
