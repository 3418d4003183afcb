"""A target for the points of compressed files: every record read through them is right, or an error."""

from __future__ import annotations

import functools
import struct
import zlib
from typing import Any

__all__ = ["check_points"]

_HEAD = struct.Struct("<IIQ")  # of a points section
_ENTRY = struct.Struct("<QQII")  # of its table
_PART = 300


@functools.cache
def packed_records() -> tuple[list[bytes], bytes, Any]:
    """Records, a gzip file of two members that holds them, and its index, with a point for every few records.

    Some points begin inside a byte.
    """
    import gzip
    import io
    import random

    from indexer.datafile import BytesFile
    from indexer.framing import frame_record
    from indexer.inputstream import open_stream
    from indexer.points import PointBuilder
    from indexer.scanning import scan_index

    rng = random.Random(1)
    words = [rng.randbytes(rng.randrange(2, 9)) for _ in range(30)]
    # All of different lengths, so that none can be taken for another.
    records = [b"".join(rng.choices(words, k=60))[:size] for size in rng.sample(range(180), 24)]
    data = b"".join(map(frame_record, records))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    cut = 5 * _PART
    parts = [
        packer.compress(data[at : at + _PART])
        + packer.flush(zlib.Z_SYNC_FLUSH if at % 2 else zlib.Z_PARTIAL_FLUSH)
        for at in range(0, cut, _PART)
    ]
    parts += [packer.compress(data[cut : cut + 200]), packer.flush()]
    stored = b"".join(parts) + gzip.compress(data[cut + 200 :], mtime=0)
    builder = PointBuilder(len(stored))
    builder._spacing = _PART
    with open_stream(io.BytesIO(stored), points=builder) as stream:
        stream.read()
    index = scan_index(BytesFile("packed", memoryview(stored)))
    return records, stored, index.replace(points=builder.finish(len(stored), len(data)))


def check_points(data: bytes) -> None:
    """The first byte says what the rest is: a points section, or changes of a good one or of the data; and
    which records to read."""
    import numpy as np

    from indexer.datafile import BytesFile
    from indexer.errors import IndexFileError, TFRecordError
    from indexer.points import Points
    from tfrecord._reading.fetching import fetch_record
    from tfrecord._reading.pointed import PointedFile

    records, stored, index = packed_records()
    if not data:
        return
    mode, content = data[0], data[1:]
    section, changed = bytearray(index.points.stored), bytearray(stored)
    if mode & 1:
        section = bytearray(content)
    else:  # triples: where, and what
        target = changed if mode & 2 else section
        for at in range(0, len(content) - 2, 3):
            target[int.from_bytes(content[at : at + 2], "little") % len(target)] = content[at + 2]
    sealed = _sealed(section, bool(mode & 8)) if mode & 4 and len(section) >= _HEAD.size else bytes(section)
    points = Points(sealed, index.file_size, index.stream_size)
    try:
        points.check_all()
    except IndexFileError:
        pass  # records are read all the same: most are found through other points
    file = PointedFile(BytesFile("packed", memoryview(bytes(changed))), index.replace(points=points), None, 1)
    first = (mode >> 4 & 7) * 7 % len(records)
    try:
        if mode & 128:
            _check_batch(file, index, np.array([first, (first + 13) % len(records), first + 1]), records)
        else:
            assert fetch_record(file, index, first, mode & 2) == records[first]
    except TFRecordError:
        pass


def _check_batch(file: Any, index: Any, order: Any, records: list[bytes]) -> None:
    from tfrecord._reading.damage import DamagePolicy
    from tfrecord._reading.fetching import start_fetch

    errors: list[Any] = []
    found = start_fetch(file, index, order, 2, DamagePolicy(errors.append))()
    assert len(found.bad) == len(errors)
    for row in set(range(len(order))) - set(found.bad):
        start, length = int(found.starts[row]), int(found.lengths[row])
        assert found.buffers[0][start : start + length] == records[order[row]]


def _sealed(section: bytearray, packs: bool) -> bytes:
    """A section with the checksum that its table needs. ``packs``: what follows the table is the content of
    windows, which get the same size."""
    from indexer.framing import crc32c

    version, _, count = _HEAD.unpack_from(section)
    size = _ENTRY.size * min(count, (len(section) - _HEAD.size) // _ENTRY.size)
    table, windows = bytes(section[_HEAD.size : _HEAD.size + size]), bytes(section[_HEAD.size + size :])
    if packs and table:
        entries = list(_ENTRY.iter_unpack(table))
        inside = sum(entry[3] & 1 for entry in entries)
        each = len(windows) // max(inside, 1)
        packed = [zlib.compress(windows[at * each :][:each], 0) for at in range(inside)] if each else []
        sizes = iter([len(window) for window in packed])
        table = b"".join(
            _ENTRY.pack(bit, out, next(sizes, 0) if kind & 1 else 0, kind) for bit, out, _, kind in entries
        )
        windows = b"".join(packed)
    return _HEAD.pack(version, crc32c(table), count) + table + windows
