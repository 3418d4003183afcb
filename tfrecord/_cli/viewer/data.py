"""The data that the page of `tfrecord view` shows, as JSON: everything by position, nothing by path."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.errors import TFRecordError
from tfrecord._cli.choosing import parse_condition, positions_where
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.describe import kind_of, value_text
from tfrecord._cli.sniffing import Content, as_text, sniff_bytes
from tfrecord._cli.terminal import safe
from tfrecord._reading.index_columns import settled_type
from tfrecord.reader import TFRecordReader

_TEXT = 300
_LONG_TEXT = 50_000
_LONG_LIST = 2000
_MEDIA_A_FEATURE = 4
_SEARCHES = 8
_SAMPLE = 2000
_BINS = 24
_POINTS = 60
_MOST_ROWS = 200
_MOST_FEATURES = 200


class NotFound(Exception):
    """The requested item does not exist; the text says what does."""


class ViewData:
    """The records of a reader for the page. Safe to use from several threads.

    ``about`` are lines that the page shows above its features. ``record_type``: as for `TFRecordReader`.
    """

    def __init__(
        self, reader: TFRecordReader[Any], about: Sequence[str] = (), record_type: str = "auto"
    ) -> None:
        self.reader = reader
        self.about = [safe(line) for line in about]
        self._record_type = settled_type(reader._view.store, record_type).name
        self.count = len(reader)
        self._searches: OrderedDict[str, npt.NDArray[np.int64]] = OrderedDict()
        self._lock = threading.Lock()

    def info(self) -> dict[str, Any]:
        """A summary of the files."""
        names = [safe(os.path.basename(path)) for path in self.reader.paths]
        columns = list(self.reader.index.columns)
        found: dict[str, str] = {}
        for position in range(min(self.count, 20)):
            for where, name, value in self._known_features(position):
                if where == "" and (name not in found or found[name] == "no kind"):
                    found[name] = kind_of(value)
        return {
            "title": names[0] if len(names) == 1 else f"{len(names)} files, {names[0]} …",
            "files": names[:1000],
            "about": self.about,
            "num_files": len(names),
            "records": self.count,
            "index_columns": columns,
            "features": [{"name": name, "kind": found[name]} for name in sorted(found)],
        }

    def _known_features(self, position: int) -> list[tuple[str, str, Any]]:
        """The named features of a record; none if it is damaged or not a message."""
        try:
            kind, features = self._features(position)
        except TFRecordError:
            return []
        return [] if kind == "bytes" else features

    # Records.

    def page(self, start: int, count: int, where: str) -> dict[str, Any]:
        """`count` records from `start`, of all records or of those that match the conditions."""
        chosen = None if not where else self.search(where)
        total = self.count if chosen is None else len(chosen)
        start = max(0, min(start, total))
        stop = min(total, start + max(1, min(count, _MOST_ROWS)))
        positions = range(start, stop) if chosen is None else chosen[start:stop].tolist()
        return {"total": total, "start": start, "records": [self.record(position) for position in positions]}

    def record(self, position: int, full: bool = False) -> dict[str, Any]:
        """One record; `full`: with long texts and lists. For a damaged one, what is wrong with it."""
        self._check(position)
        path, number = self.reader.locate(position)
        head = {"position": position, "file": safe(os.path.basename(path)), "record": number}
        try:
            kind, features = self._features(position)
            size = len(self.reader.raw(position))
        except TFRecordError as error:
            return {**head, "error": safe(str(error).replace(path, os.path.basename(path)))}
        most = len(features) if full else _MOST_FEATURES
        shown = [self._feature(position, where, name, value, full) for where, name, value in features[:most]]
        return {**head, "type": kind, "size": size, "features": shown, "hidden": len(features) - len(shown)}

    def _check(self, position: int) -> None:
        if not 0 <= position < self.count:
            raise NotFound(f"there is no record {position}; there are {self.count}")

    def _features(self, position: int) -> tuple[str, list[tuple[str, str, Any]]]:
        payload = self.reader.raw(position)
        kind = self._record_type
        if kind == "bytes":
            return kind, [("", "", payload)]
        context, lists = exact_record(payload, kind)
        features = [("", name, value) for name, value in sorted(context.items())]
        return kind, features + [("steps", name, value) for name, value in sorted((lists or {}).items())]

    def _feature(self, position: int, where: str, name: str, value: Any, full: bool) -> dict[str, Any]:
        item: dict[str, Any] = {
            "name": name,
            "where": where,
            "kind": kind_of(value) if where == "" else "steps",
        }
        values = _byte_values(value)
        if isinstance(value, list):
            item["text"] = value_text(value, _LONG_TEXT if full else _TEXT)
            return item
        if values is None:
            item["text"] = _numbers_text(value) if full else value_text(value)
            if value is not None and len(value) > 8:
                item["points"] = _points(value)
            return item
        contents = [sniff_bytes(one) for one in values[:_MEDIA_A_FEATURE]]
        item["media"] = [
            {"index": i, "kind": content.kind, "label": content.label}
            for i, content in enumerate(contents)
            if content.kind in ("image", "audio") and content.mime
        ]
        item["text"] = _full_text(values) if full else value_text(value, _TEXT)
        item["more"] = any(content.kind == "text" for content in contents) and sum(map(len, values)) > _TEXT
        return item

    def media(self, position: int, where: str, name: str, index: int) -> tuple[Content, bytes]:
        """One byte string of a record, and what it is."""
        self._check(position)
        _, features = self._features(position)
        value = next((value for at, key, value in features if (at, key) == (where, name)), None)
        values = _byte_values(value)
        if values is None or not 0 <= index < len(values):
            raise NotFound("there is no such value")
        return sniff_bytes(values[index]), bytes(values[index])

    # Choosing and counting.

    def search(self, where: str) -> npt.NDArray[np.int64]:
        """Positions that match `label=3` or several conditions joined by `and`; recent results are cached."""
        with self._lock:
            if where in self._searches:
                self._searches.move_to_end(where)
                return self._searches[where]
        conditions = [parse_condition(part) for part in where.split(" and ")]
        columns = self.reader.index.columns
        for condition in conditions:
            if condition.column not in columns:
                kept = ", ".join(columns) or "none"
                raise NotFound(
                    f"the index has no column {condition.column!r} (it has: {kept}). "
                    f"Build it: tfrecord index FILES --columns {condition.column}"
                )
        found = positions_where(self.reader, conditions)
        with self._lock:
            self._searches[where] = found
            while len(self._searches) > _SEARCHES:
                self._searches.popitem(last=False)
        return found

    def histogram(self, name: str, where: str) -> dict[str, Any]:
        """The distribution of a feature's values: over all records from an index column, otherwise over a
        sample."""
        columns = self.reader.index.columns
        chosen = self.search(where) if where else None
        if name in columns:
            column: Any = columns[name]
            column = column if chosen is None else column[chosen]
            return {"name": name, "of": len(column), "sampled": False, **_distribution(column)}
        positions = np.arange(self.count, dtype=np.int64) if chosen is None else chosen
        if len(positions) > _SAMPLE:
            positions = positions[np.linspace(0, len(positions) - 1, _SAMPLE).astype(np.int64)]
        values = [value for position in positions for value in self._values_at(int(position), name)]
        if not values:
            raise NotFound(f"no record has a feature {name!r}")
        return {
            "name": name,
            "of": len(positions),
            "sampled": len(positions) < (self.count if chosen is None else len(chosen)),
            **_distribution(_as_array(values)),
        }

    def _values_at(self, position: int, name: str) -> Iterable[Any]:
        features = self._known_features(position)
        value = next((value for where, key, value in features if where == "" and key == name), None)
        if value is None:
            return []
        values: Any = _byte_values(value)
        if values is None:
            values = value
        return values[:1000]  # type: ignore[no-any-return]


def _as_array(values: list[Any]) -> npt.NDArray[Any]:
    if isinstance(values[0], (bytes, memoryview)):
        short = all(len(value) <= 64 for value in values)
        made = np.empty(len(values), object)
        made[:] = [bytes(value) if short else len(value) for value in values]
        return made if short else made.astype(np.int64)
    return np.array(values)


def _byte_values(value: Any) -> list[Any] | None:
    """The byte strings of a feature; None if it holds numbers or has no kind."""
    if isinstance(value, (bytes, memoryview)):
        return [value]
    return list(value) if isinstance(value, np.ndarray) and value.dtype == object else None


def _full_text(values: list[Any]) -> str:
    shown = []
    for value in values[:100]:
        text = as_text(bytes(value[:_LONG_TEXT]))
        shown.append(safe(text, keep="\n\t") if text is not None else sniff_bytes(value).label)
    return "\n\n".join(shown)


def _numbers_text(value: Any) -> str:
    if value is None:
        return "(no kind)"
    form: Callable[[Any], str] = (lambda item: f"{float(item):.7g}") if value.dtype.kind == "f" else str
    text = ", ".join(form(item) for item in value[:_LONG_LIST].tolist())
    return text if len(value) <= _LONG_LIST else f"{text}, … {len(value)} values"


def _points(value: Any) -> list[float]:
    """Some of the numbers, scaled to 0..1, for a line plot."""
    places = np.linspace(0, len(value) - 1, min(_POINTS, len(value))).astype(np.int64)
    points = value[places].astype(np.float64)
    points = points[np.isfinite(points)]
    if not len(points):
        return []
    low, high = points.min(), points.max()
    scaled = (points - low) / (high - low) if high > low else np.full(len(points), 0.5)
    return [round(float(point), 3) for point in scaled]


def _distribution(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Bars: a range or a value, and its count."""
    values = values.reshape(-1)
    if values.dtype.kind in "SO":
        unique, counts = np.unique(values, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_BINS]
        bars = [{"label": value_text(bytes(unique[i]), 60), "count": int(counts[i])} for i in order]
        return {"bars": bars, "different": len(unique)}
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not len(finite):
        return {"bars": [], "different": 0}
    low, high = finite.min().item(), finite.max().item()
    if values.dtype.kind in "iub" and high - low < _BINS:
        counts = np.bincount((finite - low).astype(np.int64), minlength=high - low + 1)
        bars = [{"label": str(low + i), "count": int(count)} for i, count in enumerate(counts)]
        return {"bars": bars, "min": low, "max": high, "mean": float(finite.mean())}
    counts, edges = np.histogram(finite.astype(np.float64), _BINS)
    bars = [
        {"label": f"{edges[i]:.5g} … {edges[i + 1]:.5g}", "count": int(count)}
        for i, count in enumerate(counts)
    ]
    mean = float(finite.mean(dtype=np.float64))
    return {"bars": bars, "min": low, "max": high, "mean": mean, "not_finite": len(values) - len(finite)}


__all__ = ["NotFound", "ViewData"]
