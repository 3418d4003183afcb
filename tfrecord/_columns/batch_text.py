"""A batch of columns as text and as HTML."""

from __future__ import annotations

from typing import Any

from indexer.display import html_table, text_table
from tfrecord._columns.ragged import Ragged, describe, preview
from tfrecord._columns.text import cut
from tfrecord._columns.thumbnails import image_of

_COLUMNS = 40
_ROWS = 10
_IMAGES = 8


def title(batch: Any) -> str:
    """The numbers of rows and columns."""
    return f"ColumnBatch: {batch.num_rows:,} rows, {len(batch.keys()):,} columns"


def lines(batch: Any) -> list[str]:
    """One line per column: name, type, how many records lack it, first rows."""
    rows = []
    for name in list(batch)[:_COLUMNS]:
        column, lacking = batch[name], int((~batch.present[name]).sum())
        first = ", ".join(cut(preview(column, i)) for i in range(min(3, batch.num_rows)))
        more = ", …" if batch.num_rows > 3 else ""
        gap = f"{lacking:,} not present" if lacking else ""
        rows.append((repr(name), describe(column), gap, cut(first + more, 90)))
    found = [f"  {line}" for line in text_table(rows)] if rows else []
    left = len(batch.keys()) - len(rows)
    return found + ([f"  … {left:,} more columns"] if left else [])


def html(*batches: Any) -> str:
    """HTML tables of the first rows, with at most eight images; a dash means no such feature."""
    images: list[str] = []
    return "".join(_table(batch, images) for batch in batches)


def _table(batch: Any, images: list[str]) -> str:
    names = list(batch)[:_COLUMNS]
    count = min(batch.num_rows, _ROWS)
    rows = [[_cell(batch, name, i, images) for name in names] for i in range(count)]
    more = []
    if batch.num_rows > count:
        more.append(f"{batch.num_rows - count:,} more rows")
    if len(batch.keys()) > len(names):
        more.append(f"{len(batch.keys()) - len(names):,} more columns")
    header = [(name, describe(batch[name])) for name in names]
    return html_table(title(batch), header, rows, ", ".join(more))


def _cell(batch: Any, name: str, row: int, images: list[str]) -> str:
    column = batch[name]
    if isinstance(column, Ragged) and not batch.present[name][row] and not len(column[row]):
        return "–"
    image = image_of(column, row) if len(images) < _IMAGES else None
    if image is None:
        return preview(column, row)
    images.append(image)
    return image
