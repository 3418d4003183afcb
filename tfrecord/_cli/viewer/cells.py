"""The values of features as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecord._cli.common import count_text
from tfrecord._cli.describe import bytes_text, kind_of, value_text
from tfrecord._cli.sniffing import as_text, sniff_bytes
from tfrecord._cli.viewer.data import Place, Shown, byte_values
from tfrecord._cli.viewer.drawings import sparkline, waveform
from tfrecord._cli.viewer.hints import Hints
from tfrecord._cli.viewer.html import Markup, el, joined, link
from tfrecord._cli.viewer.objects import is_mask
from tfrecord._cli.viewer.pictures import SHOWN
from tfrecord._cli.viewer.sounds import samples_of
from tfrecord._cli.viewer.vocab import Vocabulary
from tfrecord._kernels.record_type import payload_looks_like

_TEXT = 300
_LONG_TEXT = 50_000
_LONG_LIST = 2000
_MEDIA = 4
_MORE_MEDIA = 40
_TOKENS = 200
_MORE_TOKENS = 5000
_STEP_TOKENS = 50
_STEPS = 30
_MORE_STEPS = 200
_FEATURES = 200
_MORE_FEATURES = 5000
_HEX_BYTES = 256
_SOUNDS = frozenset("audio/wav audio/flac audio/ogg audio/mpeg".split())


@dataclass(frozen=True)
class Cells:
    """Renders values. ``full``: long ones too, and more steps, from ``first_step`` on. ``over``: the picture
    that is shown beside them, with the masks; these are not shown again."""

    hints: Hints
    vocabularies: Sequence[Vocabulary] = ()
    full: bool = False
    first_step: int = 0
    step_link: Callable[[int], str] | None = None
    over: Place | None = None

    def features(self, record: Shown) -> Markup:
        """All features of a record as a list of terms."""
        if record.kind == "bytes":
            return self._payload(record)
        groups = self._sequences(record)
        inside = {name for rows in groups.values() for name in rows}
        rows: list[Markup] = []
        for prefix, keys in groups.items():
            steps = {name: _split(record.context[name], size) for name, size in keys.items()}
            rows.append(self._strip(record, prefix or "steps", prefix, steps, False))
        if record.lists:
            rows.append(self._strip(record, "steps", "", record.lists, True))
        names = [name for name in record.context if name not in inside]
        most = _MORE_FEATURES if self.full else _FEATURES
        for name in names[:most]:
            rows.append(self._row(name, kind_of(record.context[name]), self.value(record, name)))
        if len(names) > most:
            rows.append(el("dt", f"and {count_text(len(names) - most, 'more feature')}"))
        if not rows:
            rows.append(el("dt", "no features"))
        return el("dl", *rows, class_="features")

    @staticmethod
    def _row(name: str, kind: str, value: Markup) -> Markup:
        return joined(el("dt", name or "(no name)"), el("dd", kind, class_="kind"), value)

    def _payload(self, record: Shown) -> Markup:
        data = record.payload if record.payload is not None else b""
        what = payload_looks_like(data)
        told = f"The record is not an Example{f'; it looks like {what}' if what else ''}."
        shown = self._bytes([data], lambda index: Place(record.position))
        parts = [el("p", told, class_="soft"), el("p", *shown)]
        if sniff_bytes(data).kind in ("data", "text"):
            parts.append(hex_dump(bytes(data[: _HEX_BYTES * (16 if self.full else 1)])))
        return el("div", *parts, class_="body")

    # ---- one feature ---------------------------------------------------------------------------------------

    def value(self, record: Shown, name: str) -> Markup:
        """One feature as a definition."""
        value = record.context[name]
        values = byte_values(value)
        if values is not None:
            return el("dd", *self._bytes(values, lambda index: Place(record.position, name, None, index)))
        if value is None:
            return el("dd", "(no kind)")
        if kind_of(value) == "int64":
            vocabulary = self._vocabulary(name, value)
            if vocabulary is not None:
                most = _MORE_TOKENS if self.full else _TOKENS
                return el("dd", *_tokens(value, vocabulary, most), class_="tokens")
            if name in self.hints.names and len(value) <= 50:
                return el("dd", ", ".join(self._class(name, number) for number in value.tolist()))
        text = _numbers_text(value) if self.full else value_text(value)
        return el("dd", text, sparkline(value) if len(value) > 8 else None)

    def _class(self, name: str, number: int) -> str:
        text = self.hints.class_text(name, number)
        return f"{number} ({text})" if text else str(number)

    def _vocabulary(self, name: str, values: Any) -> Vocabulary | None:
        """The vocabulary of these numbers of a feature."""
        return next((one for one in self.vocabularies if one.speaks_of(name, values)), None)

    def _bytes(self, values: list[Any], place: Callable[[int], Place]) -> list[Markup | str]:
        most = _MORE_MEDIA if self.full else _MEDIA
        media = [
            made
            for i, one in enumerate(values[:most])
            if not self._is_over(place(i)) and (made := _medium(one, place(i))) is not None
        ]
        if self.full:
            return [full_text(values), *media]
        made = values[0] if len(values) == 1 else _as_objects(values)
        return [value_text(made, _TEXT), *media]

    def _is_over(self, place: Place) -> bool:
        return self.over is not None and (place == self.over or is_mask(place.name, self.hints))

    # ---- steps ---------------------------------------------------------------------------------------------

    def _sequences(self, record: Shown) -> dict[str, dict[str, int]]:
        """The sequences of TFDS of which this record has all values for each entry."""
        found: dict[str, dict[str, int]] = {}
        for prefix, keys in self.hints.sequences.items():
            fits = {
                name: size
                for name, size in keys.items()
                if record.context.get(name) is not None and len(_as_list(record.context[name])) % size == 0
            }
            counts = {len(_as_list(record.context[name])) // size for name, size in fits.items()}
            if len(counts) == 1 and max(counts) > 0:
                found[prefix] = fits
        return found

    def _strip(
        self, record: Shown, title: str, prefix: str, lists: dict[str, Any], are_lists: bool
    ) -> Markup:
        """Features that have a value for each step: a table, one column a step."""
        count = max((len(steps) for steps in lists.values()), default=0)
        most = _MORE_STEPS if self.full else _STEPS
        first = self.first_step if self.full and self.first_step < count else 0
        shown = range(first, min(count, first + most))
        head = el("tr", el("td"), *(el("th", step, scope="col") for step in shown))
        body = []
        for name, steps in list(lists.items())[:_FEATURES]:
            short = name.removeprefix(prefix).lstrip("/") or name
            size = 1 if are_lists else self.hints.sequences[prefix][name]
            vocabulary = self._vocabulary(name, _integers(steps)) if self.vocabularies else None
            cells = []
            for step in shown:
                place = (
                    Place(record.position, name, step)
                    if are_lists
                    else Place(record.position, name, None, step * size)
                )
                value = steps[step] if step < len(steps) else None
                cells.append(el("td", self._step(name, value, place, vocabulary)))
            body.append(el("tr", el("th", short, scope="row"), *cells))
        table = el("table", el("thead", head), el("tbody", *body))
        noun = "step" if are_lists or "step" in prefix else "object"
        told = count_text(count, noun)
        label = f"{title}, {told}"
        if len(shown) < count:
            told += f", {shown.start:,} to {max(shown.stop - 1, 0):,} shown"
        more = []
        if self.step_link is not None and first > 0:
            more.append(el("a", f"earlier {noun}s", href=self.step_link(max(0, first - most))))
        if self.step_link is not None and shown.stop < count:
            more.append(el("a", f"later {noun}s", href=self.step_link(shown.stop)))
        strip = el("div", table, class_="strip", tabindex=0, role="region", aria_label=label)
        links = (joined(" ", one) for one in more)
        first_row = self._row(title, noun + "s", el("dd", told, *links))
        return joined(first_row, el("dd", strip, class_="across"))

    def _step(
        self, name: str, value: Any, place: Place, vocabulary: Vocabulary | None = None
    ) -> Markup | str:
        values = byte_values(value)
        if value is None or not len(value):
            return "–"
        if values is not None:
            medium = _medium(values[0], place, 160)
            return medium if medium is not None and len(values) == 1 else value_text(_as_objects(values), 60)
        if vocabulary is not None and kind_of(value) == "int64":
            return el("span", *_tokens(value, vocabulary, _STEP_TOKENS), class_="tokens")
        if len(value) > 4:
            return sparkline(value)
        if len(value) == 1 and kind_of(value) == "int64":
            return self._class(name, int(value[0]))
        return ", ".join(f"{number:.4g}" for number in value.tolist())


def _tokens(values: Any, vocabulary: Vocabulary, most: int) -> list[Markup | str]:
    """The texts of the first tokens, each with its number."""
    shown: list[Markup | str] = [
        el("span", vocabulary.text(number) or " ", title=number) for number in values[:most].tolist()
    ]
    return shown + ([f" … {count_text(len(values), 'token')}"] if len(values) > most else [])


def _integers(steps: Sequence[Any]) -> Any:
    """All integers of some steps."""
    found = [one for one in steps if one is not None and kind_of(one) == "int64"]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _as_list(value: Any) -> Any:
    values = byte_values(value)
    return value if values is None else values


def _split(value: Any, size: int) -> list[Any]:
    """The values of each step of a sequence that TFDS flattened."""
    values = _as_list(value)
    return [
        _as_objects(values[at : at + size]) if isinstance(values, list) else values[at : at + size]
        for at in range(0, len(values), size)
    ]


def _as_objects(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _medium(data: Any, place: Place, width: int = 360) -> Markup | None:
    """An image or a sound as the browser shows it."""
    content = sniff_bytes(data)
    if content.mime in SHOWN:
        source = link("thumb", {**place.query(), "width": width})
        return el("img", src=source, alt=f"{place.name}: {content.label}", loading="lazy")
    if content.mime in _SOUNDS:
        samples = samples_of(data) if content.mime == "audio/wav" else None
        drawn = waveform(samples, f"Waveform, {content.label}") if samples is not None else None
        label = f"{place.name}: {content.label}"
        more = {"controls": True, "preload": "none", "aria_label": label, "data_draw": drawn is None}
        sound = el("audio", src=link("media", place.query()), **more)
        return joined(drawn, sound)
    return None


def full_text(values: list[Any]) -> str:
    """Texts as they are, other values by their format; the first hundred."""
    shown = []
    for value in values[:100]:
        text = as_text(bytes(value[:_LONG_TEXT])) if sniff_bytes(value).kind == "text" else None
        cut = f"… {len(value):,} bytes" if text is not None and len(value) > _LONG_TEXT else ""
        shown.append(bytes_text(value) if text is None else text + cut)
    more = [f"… {len(values):,} values"] if len(values) > 100 else []
    are_short = all(len(text) <= 80 and "\n" not in text for text in shown)
    return ("\n" if are_short else "\n\n").join(shown + more)


def _numbers_text(value: Any) -> str:
    form: Callable[[Any], str] = (lambda item: f"{float(item):.7g}") if value.dtype.kind == "f" else str
    text = ", ".join(form(item) for item in value[:_LONG_LIST].tolist())
    return text if len(value) <= _LONG_LIST else f"{text}, … {len(value):,} values"


def hex_dump(data: bytes, start: int = 0) -> Markup:
    """Bytes in rows of 16: their offset, in hexadecimal, and as ASCII."""
    rows = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start + at:>10,}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_}")
    return el("pre", "\n".join(rows), class_="hex", tabindex=0, role="region", aria_label="Bytes")
