"""The grid and the list of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfrecord._cli.viewer.cells import Cells, hex_dump
from tfrecord._cli.viewer.data import Shown
from tfrecord._cli.viewer.frame import SIZES, State, note
from tfrecord._cli.viewer.html import Markup, el, link
from tfrecord._cli.viewer.objects import main_picture, own_picture, short_text
from tfrecord._cli.viewer.parts import HEX_BYTES, LIST_THUMB, Pages, progress, steps
from tfrecord._cli.viewer.search import Found

_THUMB = 200
_SNIPPETS = 4


class Listing(Pages):
    """Makes the pages of many records."""

    def page(self, query: Mapping[str, str]) -> bytes:
        """Records as a grid or a list, all or those found; ``stop`` in the address stops a search."""
        state = self.parts.state(query)
        found = self._searches.find(state.q, stop="stop" in query)
        is_running = found.job is not None and found.job.state == "running"
        if state.start >= len(found) and not is_running:
            state = replace(state, start=_last(state, found))
        positions = self._searches.page(found, state.q, state.sort, state.start, state.start + state.size)
        records = [self.data.record(position) for position in positions]
        if records:
            shown = self._grid(state, records) if state.view == "grid" else self._list(state, records)
        elif found.job is not None and not found.job.has_ended:
            shown = el("p", "No matches so far.", class_="soft")
        else:
            shown = el("p", "No record matches." if state.q else "There are no records.", class_="soft")
        live = el("div", shown, id="live", data_open=is_running and len(records) < state.size)
        return self._frame.page(
            state,
            state.view,
            *self._problems(),
            self._tools(state, found),
            _status(state, found),
            live,
            _pager(state, found) if len(found) > state.size else None,
        )

    def _problems(self) -> list[Markup]:
        notes = self.parts.problems(3)
        if notes and not self.data.count:
            notes.append(hex_dump(self.data.file_bytes(0, 0, HEX_BYTES)[0]))
        return notes

    def _tools(self, state: State, found: Found) -> Markup:
        stop = min(len(found), state.start + state.size)
        told = (
            f"{state.start + 1:,} to {stop:,} of {len(found):,}" if stop > state.start else f"{len(found):,}"
        )
        title = el("h2", f"{told}{' found' if state.q else ''}", id="shown", class_="count")
        toggles = self.parts.toggles(state, lambda off: state.link(off=off))
        sorts = [("", "stored order")]
        sorts += [(f"{sign}{name}", name + more) for name in self.data.columns for sign, more in _ORDERS]
        sort = _select("sort", "Sort by", sorts, state.sort) if self.data.columns else None
        size = _select(
            "size", "Records per page", [(str(n), f"{n} per page") for n in SIZES], str(state.size)
        )
        kept = {"view": state.view, "q": state.q, "off": ",".join(state.off)}
        hidden = [el("input", type="hidden", name=name, value=value) for name, value in kept.items() if value]
        form = el("form", sort, size, el("button", "Show", class_="plain"), *hidden, action="records")
        return el("div", title, *toggles, form, _pager(state, found), class_="bar-of-tools")

    # ---- records -------------------------------------------------------------------------------------------

    def _list(self, state: State, records: Sequence[Shown]) -> Markup:
        cells = Cells(self.parts.hints, self.parts.vocabularies)
        pictures = [own_picture(record, self.parts.hints) for record in records]
        self.parts.pictures.prepare([one.place for one in pictures if one is not None], LIST_THUMB)
        cards = []
        for rank, (record, picture) in enumerate(zip(records, pictures, strict=True), state.start):
            title = el("h2", el("a", f"#{record.position:,}", href=_address(state, rank)))
            head = el("div", title, self.parts.where(record), self.parts.downloads(record), class_="head")
            body = self.parts.body(record, cells, picture)
            label = f"Record {record.position:,}"
            cards.append(el("article", head, body, class_="record item", tabindex=-1, aria_label=label))
        return el("div", *cards, class_="list")

    def _grid(self, state: State, records: Sequence[Shown]) -> Markup:
        found = [main_picture(record, self.parts.hints) for record in records]
        self.parts.pictures.prepare([one.place for one in found if one is not None], _THUMB)
        items = [
            self._thumb(_address(state, rank), record) for rank, record in enumerate(records, state.start)
        ]
        return el("ul", *items, class_="grid", aria_label="Records")

    def _thumb(self, href: str, record: Shown) -> Markup:
        picture = main_picture(record, self.parts.hints)
        if record.error:
            inside = el("span", el("span", record.error, class_="bad"), class_="frame")
        elif picture is None:
            texts = [short_text(record, name, self.parts.hints) for name in record.context]
            snippets = (el("span", text) for text in list(filter(None, texts))[:_SNIPPETS])
            inside = el("span", *snippets, class_="frame")
        else:
            source = link("thumb", {**picture.place.query(), "width": _THUMB})
            inside = self.parts.framed(record, picture, source, False, _THUMB)
        words = "damaged" if record.error else self.parts.caption(record)
        place = el("span", f"#{record.position:,}", class_="soft")
        caption = el("span", el("span", words), place, class_="caption")
        return el("li", el("a", inside, caption, class_="thumb item", href=href, title=words or None))


_ORDERS = (("", ""), ("-", ", descending"))


def _address(state: State, rank: int) -> str:
    """The page of one record, by its place among those found."""
    return state.link("record", at=rank, start=None, size=None)


def _last(state: State, found: Found) -> int:
    """Where the last page starts."""
    return max(0, (len(found) - 1) // state.size * state.size)


def _pager(state: State, found: Found) -> Markup:
    last = _last(state, found)

    def at(start: int, there: bool) -> str | None:
        return replace(state, start=max(0, start)).link() if there else None

    back, on = state.start > 0, state.start < last
    return steps(
        "Pages",
        (
            ("«", "First page", "", at(0, back)),
            ("‹", "Previous page", "prev", at(state.start - state.size, back)),
            ("›", "Next page", "next", at(state.start + state.size, on)),
            ("»", "Last page", "", at(last, on)),
        ),
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> Markup:
    items = [el("option", text, value=value, selected=value == chosen) for value, text in options]
    return el("select", *items, name=name, aria_label=label)


def _status(state: State, found: Found) -> Markup:
    """How far a search in the background is."""
    job = found.job
    told: list[Markup] = []
    if job is not None and not job.has_ended:
        address = state.link(), state.link(stop=1)
        told.append(progress("Searching", job.state, job.done, job.total, *address))
    elif job is not None and (job.error or found.unseen):
        names = ", ".join(map(repr, sorted(found.unseen)))
        told.append(note(job.error or f"No record has a feature {names}. To find text, put it in quotes."))
    return el("div", *told, id="status", data_running=job is not None and job.state == "running")
