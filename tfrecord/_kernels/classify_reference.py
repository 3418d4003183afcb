"""Classifies one payload as evidence of its file's record type, in plain Python: the twin of `classify.h`."""

from __future__ import annotations

from tfrecord._kernels.codes import BYTES, FLOAT, INT64, RecordClass
from tfrecord._kernels.wire_reference import fields

__all__ = ["classify"]

# The wire types of field 1 in each list of values.
_VALUE_TYPES = {BYTES: (2,), FLOAT: (2, 5), INT64: (2, 0)}


class _Signs:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.clean = self.lists = self.strange = False

    def values(self, start: int, end: int, kind: int, depth: int) -> None:
        for number, wire, _, _ in fields(self.data, start, end, depth):
            self.strange |= number != 1 or wire not in _VALUE_TYPES[kind]

    def feature(self, start: int, end: int, depth: int) -> bool:
        has_kind = False
        for number, wire, first, last in fields(self.data, start, end, depth):
            if wire == 2 and number in _VALUE_TYPES:
                has_kind = True
                self.values(first, last, number, depth + 1)
            else:
                self.strange = True
        return has_kind

    def steps(self, start: int, end: int) -> bool:
        has_kind = False
        for number, wire, first, last in fields(self.data, start, end, 3):
            if wire == 2 and number == 1:
                has_kind |= self.feature(first, last, 4)
            else:
                self.strange = True
        return has_kind

    def entry(self, start: int, end: int, is_list: bool) -> None:
        key, has_kind = b"", False
        for number, wire, first, last in fields(self.data, start, end, 2):
            if wire == 2 and number == 1:
                key = self.data[first:last]
            elif wire == 2 and number == 2:
                has_kind |= self.steps(first, last) if is_list else self.feature(first, last, 3)
            else:
                self.strange = True
        good_key = min(key, default=0x20) >= 0x20
        self.strange |= not good_key
        self.lists |= is_list
        self.clean |= good_key and has_kind

    def entries(self, start: int, end: int, is_list: bool) -> None:
        for number, wire, first, last in fields(self.data, start, end, 1):
            if wire == 2 and number == 1:
                self.entry(first, last, is_list)
            else:
                self.strange = True


def classify(data: bytes) -> RecordClass:
    """The class of a message that parses."""
    signs = _Signs(data)
    for number, wire, start, end in fields(data, 0, len(data), 0):
        if wire == 2 and number in (1, 2):
            signs.entries(start, end, number == 2)
        else:
            signs.strange = True
    if signs.clean:
        return RecordClass.SEQUENCE if signs.lists else RecordClass.EXAMPLE
    if signs.strange:
        return RecordClass.FOREIGN
    return RecordClass.NEUTRAL_LISTS if signs.lists else RecordClass.NEUTRAL
