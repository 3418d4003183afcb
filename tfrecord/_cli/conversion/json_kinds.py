"""Kinds for JSON that does not give them: one kind per feature, decided from all documents of all files.

JSON has one type of number, so a feature with fractions in any line is a float in all of them. An explicit
kind (`{"int64": [1]}`) is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

TAGS = ("int64", "float", "text", "base64")


def is_tagged(value: Any, names: tuple[str, ...] = TAGS) -> bool:
    """Whether a value gives its kind: an object with one of these names and nothing else."""
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in names


class JsonKinds:
    """The kinds of untagged features, collected from all documents before the first becomes a record.

    `round_floats` lets an integer in a column of floats become the nearest float32.
    """

    def __init__(self, round_floats: bool = False) -> None:
        self.round_floats = round_floats
        # For a feature, or a feature list, the first place of each of "text", "int64" and "float".
        self._places: dict[tuple[bool, str], dict[str, str]] = {}

    def note(self, context: dict[str, Any], lists: dict[str, Any], place: str) -> None:
        """Note the features of one document. Raises ValueError for values that no feature can hold.

        `place` says in an error where the document is: ``line 3 of a.jsonl``.
        """
        for key, value in context.items():
            self._note(False, key, value, place)
        for key, steps in lists.items():
            for step in steps if isinstance(steps, list) else ():
                self._note(True, key, step, place)

    def note_for_good(self, context: dict[str, Any], lists: dict[str, Any], place: str) -> None:
        """`note` for documents of which each becomes a record before the next is seen.

        Raises ValueError for fractions in a feature whose numbers were integers until now.
        """
        features = [*((False, key) for key in context), *((True, key) for key in lists)]
        integers = [feature for feature in features if self.kind_of(*feature) == "int64"]
        self.note(context, lists, place)
        for in_list, key in integers:
            if self.kind_of(in_list, key) != "int64":
                there = self._places[in_list, key]["int64"]
                raise ValueError(
                    f"feature {key!r}: a fraction here, but an integer in {there}; give the kind of both: "
                    '{"float": [1]}'
                )

    def _note(self, in_list: bool, key: str, value: Any, place: str) -> None:
        seen = self._places.setdefault((in_list, key), {})
        if is_tagged(value):
            if "float" in value:
                seen.setdefault("float", place)
            return
        for kind in _kinds(key, value):
            other = "text" if kind != "text" else next((k for k in ("int64", "float") if k in seen), None)
            if other in seen:
                here, there = _NAMES[kind], _NAMES[str(other)]
                raise ValueError(
                    f"feature {key!r}: {here} here, but {there} in {seen[str(other)]}; a feature has one kind"
                )
            seen.setdefault(kind, place)

    def kind_of(self, in_list: bool, key: str) -> str | None:
        """`int64`, `float` or `text`; None if no document has a value."""
        seen = self._places.get((in_list, key), {})
        return next((kind for kind in ("text", "float", "int64") if kind in seen), None)

    def float32(self, key: str, item: Any) -> Any:
        """A number as a float32. Fractions are rounded, because JSON is decimal; integers must be exact."""
        if not isinstance(item, (int, float)):
            raise ValueError(f"feature {key!r}: a value is not a number")
        try:
            with np.errstate(over="ignore"):
                value = np.float32(item)
        except OverflowError:
            value = np.float32(np.inf)
        if np.isinf(value) and not (isinstance(item, float) and math.isinf(item)):
            raise ValueError(f"feature {key!r}: {_short(item)} is too large for a float")
        if isinstance(item, int) and int(value) != item and not self.round_floats:
            raise ValueError(
                f"feature {key!r}: {item} is not exact as float32, which the column needs for its fractions; "
                "--round-floats takes the nearest"
            )
        return value


_NAMES = {"text": "text", "int64": "a number", "float": "a number"}


def _kinds(key: str, value: Any) -> Iterator[str]:
    if value is None or value == {}:
        return
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, str):
            yield "text"
        elif isinstance(item, int):  # bool too
            yield "int64"
        elif isinstance(item, float):
            yield "float"
        else:
            raise ValueError(
                f"feature {key!r}: a feature must be numbers, strings, or an object with its kind"
            )


def _short(item: Any) -> str:
    text = repr(item) if not isinstance(item, int) or item.bit_length() < 256 else "an integer"
    return text if len(text) < 80 else "a number"
