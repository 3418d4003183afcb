"""One record with everything in it, the record as a file, and bytes of a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace

from indexer.framing import frame_record
from tfrecord._cli.common import json_line
from tfrecord._cli.conversion.json_and_tar import record_json
from tfrecord._cli.viewer.cells import Cells, hex_dump
from tfrecord._cli.viewer.data import NotFound, Place, Shown
from tfrecord._cli.viewer.frame import number
from tfrecord._cli.viewer.html import el, link
from tfrecord._cli.viewer.objects import own_picture
from tfrecord._cli.viewer.parts import Pages, steps

_PAGE = 4096
# A picture of more pixels is shown smaller.
_MOST_PIXELS = 24_000_000


class Single(Pages):
    """Makes the pages of one record."""

    def page(self, query: Mapping[str, str]) -> bytes:
        """One record, by its place among all or among those found; -1 is the last."""
        state = self.parts.state(query)
        found = self._searches.find(state.q)
        count, at = len(found), number(query, "at")
        at += count if at < 0 else 0
        positions = self._searches.page(found, state.q, state.sort, at, at + 1) if at >= 0 else []
        if not positions:
            there = f"there are {count:,}, from 0" if count else "there are none"
            raise NotFound(f"there is no record {at:,}; {there}")

        def address(to: int, **more: object) -> str:
            return state.link("record", **{"at": to, "start": None, "size": None, **more})

        record = self.data.record(positions[0])
        picture = None if record.error else own_picture(record, self.parts.hints)
        step = max(0, number(query, "step"))
        hints, vocabularies = self.parts.hints, self.parts.vocabularies
        cells = Cells(hints, vocabularies, True, step, lambda to: address(at, step=to or None))
        source = None
        if picture is not None:
            is_large = picture.width * picture.height > _MOST_PIXELS
            size = {"width": 1600} if is_large else {}
            source = link("thumb" if is_large else "media", {**picture.place.query(), **size})
        place = f" {at + 1:,} of {count:,}{' found' if state.q else ''}"
        title = el("h2", f"Record {record.position:,}", el("span", place, class_="soft"))
        back = replace(state, start=at // state.size * state.size).link()
        up = el("a", "All results" if state.q else "All records", href=back, class_="button", id="back")
        ends = (
            ("‹", "Previous record", "prev", address(at - 1) if at else None),
            ("›", "Next record", "next", address(at + 1) if at + 1 < count else None),
        )
        toggles = self.parts.toggles(state, lambda off: address(at, off=off)) if picture else []
        tools = el("div", title, *toggles, up, steps("Records", ends), class_="bar-of-tools")
        here = el("a", "Link to this record", href=link("record", {"at": record.position}))
        head = el("div", self.parts.where(record), here, self.parts.downloads(record, picture), class_="head")
        card = el("article", head, self.parts.body(record, cells, picture, source), class_="record")
        return self._frame.page(state, "", tools, card, title=f"#{record.position:,}")

    def place(self, query: Mapping[str, str]) -> Place:
        """The value that an address names."""
        step = number(query, "step") if "step" in query else None
        return Place(number(query, "position"), query.get("name", ""), step, number(query, "index"))

    # ---- files ---------------------------------------------------------------------------------------------

    def json(self, position: int) -> bytes:
        """A record as `tfrecord show --json` has it."""
        record = self._whole(position)
        if record.error:
            raise NotFound(record.error)
        document = record_json(record.payload, record.kind)
        found = {"path": record.name, "record": record.number, "type": record.kind, **document}
        return json.dumps(json.loads(json_line(found)), indent=1).encode() + b"\n"

    def tfrecord(self, position: int) -> bytes:
        """A record as a TFRecord file of one record."""
        return frame_record(self._whole(position).payload)

    def _whole(self, position: int) -> Shown:
        record = self.data.record(position)
        if record.payload is None:
            raise NotFound(record.error)
        return record

    def bytes_page(self, query: Mapping[str, str]) -> bytes:
        """Bytes of a file (decompressed) from an offset."""
        file, offset = number(query, "file"), max(0, number(query, "offset"))
        data, size = self.data.file_bytes(file, offset, _PAGE)
        offset = min(offset, size)

        def address(to: int) -> str:
            return link("bytes", {"file": file, "offset": max(0, to)})

        end = offset + len(data)
        ends = (
            ("‹", "Earlier bytes", "prev", address(offset - _PAGE) if offset else None),
            ("›", "Later bytes", "next", address(end) if end < size else None),
        )
        name = os.path.basename(self.data.paths[file])
        title = el("h2", f"{name}: bytes {offset:,} to {end:,} of {size:,}")
        tools = el("div", title, steps("Bytes", ends), class_="bar-of-tools")
        body = el("article", el("div", hex_dump(data, offset), class_="body"), class_="record")
        return self._frame.page(self.parts.state({}), "", tools, body, title=f"{name} at {offset:,}")
