"""Statistics as HTML: cards of the columns, for the viewer and for a page that is one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrecord._cli.common import MOST_ROWS, count_text, size_text
from tfrecord._cli.describe import counted_text, number_text
from tfrecord._cli.viewer.drawings import histogram, share
from tfrecord._cli.viewer.html import Markup, asset, document, el, inline_hash, joined

_MOST_FILES = 1000


def feature_cards(found: Mapping[str, Any], names: Callable[[str, int], str] | None = None) -> Markup:
    """A card for each column of `tfrecord._cli.stats.document`; ``names`` gives the name of a class, by the
    feature and the number."""
    items: Sequence[Mapping[str, Any]] = found["columns"]
    if not items:
        told = "The records are not Examples: there are no features." if found["records"] else "No records."
        return el("p", told, class_="soft")
    cards = [_card(item, found["records"], names) for item in items[:MOST_ROWS]]
    more = len(items) - len(cards)
    note = el("p", f"and {count_text(more, 'more feature')}", class_="soft") if more else None
    return joined(el("div", *cards, class_="cards"), note)


def _card(item: Mapping[str, Any], records: int, names: Callable[[str, int], str] | None) -> Markup:
    kind = item["kind"] + (" steps" if item.get("where") else "")
    share = f" ({item['present'] / records:.1%})" if item["missing"] and records else ""
    facts = [
        ("present", f"{item['present']:,}{share}"),
        ("missing", f"{item['missing']:,}"),
        ("steps per record", _spread(item["steps_per_record"]) if "steps_per_record" in item else ""),
        ("values per record", _spread(item["values_per_record"])),
    ]
    what = "size" if item["of"] == "bytes" else "range"
    if item["min"] is not None:
        low, high, mean = (number_text(item[key]) for key in ("min", "max", "mean"))
        unit = " bytes" if item["of"] == "bytes" else ""
        facts += [(what, f"{low}{unit}" if low == high else f"{low} to {high}{unit}"), ("mean", mean + unit)]
    if item["not_finite"]:
        facts.append(("not finite", f"{item['not_finite']:,}"))
    return el(
        "article",
        el("h3", item["name"] or "(no name)", el("span", kind, class_="chip")),
        el(
            "dl", *(el("div", el("dt", name), el("dd", text)) for name, text in facts if text), class_="facts"
        ),
        histogram(item["histogram"], number_text(item["min"]), number_text(item["max"])),
        _top(item, names),
        class_="card",
    )


def _spread(per: Mapping[str, Any]) -> str:
    if per["min"] == per["max"]:
        return f"{per['max']:,}"
    return f"{per['min']:,} to {per['max']:,}, mean {number_text(per['mean'])}"


def top_values(item: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The most frequent values of a column; none if its values differ."""
    top: Sequence[Mapping[str, Any]] = item["top"]
    if not top or (item["values"] > 2 and top[0]["count"] == 1) or top[0]["count"] <= 2 * item["top_error"]:
        return []
    return top


def _top(item: Mapping[str, Any], names: Callable[[str, int], str] | None) -> Markup | None:
    def text(value: Any) -> str:
        name = names(item["name"], value) if names is not None and isinstance(value, int) else ""
        return counted_text(value, item["kind"], 40) + (f" ({name})" if name else "")

    about = "about " if item["top_error"] else ""
    rows = [
        el(
            "li",
            el("span", text(entry["value"])),
            share(entry["count"] / item["values"]),
            el("b", f"{about}{entry['count']:,}"),
        )
        for entry in top_values(item)
    ]
    return el("ol", *rows, class_="top", aria_label="Most frequent values") if rows else None


def summary(found: Mapping[str, Any]) -> str:
    """How much there is, in one line."""
    words = f"{count_text(found['records'], 'record')}, {size_text(found['bytes'])}"
    sizes = found["record_bytes"]
    if sizes["mean"] is not None:
        words += f"; {sizes['min']:,} to {sizes['max']:,} bytes per record, {sizes['mean']:,.0f} on average"
    return words


def report(found: Mapping[str, Any], paths: Sequence[str], invalid: int = 0) -> str:
    """A page of its own: no script, and nothing from elsewhere."""
    names = [os.path.basename(path) or path for path in paths]
    title = names[0] if len(names) == 1 else f"{names[0]} and {count_text(len(names) - 1, 'more file')}"
    style = asset("page.css")
    are = "is not a valid message" if invalid == 1 else "are not valid messages"
    bad = f"{count_text(invalid, 'record')} {are}: counted as records without features."
    listed = el("ul", *(el("li", name) for name in names[:_MOST_FILES]))
    body = el(
        "main",
        el("h1", title),
        el("p", summary(found), class_="soft"),
        el("p", bad, class_="bad") if invalid else None,
        el("details", el("summary", count_text(len(names), "file")), listed) if len(names) > 1 else None,
        el("h2", "Features"),
        feature_cards(found),
        class_="report",
    )
    policy = f"default-src 'none'; style-src {inline_hash(style)}; img-src data:"
    return document(title, body, style, policy=f"{policy}; base-uri 'none'; form-action 'none'")
