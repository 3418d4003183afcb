"""Indexes that readers build of objects behind URLs, and where they are kept.

With ``index="build"``: beside the object, else in the cache folder, else in memory. Otherwise, for a pass
that needs positions: in the cache folder, else in memory.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
import threading
from collections.abc import Sequence

from indexer.build import build_index_of_url
from indexer.errors import (
    CompressionError,
    CorruptRecordError,
    IndexFileError,
    StaleIndexError,
    printable,
)
from indexer.files import DataFile
from indexer.fingerprint import bind_index
from indexer.formats import load_index, write_index
from indexer.framing import VERIFY_ALL
from indexer.index import RecordIndex
from indexer.options import warn_caller
from indexer.progress import Report, shown
from indexer.scanning import scan_index
from indexer.stores import Url, open_store
from indexer.stores.cache import Cache
from indexer.stores.ranges import side_by_side
from tfrecord._reading.metadata import check_metadata
from tfrecord.schema import SchemaCollector

__all__ = ["build_behind", "cached_index", "needed_indexes"]

# So many objects are read at once: each reads several parts ahead.
_AT_ONCE = 4


def build_behind(url: Url, data: DataFile, compression_type: str) -> RecordIndex:
    """Validate the object and write its index beside it; where that may not be, into the cache folder, if
    there is one. It is kept in memory otherwise.

    Raises:
        CorruptRecordError, CompressionError: the data is damaged.
        StaleIndexError: it changed meanwhile.
        RemoteError: it cannot be read.
    """
    index, error = build_index_of_url(
        url,
        collector=SchemaCollector(),
        compression_type=compression_type,
        progress=sys.stderr is not None and sys.stderr.isatty(),
    )
    if index.etag != data.etag:
        raise StaleIndexError(data.path, None, "the object changed while it was being indexed")
    if error is None:
        return bind_index(index, data)
    kept = _keep(url, data, index)
    where = "in memory" if kept is None else "in the cache folder"
    hint = "" if kept is not None and url.startswith("http") else f". {_keeping(url)}"
    warn_caller(f"the index {index.index_path} cannot be written ({error}); it is kept {where}{hint}")
    return bind_index(index.replace(index_path=None), data) if kept is None else kept


def needed_indexes(objects: Sequence[tuple[Url, DataFile]]) -> list[RecordIndex | None]:
    """Validate objects without an index in one pass and return their indexes, which the cache folder keeps,
    if there is one. One warning says how to avoid such passes. None for an object that is damaged.

    Raises:
        StaleIndexError: an object changed meanwhile.
        RemoteError: an object cannot be read.
    """
    total = sum(data.size for _, data in objects)
    label = printable(os.path.basename(objects[0][0])) if len(objects) == 1 else f"{len(objects)} files"
    in_memory: list[str] = []
    with shown(sys.stderr is not None and sys.stderr.isatty(), f"indexing {label}") as report:
        told = _Total(report, total)

        def build(number: int) -> RecordIndex | None:
            url, data = objects[number]
            try:
                index = scan_index(
                    data,
                    verify=VERIFY_ALL,
                    compression_type="",
                    collector=SchemaCollector(),
                    progress=lambda done, size: told.reach(number, done),
                )
            except (CorruptRecordError, CompressionError):
                return None
            kept = _keep(url, data, index.replace(format="extended"))
            if kept is None:
                in_memory.append(url)
            return kept or index

        indexes = side_by_side(build, range(len(objects)), _AT_ONCE)
    if in_memory:
        first, count = min(in_memory), len(in_memory)
        what = f"{first} has no index" if count == 1 else f"{count} files, such as {first}, have no index"
        warn_caller(f"{what}, so all the data was read to find its records. {_keeping(first)}")
    return indexes


def _keeping(url: str) -> str:
    """What would keep an index for the next time."""
    if url.startswith("http"):  # read only
        return "cache='auto' (--cache auto) would keep an index on this machine"
    return f"'tfrecord index {shlex.quote(url)}' would keep an index there, run by someone who may write"


class _Total:
    """The progress of several files as one."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total = report, total
        self._done: dict[int, int] = {}
        self._lock = threading.Lock()

    def reach(self, number: int, done: int) -> None:
        with self._lock:
            self._done[number] = done
            self._report(sum(self._done.values()), self._total)


def cached_index(url: Url, data: DataFile) -> RecordIndex | None:
    """The index of this version of the object in the cache folder; None where there is none."""
    path = _place(url, data)
    if path is None:
        return None
    try:
        return check_metadata(load_index(path, data))
    except (OSError, IndexFileError):
        return None


def _keep(url: Url, data: DataFile, index: RecordIndex) -> RecordIndex | None:
    """Put the index into the cache folder; None where there is none, or no room in it."""
    path = _place(url, data)
    if path is None:
        return None
    buffer = io.BytesIO()
    write_index(buffer, index)
    Cache(url.options).put_bytes(os.path.basename(path), buffer.getvalue())
    return cached_index(url, data)


def _place(url: Url, data: DataFile) -> str | None:
    """The path in the cache folder of the index of this version of an object."""
    if url.options.cache is None or data.etag is None:
        return None
    store, key = open_store(url)
    return Cache(url.options).name(store, key, data.size, data.etag, ".tfindex")
