"""What every page of the viewer has: its address, its head, its tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfrecord._cli.common import count_text
from tfrecord._cli.viewer.data import NotFound, ViewData
from tfrecord._cli.viewer.html import Markup, asset, document, el, inline_hash, joined, link

SIZES = (20, 60, 200)
OVERLAYS = ("boxes", "masks", "labels")
_KEYS = (
    ("j k", "next, previous record"),
    ("Enter", "open the record"),
    ("← →", "previous, next page"),
    ("/", "search"),
    ("g", "go to a position"),
    ("b m l", "boxes, masks, labels on or off"),
    ("?", "this list"),
)


@dataclass(frozen=True)
class State:
    """What a page shows, all of it in its address: "grid" or "list", the search, the index column that it is
    sorted by, where it starts, how many records it has, and which overlays are off."""

    view: str = "list"
    q: str = ""
    sort: str = ""
    start: int = 0
    size: int = SIZES[0]
    off: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: Mapping[str, str], view: str) -> State:
        """The state in an address; what is not given is as usual. ``view``: the usual view."""
        view = query.get("view", view)
        usual = SIZES[1] if view == "grid" else SIZES[0]
        size = max(1, min(number(query, "size", usual), SIZES[-1]))
        off = tuple(name for name in OVERLAYS if name in query.get("off", "").split(","))
        return cls(
            "grid" if view == "grid" else "list",
            query.get("q", ""),
            query.get("sort", ""),
            max(0, number(query, "start")),
            size,
            off,
        )

    def link(self, place: str = "records", **more: object) -> str:
        """The address of a page with this state."""
        usual = SIZES[1] if self.view == "grid" else SIZES[0]
        given = {
            "view": self.view,
            "q": self.q,
            "sort": self.sort,
            "start": self.start or None,
            "size": self.size if self.size != usual else None,
            "off": ",".join(self.off),
        }
        return link(place, {**given, **more})

    def seen_as(self, view: str) -> str:
        """The address of the same records in another view."""
        size = SIZES[1] if view == "grid" else SIZES[0]
        return replace(self, view=view, size=size, start=self.start // size * size).link()


def number(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """A whole number of an address. Raises NotFound for anything else."""
    text = query.get(name, "").strip().replace(",", "").lstrip("#") or str(default)
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) is None:
        raise NotFound(f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


class Frame:
    """Makes whole pages. ``policy`` lets their own script and style run, and nothing else."""

    def __init__(self, data: ViewData) -> None:
        self.data = data
        self._style, self._script = asset("page.css"), asset("page.js")
        self.policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {inline_hash(self._script)}",
                f"style-src {inline_hash(self._style)}",
                "img-src 'self'",
                "media-src 'self'",
                "connect-src 'self'",
                "form-action 'self'",
                "base-uri 'none'",
                "frame-ancestors 'none'",
                "require-trusted-types-for 'script'",
                "trusted-types 'none'",
            )
        )

    def page(self, state: State, current: str, *body: Markup | None, title: str = "") -> bytes:
        """A page; ``current`` is "grid", "list", "overview" or ""."""
        name = self.data.title
        whole = joined(
            el("a", "Skip to the content", href="#main", class_="skip"),
            self._head(state, current),
            el("main", *body, id="main"),
            el("p", id="said", class_="hidden", role="status"),
            _help(),
        )
        off = " ".join(f"off-{part}" for part in state.off)
        full = f"{title} · {name}" if title else name
        return document(full, whole, self._style, self._script, class_=off or None).encode(
            "utf-8", "backslashreplace"
        )

    def problem(self, text: str, state: State | None = None) -> bytes:
        """A page that says what is wrong."""
        told = el("p", text, class_="note bad", role="alert")
        back = el("p", el("a", "All records", href="records"))
        return self.page(state or State(), "", told, back, title="Not found")

    def _head(self, state: State, current: str) -> Markup:
        tabs = []
        for name in ("grid", "list", "overview"):
            href = link("overview", {"q": state.q}) if name == "overview" else state.seen_as(name)
            at = "page" if name == current else None
            tabs.append(el("a", name.capitalize(), href=href, class_="button", aria_current=at))
        hint = f"{self.data.columns[0]}=…, or text" if self.data.columns else "label=3, or text"
        search = el(
            "form",
            el("label", "Search", for_="q", class_="hidden"),
            el("input", id="q", name="q", value=state.q, placeholder=hint, type="search", autocomplete="off"),
            el("input", type="hidden", name="view", value=state.view),
            el("input", type="hidden", name="off", value=",".join(state.off)) if state.off else None,
            el("button", "Search", class_="main"),
            class_="search",
            role="search",
            action="records",
        )
        jump = el(
            "form",
            el("label", "Go to record", for_="at", class_="hidden"),
            el(
                "input",
                id="at",
                name="at",
                size=9,
                placeholder="position",
                inputmode="numeric",
                autocomplete="off",
            ),
            el("button", "Go"),
            action="record",
        )
        count = el("span", count_text(self.data.count, "record"), class_="soft")
        name = el("div", el("h1", self.data.title), count, class_="name")
        keys = el("button", "?", id="help", type="button", aria_label="Keyboard shortcuts")
        nav = el("nav", *tabs, aria_label="Views")
        return el("header", name, nav, search, jump, keys)


def _help() -> Markup:
    rows = []
    for keys, meaning in _KEYS:
        shown = joined(*(el("kbd", key) for key in keys.split()))
        rows += [el("dt", shown), el("dd", meaning)]
    close = el("form", el("button", "Close", class_="main"), method="dialog")
    return el(
        "dialog", el("h2", "Keyboard", id="keys-title"), el("dl", *rows), close, aria_labelledby="keys-title"
    )


def note(text: Markup | str) -> Markup:
    """A paragraph that stands out."""
    return el("p", text, class_="note")
