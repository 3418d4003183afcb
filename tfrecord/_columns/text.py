"""Columns and batches as short text and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy.typing as npt

_BYTES = 20
_ITEMS = 4
_CELL = 60


def bytes_text(view: memoryview | bytes) -> str:
    """A byte string, or its beginning and its length."""
    if len(view) <= _BYTES:
        return repr(bytes(view))
    return f"{bytes(view[:_BYTES])!r}… ({len(view):,} bytes)"


def items_text(items: Iterable[str], total: int) -> str:
    """The first few of `total` items in brackets."""
    shown = [item for item, _ in zip(items, range(_ITEMS), strict=False)]
    more = [f"… {total - len(shown):,} more"] if total > len(shown) else []
    return f"[{', '.join(shown + more)}]"


def array_text(array: npt.NDArray[Any]) -> str:
    """One row of a dense column."""
    if array.ndim == 0:
        return str(array[()])
    return items_text((array_text(row) for row in array[:_ITEMS]), len(array))


def cut(text: str, limit: int = _CELL) -> str:
    """`text`, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def html_table(
    caption: str, header: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], more: str
) -> str:
    """A table for notebooks; every text in it is data of unknown origin and escaped."""
    head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    note = f"<p><small>{escape(more)}</small></p>" if more else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p>{escape(caption)}</p>{table}{note}</div>"
