"""Ten records, ways to damage them, and every way to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from indexer.framing import HEADER_SIZE, frame_record
from tfrecord.example_pb2 import Example
from tfrecord.loaders import example_loader
from tfrecord.reader import TFRecordReader

Way = Callable[..., Iterator[int]]


def example(number: int) -> bytes:
    message = Example()
    message.features.feature["id"].int64_list.value.append(number)
    message.features.feature["pad"].bytes_list.value.append(b"p" * 20)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


COUNT = 10


FRAMES = [frame_record(example(number)) for number in range(COUNT)]


OFFSETS = np.cumsum([0] + [len(frame) for frame in FRAMES]).tolist()


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 0x10
    return bytes(changed)


def bad_payload(record: int) -> bytes:
    return flipped(b"".join(FRAMES), OFFSETS[record] + HEADER_SIZE + 5)


def bad_length(record: int) -> bytes:
    return flipped(b"".join(FRAMES), OFFSETS[record] + 1)


def cut(record: int) -> bytes:
    return b"".join(FRAMES)[: OFFSETS[record] + HEADER_SIZE + 3]


def no_message(record: int) -> bytes:
    return b"".join([*FRAMES[:record], frame_record(b"\x0a\xff\xff"), *FRAMES[record + 1 :]])


def number_of(record: Any) -> int:
    return int(np.asarray(record["id"]).reshape(-1)[0])


def numbers_of(batch: Any) -> list[int]:
    return [row[0] for row in batch["id"].to_list()]


def by_loader(path: Path, **options: Any) -> Iterator[int]:
    return map(number_of, example_loader(path, None, **options))


def by_shards(path: Path, **options: Any) -> Iterator[int]:
    """Three shards in turn; where damage is skipped one after the other, put in order."""
    shards = [map(number_of, example_loader(path, None, shard=(i, 3), **options)) for i in range(3)]
    if "on_error" in options:
        yield from sorted(number for shard in shards for number in shard)
        return
    for place in range(COUNT):
        yield from [number for number in [next(shards[place % 3], None)] if number is not None]


def by_iteration(path: Path, **options: Any) -> Iterator[int]:
    return map(number_of, TFRecordReader(path, record_type="example", **options))


def by_pread(path: Path, **options: Any) -> Iterator[int]:
    return by_iteration(path, mmap=False, **options)


def by_batches(path: Path, **options: Any) -> Iterator[int]:
    for batch in TFRecordReader(path, record_type="example", **options).batches(4):
        yield from numbers_of(batch)


def by_positions(path: Path, **options: Any) -> Iterator[int]:
    reader = TFRecordReader(path, record_type="example", **options)
    yield from numbers_of(reader.read(range(len(reader))))


def by_view(path: Path, **options: Any) -> Iterator[int]:
    reader = TFRecordReader(path, record_type="example", **options)
    yield from map(number_of, reader.select(range(len(reader))))


STREAMED: list[Way] = [by_loader, by_iteration, by_pread, by_batches, by_shards]


EVERY: list[Way] = [*STREAMED, by_positions, by_view]
