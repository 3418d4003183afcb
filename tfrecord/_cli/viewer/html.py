"""HTML that is made of data of unknown origin: one function makes every element and escapes what goes in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from urllib.parse import urlencode

from indexer.display import Markup
from tfrecord._cli.terminal import safe

__all__ = ["Markup", "asset", "document", "el", "inline_hash", "joined", "link"]

_VOID = frozenset("br img input link meta".split())
Child = str | int | float | None | Iterable["Child"]


def _text(value: object) -> str:
    """Text as HTML; characters that hide, or that change the direction of text, are spelt out."""
    return value if isinstance(value, Markup) else escape(safe(str(value), keep="\n\t"), quote=True)


def joined(*children: Child) -> Markup:
    """Several children as one; None is nothing."""
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, int, float)):
            parts.append(_text(child))
        else:
            parts.append(joined(*child))
    return Markup("".join(parts))


def el(tag: str, *children: Child, **attributes: object) -> Markup:
    """An element. Its children and the values of its attributes are escaped, unless they are `Markup`.

    The name of an attribute may end in ``_`` (``class_``); other underscores become hyphens. None and False
    leave an attribute out, and True gives it no value.
    """
    text = "<" + tag
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        text += " " + name.rstrip("_").replace("_", "-")
        if value is not True:
            text += f'="{_text(value)}"'
    return Markup(text + ">" if tag in _VOID else f"{text}>{joined(*children)}</{tag}>")


def link(place: str, query: Mapping[str, object] | None = None) -> str:
    """The relative address of one of our pages."""
    given = {key: value for key, value in (query or {}).items() if value not in (None, "")}
    return place + ("?" + urlencode(given, errors="surrogateescape") if given else "")


def asset(name: str) -> str:
    """The text of a file of this package."""
    return (files("tfrecord._cli.viewer") / name).read_text(encoding="utf-8")


def inline_hash(text: str) -> str:
    """What a security policy calls an inline script or style with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def document(
    title: str, body: Markup, style: str, script: str = "", policy: str | None = None, **attributes: object
) -> str:
    """A whole page. ``policy`` is for a page that is a file: a server sends it as a header."""
    guard = el("meta", http_equiv="Content-Security-Policy", content=policy) if policy else None
    head = el(
        "head",
        el("meta", charset="utf-8"),
        guard,
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("link", rel="icon", href="data:,"),
        el("style", Markup(style)),
    )
    code = el("script", Markup(script)) if script else None
    return "<!doctype html>\n" + el("html", head, el("body", body, code, **attributes), lang="en")
