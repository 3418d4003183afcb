"""The overview: statistics of a sample at once and of everything in the background, files, damage."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from indexer.errors import TFRecordError
from tfrecord._cli.columnstats import BatchStats, payload_stats
from tfrecord._cli.common import count_text, size_text
from tfrecord._cli.stats import document
from tfrecord._cli.viewer.data import Positions, ViewData
from tfrecord._cli.viewer.frame import Frame, State, note
from tfrecord._cli.viewer.html import Markup, el, link
from tfrecord._cli.viewer.jobs import Job
from tfrecord._cli.viewer.parts import Pages, Parts, progress
from tfrecord._cli.viewer.report import feature_cards, summary
from tfrecord._cli.viewer.search import Searches
from tfrecord._columns.decoding import bad_rows
from tfrecord._kernels.record_type import RecordTypeName
from tfrecord.repair import Damage, verify

_TOP = 8
_MOST_FILES = 1000
_MOST_DAMAGES = 500
_KEPT = 4


class _Stopped(Exception):
    """Ends a check of the files."""


class Statistics:
    """Statistics of some records; those that are no messages count as records without features."""

    def __init__(self, data: ViewData, positions: Positions | range) -> None:
        self._data = data
        self.result = BatchStats()
        self.invalid = 0
        self.job = Job(self._steps(positions), len(positions))
        self.lock = threading.Lock()

    def _steps(self, positions: Positions | range) -> Iterator[int]:
        for piece in self._data.chunks(positions):
            self.add(piece)
            yield len(piece)

    def add(self, positions: Positions) -> None:
        """Read and count records."""
        payloads, places = self._data.payloads(positions)
        lost = len(positions) - len(places)
        kind = self._data.record_type
        try:
            found = payload_stats(payloads, kind, so_far=self.result)
        except TFRecordError:
            good = np.ones(len(payloads), np.bool_)
            good[[row for row, _ in bad_rows(payloads)]] = False
            lost += int((~good).sum())
            found = payload_stats(payloads[good], kind, so_far=self.result)
        with self.lock:
            self.result.merge(found)
            self.result.rows += lost
            self.invalid += lost

    def document(self) -> dict[str, Any]:
        """The statistics so far."""
        with self.lock:
            return document(self.result, _TOP)


class Check:
    """`verify` of all files on a thread."""

    def __init__(self, data: ViewData) -> None:
        self._data = data
        self._lock = threading.Lock()
        self.damages: list[Damage] = []
        self.num_damages = 0
        self.done = self.total = 0
        self.state = "new"
        self.error = ""

    def start(self) -> None:
        """Begin; after a stop, from the beginning."""
        with self._lock:
            if self.state in ("new", "stopped"):
                self.state, self.damages, self.num_damages, self.done = "running", [], 0, 0
                threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        """Stop at the next report of progress."""
        if self.state == "running":
            self.state = "stopping"

    def _run(self) -> None:
        try:
            verify(
                self._data.paths,
                compression_type=self._data.store.options.compression_type,
                record_type=cast(RecordTypeName, self._data.record_type),
                progress=self._report,
                on_damage=self._add,
            )
            self.state = "done"
        except _Stopped:
            self.state = "stopped"
        except Exception as error:  # told on the page
            self.error, self.state = f"{type(error).__name__}: {error}", "failed"

    def _report(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.state == "stopping":
            raise _Stopped

    def _add(self, damage: Damage) -> None:
        self.num_damages += 1
        if len(self.damages) < _MOST_DAMAGES:
            self.damages.append(damage)


class Overview(Pages):
    """Makes the page of the overview."""

    def __init__(self, parts: Parts, searches: Searches, frame: Frame) -> None:
        super().__init__(parts, searches, frame)
        self._samples: OrderedDict[str, Statistics] = OrderedDict()
        self._wholes: OrderedDict[str, Statistics] = OrderedDict()
        self._check = Check(self.data)
        self._lock = threading.Lock()

    def page(self, state: State, query: Mapping[str, str]) -> bytes:
        """The page. ``all=1`` in its address begins the statistics of everything and ``all=stop`` stops them;
        so does ``check`` with the check of all files."""
        found = self._searches.find(state.q)
        positions = found.all()
        if query.get("check") == "1":
            self._check.start()
        elif query.get("check") == "stop":
            self._check.stop()
        address = {"q": state.q, "all": query.get("all"), "check": query.get("check")}
        is_searching = found.job is not None and found.job.state == "running"
        wants_all = query.get("all") in ("1", "stop") and not is_searching
        if wants_all:
            stats = self._whole(state.q, positions)
            if query["all"] == "1":
                stats.job.start()
                stats.job.wait(0.02)
            else:
                stats.job.stop()
        else:  # while a search runs, what it found is looked at whenever that has doubled
            stage = len(positions).bit_length() if is_searching else len(positions) + 64
            stats = self._sample(state.q, stage, positions)
        is_checking = self._check.state in ("running", "stopping")
        is_running = is_searching or is_checking or stats.job.state == "running"
        counted = stats.document()
        of = f"of {count_text(len(positions), 'record')}{' found' if state.q else ''}"
        if counted["records"] < len(positions):
            of = f"of {counted['records']:,} {of}"
        body = [
            el("h2", f"Features {of}"),
            el("p", summary(counted), class_="soft"),
            self._bad(stats),
            note("The search is still running.") if is_searching else None,
            None if is_searching else self._progress(stats, address, len(positions), wants_all),
            feature_cards(counted, self.parts.hints.class_text),
            el("h2", "Files"),
            self._damage(address),
            self._files(),
            self._about(),
        ]
        notes = self.parts.problems(20)
        live = el("div", *body, id="live", data_open=True)
        status = el("div", id="status", data_running=is_running)
        return self._frame.page(state, "overview", *notes, status, live, title="Overview")

    # ---- statistics ----------------------------------------------------------------------------------------

    def _sample(self, q: str, stage: int, positions: Positions | range) -> Statistics:
        with self._lock:
            key = f"{stage} {q}"
            if key not in self._samples:
                stats = self._samples[key] = Statistics(self.data, positions)
                if len(positions):
                    stats.add(self.data.sample(positions))
                while len(self._samples) > _KEPT:
                    self._samples.popitem(last=False)
            return self._samples[key]

    def _whole(self, q: str, positions: Positions | range) -> Statistics:
        with self._lock:
            key = f"{len(positions)} {q}"
            if key not in self._wholes:
                for other in self._wholes.values():
                    other.job.stop()
                self._wholes[key] = Statistics(self.data, positions)
                while len(self._wholes) > _KEPT:
                    self._wholes.popitem(last=False)
            return self._wholes[key]

    @staticmethod
    def _bad(stats: Statistics) -> Markup | None:
        if not stats.invalid:
            return None
        are = (
            "is damaged or not a valid message" if stats.invalid == 1 else "are damaged or not valid messages"
        )
        return el(
            "p",
            f"{count_text(stats.invalid, 'record')} {are}: counted as records without features.",
            class_="bad",
        )

    @staticmethod
    def _progress(
        stats: Statistics, address: Mapping[str, Any], count: int, wants_all: bool
    ) -> Markup | None:
        go, stop = (link("overview", {**address, "all": value}) for value in ("1", "stop"))
        if not wants_all:
            if stats.result.rows >= count:
                return None
            return el("p", el("a", f"Count all {count:,} records", href=go, class_="button"))
        if stats.job.error:
            return note(stats.job.error)
        if stats.job.has_ended:
            return None
        return progress("Counting", stats.job.state, stats.job.done, count, go, stop)

    # ---- files ---------------------------------------------------------------------------------------------

    def _files(self) -> Markup:
        store = self.data.store
        rows = []
        starts = store.starts.tolist()
        for number, path in enumerate(self.data.paths[:_MOST_FILES]):
            index = store.given[number]
            kept = f" ({', '.join(index.columns)})" if index is not None and len(index.columns) else ""
            state = "none" if index is None else "extended" if index.metadata else "text"
            first, count = starts[number], starts[number + 1] - starts[number]
            name: Markup | str = os.path.basename(path)
            if self.data.view.selection is None and count:
                name = el("a", name, href=link("records", {"start": first}))
            try:
                size = size_text(store.index(number).file_size)
            except TFRecordError:
                size = "?"
            opened = el("a", "bytes", href=link("bytes", {"file": number}))
            cells = [el("td", name), el("td", f"{count:,}", class_="n"), el("td", size, class_="n")]
            rows.append(
                el(
                    "tr",
                    *cells,
                    el("td", store.compression(number) or "–"),
                    el("td", state + kept),
                    el("td", opened),
                )
            )
        heads = (("file", ""), ("records", "n"), ("bytes", "n"), ("compression", ""), ("index", ""), ("", ""))
        head = el("tr", *(el("th", text, scope="col", class_=name or None) for text, name in heads))
        more = len(self.data.paths) - len(rows)
        foot = el("p", f"and {count_text(more, 'more file')}", class_="soft") if more else None
        table = el("table", el("thead", head), el("tbody", *rows))
        return el("div", table, foot, class_="wide", tabindex=0, role="region", aria_label="Files")

    def _damage(self, address: Mapping[str, Any]) -> Markup:
        check = self._check
        go, stop = (link("overview", {**address, "check": value}) for value in ("1", "stop"))
        files = count_text(len(self.data.paths), "file")
        if check.state == "new":
            told: Any = el("p", el("a", f"Check {files} for damage", href=go, class_="button"))
        elif check.state == "done":
            told = el(
                "p",
                f"{count_text(check.num_damages, 'damaged place')} in {files}.",
                class_="bad" if check.num_damages else None,
            )
        elif check.state == "failed":
            told = note(check.error)
        else:
            is_running = check.state == "running"
            words = f"{'Checking' if is_running else 'Stopped'}: "
            words += f"{size_text(check.done)} of {size_text(check.total)}, "
            words += f"{count_text(check.num_damages, 'damaged place')} so far"
            bar = el("progress", value=check.done, max=max(check.total, 1), aria_label="Checking")
            action = el(
                "a", "Stop" if is_running else "Begin again", href=stop if is_running else go, class_="button"
            )
            told = el("div", el("span", words), bar, action, class_="status")
        items = [self._damaged(damage) for damage in list(check.damages)]
        return el("div", told, el("ul", *items) if items else None)

    def _damaged(self, damage: Damage) -> Markup:
        text = str(damage).replace(damage.path, os.path.basename(damage.path))
        if damage.offset is None or damage.path not in self.data.paths:
            return el("li", text)
        place = {"file": self.data.paths.index(damage.path), "offset": damage.offset}
        return el("li", text, " ", el("a", "bytes", href=link("bytes", place)))

    def _about(self) -> Markup | None:
        if not self.data.about:
            return None
        return el("div", el("h2", "Folder"), el("pre", "\n".join(self.data.about)))
