"""What a record shows: its picture, the boxes and masks over it, and its label."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfrecord._cli.describe import bytes_text, number_text
from tfrecord._cli.sniffing import as_text, sniff_bytes
from tfrecord._cli.viewer.data import Place, Shown, byte_values
from tfrecord._cli.viewer.drawings import svg
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.html import Markup, el

_MOST_BOXES = 300
_MASK = re.compile(r"(?i)mask|segment")
_BOX = re.compile(r"(?i)(?:^|[/_.])(?:bbox|boxes|bounding_box(?:es)?)$")
_SIZE = re.compile(r" (\d+)x(\d+)$")
_LABELS = re.compile(
    r"(?i)^(?:image/)?(?:class|label|category)(?:[/_](?:text|name|label|id))?$|^(?:caption|text|image_class|target|y)$"
)


class Picture(NamedTuple):
    """An image of a record; its size is that in its header, 0 where that has none."""

    place: Place
    label: str
    mime: str
    width: int
    height: int


class Box(NamedTuple):
    """A box from 0 to 1 in both directions."""

    left: float
    top: float
    right: float
    bottom: float
    label: str


def own_picture(record: Shown, hints: Hints) -> Picture | None:
    """The first image of a record, if it is of the record as a whole and not of a step."""
    found = main_picture(record, hints)
    if found is None or found.place.step is not None:
        return None
    return None if any(found.place.name in keys for keys in hints.sequences.values()) else found


def picture_of(place: Place, data: Any) -> Picture | None:
    """The picture that these bytes are, if a browser can show it."""
    content = sniff_bytes(data)
    if content.kind != "image" or not content.mime:
        return None
    size = _SIZE.search(content.label)
    width, height = (int(size[1]), int(size[2])) if size else (0, 0)
    return Picture(place, content.label, content.mime, width, height)


def main_picture(record: Shown, hints: Hints) -> Picture | None:
    """The first image of a record that is not a mask: of its features, else of its steps."""
    if record.kind == "bytes":
        return picture_of(Place(record.position), record.payload) if record.payload is not None else None
    for name, value in record.context.items():
        values = byte_values(value)
        if values and not is_mask(name, hints):
            found = picture_of(Place(record.position, name), values[0])
            if found:
                return found
    for name, steps in record.lists.items():
        values = byte_values(steps[0]) if steps else None
        if values and not is_mask(name, hints):
            found = picture_of(Place(record.position, name, 0), values[0])
            if found:
                return found
    return None


def is_mask(name: str, hints: Hints) -> bool:
    """Whether an image feature of this name is a mask."""
    return name in hints.masks or bool(_MASK.search(name))


def masks_of(record: Shown, hints: Hints) -> list[Any]:
    """The encoded masks of a record."""
    found = []
    for name, value in record.context.items():
        if is_mask(name, hints):
            found += [one for one in byte_values(value) or () if sniff_bytes(one).kind == "image"]
    return found


# ---- boxes -------------------------------------------------------------------------------------------------


def boxes_of(record: Shown, picture: Picture, hints: Hints) -> list[Box]:
    """The boxes of a record: ``.../xmin`` and so on, as the Object Detection API has them, and the boxes of
    TFDS (ymin, xmin, ymax, xmax), from 0 to 1 or in pixels."""
    sides = []
    for name in record.context:
        if name.endswith("xmin"):
            stem = name.removesuffix("xmin")
            parts = [_numbers(record.context.get(stem + side)) for side in ("xmin", "ymin", "xmax", "ymax")]
            known = [part for part in parts if part is not None]
            if len(known) == 4 and len({len(part) for part in known}) == 1:
                sides.append((np.stack(known, axis=1), stem))
        elif name in hints.boxes or _BOX.search(name):
            values = _numbers(record.context[name])
            if values is not None and len(values) and len(values) % 4 == 0:
                sides.append((values.reshape(-1, 4)[:, [1, 0, 3, 2]], name))
    found: list[Box] = []
    for values, name in sides:
        if (values > 2).any() and picture.width and picture.height:
            values = values / np.array([picture.width, picture.height] * 2)
        label = _labels(record, name, len(values), hints)
        for row, box in enumerate(values[:_MOST_BOXES].tolist()):
            if np.isfinite(box).all() and max(map(abs, box)) < 10:
                found.append(Box(box[0], box[1], box[2], box[3], label(row)))
    return found


def _numbers(value: Any) -> Any:
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "if"
    return value.astype(np.float64) if is_array else None


def _labels(record: Shown, name: str, count: int, hints: Hints) -> Callable[[int], str]:
    """The label of each box: of a feature beside the boxes that has one value for each."""
    above = re.sub(r"(?:bbox/|bbox|boxes|bounding_box(?:es)?)$", "", name)
    for end in (
        "class/text",
        "text",
        "label_text",
        "class_name",
        "class/label",
        "label",
        "labels",
        "class",
        "category",
    ):
        key = above + end
        value = record.context.get(key)
        texts = byte_values(value)
        if texts is not None and len(texts) == count:
            return lambda row, texts=texts: (as_text(bytes(texts[row][:200])) or "")[:40]  # type: ignore[misc]
        numbers = _numbers(value)
        if numbers is not None and len(numbers) == count:
            return lambda row, key=key, numbers=numbers: (  # type: ignore[misc]
                hints.class_text(key, int(numbers[row])) or f"{numbers[row]:g}"
            )
    return lambda row: ""


def boxes_drawing(boxes: list[Box], picture: Picture, with_labels: bool) -> Markup | None:
    """The boxes over a picture: a drawing that fits into a frame as the picture does."""
    if not boxes:
        return None
    width, height = picture.width or 1000, picture.height or 1000
    size = max(width, height) / 30
    drawn = []
    for left, top, right, bottom, label in boxes:
        place = {"x": f"{left * width:.5g}", "y": f"{top * height:.5g}"}
        place |= {
            "width": f"{max(right - left, 0) * width:.5g}",
            "height": f"{max(bottom - top, 0) * height:.5g}",
        }
        shapes = [
            el("title", label) if label else None,
            el("rect", **place, class_="under"),
            el("rect", **place),
        ]
        if label and with_labels:
            at = {"x": f"{left * width + size / 5:.5g}", "y": f"{max(top, 0) * height + size * 1.1:.5g}"}
            shapes.append(el("text", label, **at, font_size=f"{size:.4g}"))
        drawn.append(el("g", *shapes))
    told = f"{len(boxes)} boxes" if len(boxes) > 1 else "1 box"
    return svg("boxes", width, height, *drawn, label=told, fit="xMidYMid meet")


# ---- labels ------------------------------------------------------------------------------------------------


def caption_of(record: Shown, hints: Hints, columns: tuple[str, ...]) -> str:
    """A few words for a record: its class, else a text or a number that says what it is."""
    names = [name for name in hints.names if name in record.context]
    names += sorted((name for name in record.context if _LABELS.match(name)), key=_rank)
    names += [name for name in columns if name in record.context]
    return next(filter(None, (short_text(record, name, hints) for name in names)), "")


def _rank(name: str) -> tuple[bool, str]:
    return not re.search(r"(?i)text|name|caption", name), name


def short_text(record: Shown, name: str, hints: Hints) -> str:
    """The single value of a feature in a few words, "" if it has none or several."""
    value = record.context[name]
    values = byte_values(value)
    if values is not None:
        if len(values) != 1 or sniff_bytes(values[0]).kind != "text":
            return ""
        return bytes_text(values[0], 60).strip('"')
    if value is None or len(value) != 1:
        return ""
    number = value[0].item()
    return (
        hints.class_text(name, int(number))
        if name in hints.names
        else f"{name.rsplit('/', 1)[-1]} {number_text(number)}"
    )
