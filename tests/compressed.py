"""Compressed files of several kinds, for tests."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

from indexer.framing import frame_record

Packer = Callable[[bytes, random.Random], bytes]


def text(rng: random.Random, size: int) -> bytes:
    """Bytes that compress about three times."""
    words = [bytes(rng.choices(range(97, 123), k=rng.randint(2, 9))) for _ in range(400)]
    return b"".join(rng.choices(words, k=size // 2))[:size]


def payloads(rng: random.Random, total: int) -> list[bytes]:
    """Records of all sizes, with about ``total`` bytes."""
    content = text(rng, total)
    found: list[bytes] = []
    at = 0
    while at < len(content):
        size = rng.choice((0, 1, rng.randrange(100), rng.randrange(5_000), rng.randrange(200_000)))
        found.append(rng.randbytes(size) if rng.random() < 0.1 else content[at : at + size])
        at += size
    return found


def framed(records: list[bytes]) -> bytes:
    return b"".join(map(frame_record, records))


def gzip_of(data: bytes, rng: random.Random) -> bytes:
    return gzip.compress(data, rng.choice((1, 6, 9)))


def zlib_of(data: bytes, rng: random.Random) -> bytes:
    return zlib.compress(data, rng.choice((0, 1, 6, 9)))


def flushed(data: bytes, rng: random.Random) -> bytes:
    """One member with flushes of every kind."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = []
    at = 0
    while at < len(data):
        size = rng.randrange(1, 1 << 20)
        parts += [packer.compress(data[at : at + size]), packer.flush(rng.choice((1, 2, 3)))]
        at += size
    return b"".join([*parts, packer.flush()])


def members(data: bytes, rng: random.Random) -> bytes:
    """Members that end inside records, some empty; zeros at the end."""
    parts = []
    at = 0
    while at < len(data):
        size = rng.choice((0, 1, rng.randrange(300_000), rng.randrange(3_000_000)))
        parts.append(gzip.compress(data[at : at + size], 1))
        at += size
    return b"".join(parts) + bytes(rng.choice((0, 1000)))


def bgzip(data: bytes, _: random.Random) -> bytes:
    """Blocks of at most 64 KiB, each a member that says its size, and an empty one at the end."""
    blocks = [data[at : at + 0xFF00] for at in range(0, len(data), 0xFF00)]
    parts = []
    for block in [*blocks, b""]:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        body = packer.compress(block) + packer.flush()
        extra = b"BC\x02\0" + struct.pack("<H", len(body) + 25)
        head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", len(extra)) + extra
        parts.append(head + body + struct.pack("<II", zlib.crc32(block), len(block)))
    return b"".join(parts)


PACKERS: dict[str, Packer] = {
    "gzip": gzip_of,
    "zlib": zlib_of,
    "flushed": flushed,
    "members": members,
    "bgzip": bgzip,
}
