"""What the tests of writers share: reading back what was written, and files that fail."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any

import pytest

from indexer import framing, streams
from tfrecord import example_pb2
from tfrecord.writer import TFRecordWriter

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system")


def records(source: Any) -> list[bytes]:
    """The payloads of a path or of bytes, both checksums checked."""
    if isinstance(source, (bytes, bytearray)):
        source = io.BytesIO(source)
    found = []
    for chunk in streams.iter_chunks(source):
        for start, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
            found.append(bytes(chunk.buffer[start + framing.HEADER_SIZE :][:length]))
    return found


def examples(source: Any) -> list[dict[str, list[Any]]]:
    found = []
    for record in records(source):
        features = example_pb2.Example.FromString(record).features.feature
        found.append(
            {key: list(getattr(features[key], features[key].WhichOneof("kind")).value) for key in features}
        )
    return found


class Full(io.BytesIO):
    """Takes `room` bytes, then is full."""

    def __init__(self, room: int, *, cut: bool = True) -> None:
        super().__init__()
        self.room = room
        self.cut = cut

    def seekable(self) -> bool:
        return self.cut

    def write(self, data: Any) -> int:
        part = bytes(data)[: self.room - self.tell()]
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(part)


def batch_of(columns: Any, **options: Any) -> list[dict[str, list[Any]]]:
    file = io.BytesIO()
    with TFRecordWriter(file) as writer:
        writer.write_batch(columns, **options)
    return examples(file.getvalue())
