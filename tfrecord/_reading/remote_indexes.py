"""``index="build"`` behind a URL: beside the object, else in the cache folder, else in memory."""

from __future__ import annotations

import io
import os
import shlex
import sys

from indexer.build import build_index_of_url
from indexer.errors import IndexFileError, StaleIndexError
from indexer.files import DataFile
from indexer.fingerprint import bind_index
from indexer.formats import load_index, write_index
from indexer.index import RecordIndex
from indexer.options import warn_caller
from indexer.stores import Url, open_store
from indexer.stores.cache import Cache
from tfrecord.schema import SchemaCollector, check_metadata

__all__ = ["build_behind", "cached_index"]


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
    hint = f"'tfrecord index {shlex.quote(url)}' would keep it there, run by someone who may write"
    warn_caller(f"the index {index.index_path} cannot be written ({error}); it is kept {where}. {hint}")
    return bind_index(index.replace(index_path=None), data) if kept is None else kept


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
