"""Parts that several pages share: pictures with what lies over them, bodies of records, links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfrecord._cli.common import count_text
from tfrecord._cli.viewer.cells import Cells, hex_dump
from tfrecord._cli.viewer.data import Shown, ViewData
from tfrecord._cli.viewer.frame import OVERLAYS, Frame, State, note
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.html import Markup, el, joined, link
from tfrecord._cli.viewer.objects import (
    Picture,
    boxes_drawing,
    boxes_of,
    caption_of,
    main_picture,
    masks_of,
    own_picture,
)
from tfrecord._cli.viewer.pictures import Pictures
from tfrecord._cli.viewer.search import Searches
from tfrecord._cli.viewer.vocab import Vocabulary

HEX_BYTES = 128
_TINY = 64
LIST_THUMB = 480
_LARGE = 1024


@dataclass
class Parts:
    """Makes parts of pages. ``overlays`` names what the records have of `OVERLAYS`; ``usual_view`` is "grid"
    for a set of images, else "list"."""

    data: ViewData
    hints: Hints
    vocabularies: Sequence[Vocabulary]
    pictures: Pictures
    overlays: tuple[str, ...] = field(init=False)
    usual_view: str = field(init=False)

    def __post_init__(self) -> None:
        first = self.data.first()
        shown = [record for record in first if own_picture(record, self.hints)]
        self.usual_view = "grid" if first and len(shown) * 2 >= len(first) else "list"
        there = {
            "boxes": any(self.boxes(record, False) for record in shown),
            "masks": any(self.has_mask(record) for record in shown),
            "labels": any(self.caption(record) for record in shown),
        }
        self.overlays = tuple(name for name in OVERLAYS if there[name])

    def state(self, query: Mapping[str, str]) -> State:
        """The state in an address."""
        return State.of(query, self.usual_view)

    # ---- pictures ------------------------------------------------------------------------------------------

    def boxes(self, record: Shown, with_labels: bool) -> Markup | None:
        """The boxes of a record over its picture."""
        picture = main_picture(record, self.hints)
        return picture and boxes_drawing(boxes_of(record, picture, self.hints), picture, with_labels)

    def has_mask(self, record: Shown) -> bool:
        """Whether there is a mask that can be shown."""
        return self.pictures.can_shrink and bool(masks_of(record, self.hints))

    def caption(self, record: Shown) -> str:
        """A few words for a record: its label, else those of its boxes."""
        text = caption_of(record, self.hints, self.data.columns)
        picture = None if text else main_picture(record, self.hints)
        boxes = boxes_of(record, picture, self.hints) if picture else []
        return text or ", ".join(dict.fromkeys(box.label for box in boxes[:20] if box.label))

    def framed(self, record: Shown, picture: Picture, source: str, with_labels: bool, width: int) -> Markup:
        """A picture with what lies over it."""
        tiny = "tiny" if 0 < max(picture.width, picture.height) <= _TINY else None
        alt = ", ".join(filter(None, (self.caption(record), picture.label)))
        size = {"width": picture.width or None, "height": picture.height or None}
        image = el("img", src=source, alt=alt, class_=tiny, loading="lazy", **size)
        mask = None
        if self.has_mask(record):
            place = link("mask", {"position": record.position, "width": width})
            mask = el("img", src=place, alt="", class_="mask")
        return el("span", image, mask, self.boxes(record, with_labels), class_="frame")

    # ---- records -------------------------------------------------------------------------------------------

    @staticmethod
    def where(record: Shown) -> Markup:
        """The file, the number in it and the size of a record."""
        words = f"{record.name} · record {record.number:,}"
        if record.payload is not None:
            words += f" · {len(record.payload):,} bytes"
        return el("span", words, class_="soft")

    @staticmethod
    def downloads(record: Shown, picture: Picture | None = None) -> Markup | None:
        """Links to keep a record: as JSON, as a TFRecord file of one record, and its image."""
        if record.payload is None:
            return None
        place = {"position": record.position}
        links = [("TFRecord", link("frame", place))]
        if not record.error:
            links.insert(0, ("JSON", link("json", place)))
        if picture is not None:
            links.append(("Image", link("media", {**picture.place.query(), "save": 1})))
        made = (
            el("a", text, href=href, download=True, aria_label=f"Download as {text}") for text, href in links
        )
        return el("span", *made, class_="links")

    def body(self, record: Shown, cells: Cells, picture: Picture | None, source: str | None = None) -> Markup:
        """What is in a record, or what is wrong with it."""
        if record.error:
            return el("div", el("p", record.error, class_="bad"), *self._bytes_of(record), class_="body")
        if picture is None:
            return cells.features(record)
        features = replace(cells, over=picture.place).features(record)
        width = LIST_THUMB if source is None else _LARGE
        source = source or link("thumb", {**picture.place.query(), "width": width})
        return el("div", self.framed(record, picture, source, True, width), features, class_="with-picture")

    def problems(self, most: int) -> list[Markup]:
        """What the reader met: damage with a link to its bytes, and doubts about the type of the records."""
        made = []
        for error in self.data.problems[:most]:
            path, offset = getattr(error, "path", None), getattr(error, "offset", None)
            text: Markup | str = self.data.text_of(error)
            if path in self.data.paths and offset is not None:
                place = {"file": self.data.paths.index(path), "offset": offset}
                text = joined(text, " ", el("a", "bytes", href=link("bytes", place)))
            made.append(note(text))
        more = len(self.data.problems) - len(made)
        made += [note(f"and {count_text(more, 'more problem')}")] if more > 0 else []
        return made + ([note(self.data.warning)] if self.data.warning else [])

    def _bytes_of(self, record: Shown) -> list[Markup]:
        """The bytes of a damaged record: its payload, if that is whole, else where it is in the file."""
        if record.payload is not None:
            told = f"The first bytes of the payload ({len(record.payload):,} bytes):"
            return [el("p", told), hex_dump(bytes(record.payload[:HEX_BYTES]))]
        data, size = self.data.file_bytes(record.file, record.offset, HEX_BYTES)
        place = link("bytes", {"file": record.file, "offset": record.offset})
        told = f"The file from offset {record.offset:,} (it has {size:,} bytes; a header has 12):"
        return [el("p", told), hex_dump(data, record.offset), el("p", el("a", "more bytes", href=place))]

    # ---- links ---------------------------------------------------------------------------------------------

    def toggles(self, state: State, address: Callable[[str], str]) -> list[Markup]:
        """A switch for each overlay; ``address`` makes the address of the page with these off."""
        made = []
        for name in self.overlays:
            off = [part for part in OVERLAYS if (part in state.off) != (part == name)]
            pressed = "false" if name in state.off else "true"
            made.append(
                el(
                    "a",
                    name.capitalize(),
                    role="button",
                    class_="button",
                    data_off=name,
                    aria_pressed=pressed,
                    href=address(",".join(off)),
                )
            )
        return made


class Pages:
    """What makes pages: their parts, searches, and the frame around them."""

    def __init__(self, parts: Parts, searches: Searches, frame: Frame) -> None:
        self.parts, self.data = parts, parts.data
        self._searches, self._frame = searches, frame


def steps(label: str, items: Iterable[tuple[str, str, str, str | None]]) -> Markup:
    """Links to go on and back: a mark, what it means, its ``rel``, and the address, None at an end."""
    made = []
    for mark, meaning, rel, href in items:
        at_end = {"role": "link", "aria_disabled": "true"} if href is None else {}
        made.append(el("a", mark, class_="button", aria_label=meaning, rel=rel or None, href=href, **at_end))
    return el("nav", *made, class_="pager", aria_label=label)


def progress(what: str, state: str, done: int, total: int, go: str, stop: str) -> Markup:
    """Work in the background: how far it is, and a link to stop or continue it."""
    is_running = state == "running"
    words = f"{what if is_running else 'Stopped'}: {done:,} of {total:,} records"
    bar = el("progress", value=done, max=max(total, 1), aria_label=what)
    action = el("a", "Stop" if is_running else "Continue", href=stop if is_running else go, class_="button")
    return el("div", el("span", words), bar, action, class_="status")
