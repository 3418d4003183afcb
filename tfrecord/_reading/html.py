"""A reader as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Callable

from indexer.display import html_table
from indexer.errors import TFRecordError
from tfrecord._reading.store import RecordStore
from tfrecord.schema import Schema

__all__ = ["index_text", "reader_html"]

_FILES = 10


def index_text(store: RecordStore) -> str:
    """How much is there, as far as it is known: nothing is scanned for it."""
    files = f"{len(store.paths):,} file{'s' * (len(store.paths) != 1)}"
    if store.closed:
        return f"{files}, closed"
    if not store.has_index:
        return f"{files}, records not counted yet"
    count = int(store.starts[-1])
    return f"{count:,} record{'s' * (count != 1)} in {files}"


def reader_html(call: str, store: RecordStore, schema: Callable[[], Schema] | None) -> str:
    """The call and the files of a reader, and the schema where positions are known: no file is passed over
    for it. ``schema`` is None of a closed reader."""
    known = schema is not None and store.has_index
    starts = store.starts.tolist() if known else []
    header = [("file", "")] + ([("records", "")] if known else [])
    rows = [
        [path] + ([f"{starts[i + 1] - starts[i]:,}"] if known else [])
        for i, path in enumerate(store.paths[:_FILES])
    ]
    left = len(store.paths) - len(rows)
    more = f"{left:,} more files" if left else ""
    files = html_table(f"{call}: {index_text(store)}", header, rows, more)
    if schema is None or not known:
        return files
    try:
        return files + schema()._repr_html_()
    except (TFRecordError, OSError) as error:  # a picture of a reader is no place to fail
        return files + html_table("The schema could not be read", [("error", "")], [[str(error)]])
