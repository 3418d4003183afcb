"""Random positions of random compressed files, against what a full decompression gives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from compressed import PACKERS, framed, payloads

import tfrecord
from indexer import inflaters
from tfrecord import TFRecordReader

KINDS = [*PACKERS, "zstd"]


def packed(kind: str, data: bytes, rng: random.Random) -> bytes:
    if kind != "zstd":
        return PACKERS[kind](data, rng)
    zstandard = pytest.importorskip("zstandard")
    sizes = [rng.randrange(1, 1 << 20) for _ in range(4)]
    parts, at = [], 0
    for size in [*sizes, len(data)]:
        packer = zstandard.ZstdCompressor(level=rng.choice((1, 3, 9)), write_checksum=rng.random() < 0.5)
        parts.append(packer.compress(data[at : at + size]))
        at += size
    return b"".join(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_random_positions_of_random_files(kind: str, tmp_path: Path) -> None:
    """10,000 positions of 54 files."""
    for seed in range(9):
        rng = random.Random(f"{kind}{seed}")
        records = payloads(rng, rng.choice((200, 500_000, 2 << 20)))
        path = tmp_path / f"{seed}.tfrecord"
        path.write_bytes(packed(kind, framed(records), rng))
        tfrecord.build_index(path)
        access = "points" if kind in PACKERS and inflaters.finds_blocks() else "auto"
        with TFRecordReader(path, record_type="bytes", access=access) as reader:  # type: ignore[call-overload]
            assert len(reader) == len(records)
            left = 186
            while left > 0:
                size = min(left, rng.choice((1, 5, 40)))
                positions = [rng.randrange(len(records)) for _ in range(size)]
                found = [bytes(payload) for payload in reader.read_raw(positions)]
                assert found == [records[place] for place in positions]
                left -= size
