"""Small drawings in SVG. They use no styles of their own, which the page's policy would refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._cli.describe import number_text
from tfrecord._cli.viewer.html import Markup, el

_POINTS = 240


def svg(name: str, width: float, height: float, *children: Any, label: str = "", fit: str = "none") -> Markup:
    """A drawing of class ``name``; ``fit`` is SVG's preserveAspectRatio: "none" stretches it over its box.
    Without a label it is only decoration."""
    # SVG's names have capitals, also in HTML.
    box = {"viewBox": f"0 0 {width:g} {height:g}", "preserveAspectRatio": fit, "class_": name}
    told = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    return el("svg", *children, **box, **told)


def share(part: float) -> Markup:
    """A part of a whole as a bar."""
    whole = el("rect", width=100, height=8, class_="whole")
    return svg("share", 100, 8, whole, el("rect", width=f"{100 * part:.4g}", height=8))


def bars(items: Sequence[tuple[str, int]], label: str) -> Markup:
    """A histogram: one bar for each text and count; the text shows when the pointer rests on the bar."""
    top = max((count for _, count in items), default=0) or 1
    drawn = []
    for place, (text, count) in enumerate(items):
        height = max(60 * count / top, 1 if count else 0)
        at = {"x": f"{place + 0.06:g}", "y": f"{60 - height:.4g}", "width": 0.88, "height": f"{height:.4g}"}
        whole = el("rect", x=place, y=0, width=1, height=60, class_="hit")
        drawn.append(el("g", el("title", f"{text}: {count:,}"), whole, el("rect", **at)))
    return svg("bars", max(len(items), 1), 60, *drawn, label=label)


def histogram(found: Sequence[Mapping[str, Any]], low: str, high: str) -> Markup | None:
    """The bars of statistics, with the least and the greatest number below; nothing for a single bar."""
    items = []
    for bar in found:
        first, end = bar["low"], bar["high"]
        is_one = isinstance(first, int) and end - first == 1
        text = number_text(first) if is_one else f"{number_text(first)} to {number_text(end)}"
        items.append((text, bar["count"]))
    if len(items) < 2:
        return None
    drawn = bars(items, f"Histogram from {low} to {high}")
    return el("figure", drawn, el("figcaption", el("span", low), el("span", high)))


def envelope(values: npt.NDArray[Any], points: int = _POINTS) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The least and the greatest of the numbers in each of so many stretches; 0 for one that is not
    finite."""
    starts = np.linspace(0, len(values), min(points, len(values)), endpoint=False).astype(np.int64)
    low, high = (way.reduceat(values, starts).astype(np.float64) for way in (np.fmin, np.fmax))
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)


def sparkline(values: npt.NDArray[Any]) -> Markup:
    """Numbers in order as a line; where there are many, the band between the least and the greatest."""
    low, high = envelope(values)
    least, greatest = low.min(), high.max()
    scale = 26 / (greatest - least) if greatest > least else 0.0
    label = f"{len(values):,} numbers from {number_text(float(least))} to {number_text(float(greatest))}"
    step = 100 / max(1, len(low) - 1)
    upper = [f"{i * step:.4g},{28 - scale * (y - least) if scale else 15:.4g}" for i, y in enumerate(high)]
    if len(values) <= _POINTS:
        return svg("line", 100, 30, el("polyline", points=" ".join(upper)), label=label)
    lower = [f"{i * step:.4g},{28 - scale * (y - least) if scale else 15:.4g}" for i, y in enumerate(low)]
    return svg("line", 100, 30, el("polygon", points=" ".join(upper + lower[::-1])), label=label)


def waveform(samples: npt.NDArray[Any], label: str) -> Markup:
    """Samples from -1 to 1 as a waveform; quiet sounds are drawn as they are, not louder."""
    low, high = envelope(samples)
    step = 100 / max(1, len(low))
    path = "".join(
        f"M{(i + 0.5) * step:.4g} {15 - 14 * min(top, 1):.4g}V{15 - 14 * max(bottom, -1) + 0.3:.4g}"
        for i, (bottom, top) in enumerate(zip(low.tolist(), high.tolist(), strict=True))
    )
    return svg("wave", 100, 30, el("path", d=path), label=label)
