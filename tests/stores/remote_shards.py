"""Three shards with indexes; labels are kept in them."""

from __future__ import annotations

from pathlib import Path

from range_server import RangeServer

import tfrecord

COUNT = 3000


def urls(server: RangeServer) -> list[str]:
    return [server.url(f"t-{i:05d}-of-00003") for i in range(3)]


def local(folder: Path) -> tfrecord.TFRecordReader:
    return tfrecord.TFRecordReader(folder)
