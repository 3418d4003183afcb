"""The records that the viewer shows, by position: their values, or what is wrong with them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import TFRecordError
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.index_columns import settled_type
from tfrecord._reading.view import RecordView

Positions = npt.NDArray[np.int64]

_SAMPLE = 2000
_SAMPLE_BYTES = 16 << 20
_CHUNK = 4096
_CHUNK_BYTES = 16 << 20
_LOOKED_AT = 20


class NotFound(Exception):
    """The requested item does not exist; the text says what does."""


@dataclass(frozen=True)
class Place:
    """Where one byte string or list of numbers is: a feature of a record; of a feature list, one step."""

    position: int
    name: str = ""
    step: int | None = None
    index: int = 0

    def query(self) -> dict[str, object]:
        """As the query of an address."""
        return {"position": self.position, "name": self.name, "step": self.step, "index": self.index or None}


@dataclass
class Shown:
    """One record. ``kind`` is "example", "sequence_example" or "bytes". If ``error`` is not "", the record is
    damaged, or its payload is not a valid message; ``payload`` is None if its bytes cannot be trusted."""

    position: int
    file: int
    path: str
    number: int
    offset: int
    kind: str
    payload: memoryview | None = None
    context: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return os.path.basename(self.path)


class ViewData:
    """The records of a reader, for the pages. Safe to use from several threads.

    ``about`` are lines about the folder, ``title`` what it is called. ``record_type``: as for
    `TFRecordReader`. ``problems`` are the errors that the reader met when it looked for records, if it skips
    them.
    """

    def __init__(
        self,
        reader: Any,
        about: Sequence[str] = (),
        record_type: str = "auto",
        problems: Sequence[TFRecordError] = (),
        title: str = "",
    ) -> None:
        view = reader._view  # a reader of windows has a view of its own kind
        self.view = RecordView(view.store, view.decoder, view.selection)
        self.store = self.view.store
        self.paths: tuple[str, ...] = reader.paths
        self.about = list(about)
        self.count = len(reader)
        self.problems = list(problems)  # those of single records, which it meets later, are shown with these
        settled = settled_type(self.store, record_type)
        self.record_type = settled.name
        self.warning = re.sub(r"^.*/", "", settled.warning)  # which begins with a path
        self._index = reader.index
        self.columns: tuple[str, ...] = tuple(self._index.columns)
        self._kept: dict[str, npt.NDArray[Any]] = {}
        self._lock = threading.Lock()
        names = [os.path.basename(path) for path in self.paths]
        self.title = title or (names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more")

    # ---- one record ----------------------------------------------------------------------------------------

    def record(self, position: int) -> Shown:
        """One record; of a damaged one, what is wrong with it."""
        if not 0 <= position < self.count:
            there = f"there are {self.count:,}, from 0" if self.count else "there are none"
            raise NotFound(f"there is no record {position:,}; {there}")
        stored = int(self.view.stored(np.array([position]))[0])
        file, number = self.store.locate(stored)
        offset = int(self.store.index(file).offsets[number])
        shown = Shown(position, file, self.paths[file], number, offset, self.record_type)
        try:
            shown.payload = self.view.fetch_one(position)[0]
            if self.record_type != "bytes":
                context, lists = exact_record(shown.payload, self.record_type)
                shown.context, shown.lists = (
                    dict(sorted(context.items())),
                    dict(sorted((lists or {}).items())),
                )
        except TFRecordError as error:
            shown.error = self.text_of(error)
        return shown

    def text_of(self, error: TFRecordError) -> str:
        """An error with the names of files in place of their paths."""
        text = str(error)
        path = getattr(error, "path", None)
        return text.replace(path, os.path.basename(path)) if path else text

    def value(self, place: Place) -> Any:
        """The byte strings, or the numbers, of one feature. Raises NotFound."""
        record = self.record(place.position)
        if record.kind == "bytes" and record.payload is not None:
            return [record.payload]
        value = record.context.get(place.name) if place.step is None else None
        if place.step is not None:
            steps = record.lists.get(place.name, [])
            value = steps[place.step] if 0 <= place.step < len(steps) else None
        if value is None:
            raise NotFound("there is no such value")
        return byte_values(value) if byte_values(value) is not None else value

    def bytes_at(self, place: Place) -> memoryview | bytes:
        """One byte string. Raises NotFound."""
        value = self.value(place)
        if not isinstance(value, list) or not 0 <= place.index < len(value):
            raise NotFound("there is no such value")
        found: memoryview | bytes = value[place.index]
        return found

    def file_bytes(self, file: int, offset: int, length: int) -> tuple[bytes, int]:
        """Bytes of a file (decompressed), as many as there are, and its size."""
        if not 0 <= file < len(self.paths):
            raise NotFound("there is no such file")
        source = self.store.open(file)
        offset = max(0, min(offset, source.size))
        return bytes(source.view(offset, min(length, source.size - offset))), source.size

    # ---- many records --------------------------------------------------------------------------------------

    def column(self, name: str) -> npt.NDArray[Any]:
        """An index column, one value for each record."""
        with self._lock:
            if name not in self._kept:
                column = self._index.columns[name]
                selection = self.view.selection
                self._kept[name] = column if selection is None else column[selection]
            return self._kept[name]

    def chunks(self, positions: Positions | range) -> Iterator[Positions]:
        """Positions in pieces of at most 4,096 records and about 16 MB."""
        at = 0
        while at < len(positions):
            part = positions[at : at + _CHUNK]
            piece = np.arange(part.start, part.stop) if isinstance(part, range) else part
            ends = np.cumsum(self.view.sizes(piece))
            piece = piece[: max(1, int(np.searchsorted(ends, _CHUNK_BYTES, "right")))]
            at += len(piece)
            yield piece

    def payloads(self, positions: Positions) -> tuple[BytesColumn, Positions]:
        """The payloads at these positions, without the damaged ones, and where they are."""
        try:
            found = self.view.fetch(positions)
            if len(found) == len(positions):
                return found.payloads, positions
        except TFRecordError:
            pass
        good, rows = [], []
        for position in positions.tolist():
            try:
                good.append(self.view.fetch_one(position)[0])
                rows.append(position)
            except TFRecordError:
                continue
        return BytesColumn.from_list(good), np.array(rows, np.int64)

    def sample(self, positions: Positions | range) -> Positions:
        """Some of these positions, spread evenly: at most 2,000 records and about 16 MB."""
        count = min(_SAMPLE, len(positions))
        places = np.linspace(0, len(positions) - 1, count).astype(np.int64)
        chosen = places if isinstance(positions, range) else positions[places]
        size = int(self.view.sizes(chosen).sum())
        return chosen[:: max(1, -(-size // _SAMPLE_BYTES))]

    def first(self) -> list[Shown]:
        """Some of the first records that can be read."""
        records = map(self.record, range(min(self.count, _LOOKED_AT)))
        return [record for record in records if not record.error]


def byte_values(value: Any) -> list[Any] | None:
    """The byte strings of a feature; None if it holds numbers or has no kind."""
    if isinstance(value, (bytes, memoryview)):
        return [value]
    return list(value) if isinstance(value, np.ndarray) and value.dtype == object else None
