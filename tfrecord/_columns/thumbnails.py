"""Byte strings that are images, as pictures in the HTML of a batch."""

from __future__ import annotations

import base64
import re
from typing import Any

from indexer.display import Markup
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.ragged import Ragged

__all__ = ["image_of"]

_LARGEST = 200_000
_HEADERS = re.compile(
    rb"(?P<png>\x89PNG\r\n\x1a\n)|(?P<jpeg>\xff\xd8\xff)|(?P<gif>GIF8[79]a)|(?P<webp>RIFF....WEBP)", re.S
)


def image_of(column: Any, row: int) -> Markup | None:
    """The picture in a row of one byte string; None where there is none, or one of more than 200 kB.

    Only what begins like a PNG, JPEG, GIF or WebP file counts; the browser decodes it.
    """
    place = row
    if isinstance(column, Ragged) and isinstance(column.values, BytesColumn):
        place, end = column.row_splits[row : row + 2].tolist()
        column = column.values if end - place == 1 else None
    if not isinstance(column, BytesColumn) or len(column.shape) != 1:
        return None
    data = column.view(place)
    found = _HEADERS.match(data[:16].tobytes()) if len(data) <= _LARGEST else None
    if found is None:
        return None
    source = f"data:image/{found.lastgroup};base64,{base64.b64encode(data).decode()}"
    return Markup(f'<img src="{source}" style="max-width:160px;max-height:96px" alt="{len(data):,} bytes">')
