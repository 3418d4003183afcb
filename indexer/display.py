"""Tables as text and as HTML, for the reprs of objects."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["Markup", "html_table", "text_table"]


class Markup(str):
    """HTML of our own making, which is not escaped."""

    __slots__ = ()


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def html_table(
    caption: str, header: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], more: str = ""
) -> str:
    """A table for notebooks. Each column's header is a name and a remark.

    Every text is data of unknown origin and escaped, unless it is `Markup`.
    """
    head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in header)
    body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    note = f"<p><small>{escape(more)}</small></p>" if more else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><p>{escape(caption)}</p>{table}{note}</div>"


def _cell(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
