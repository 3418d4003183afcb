"""Checking records without decoding them: the kernel, the reference and the decoder refuse the same ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_decode_property import Messages

from tfrecord._kernels import decode_reference
from tfrecord._kernels.engine import decode_kernel

# What is before the values is compared in two words, and one more for each 8 bytes from 16 to 64.
LENGTHS = [0, 1, 3, 5, 6, 7, 14, 15, 30, 53, 54, 55, 70, 120]
SETTINGS = settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))

seeds = st.randoms(use_true_random=False)


def statuses(engine: Any, records: list[bytes], padding: bytes = b"") -> list[int]:
    lengths = np.array([len(record) for record in records], np.int64)
    offsets = np.cumsum(lengths) - lengths
    found = engine.check_records((b"".join(records) + padding,), offsets, lengths)
    assert found.dtype == np.uint8
    return found.tolist()  # type: ignore[no-any-return]


def check(records: list[bytes], padding: bytes = b"") -> list[int]:
    expected = statuses(decode_reference, records)
    assert statuses(decode_kernel, records, padding) == expected
    zero = np.zeros(1, np.int64)
    for record, status in zip(records, expected, strict=True):
        found = decode_kernel.record_class(record)
        surveyed = decode_kernel.survey(record, zero, np.array([len(record)]))[0]
        assert found == decode_reference.record_class(record)
        assert bool(found) == (status == 0) == (surveyed == 0)
    return expected


class Rows(Messages):
    """Records of the same few features, as tables are stored, in which values differ."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__(choices)
        sizes = choices.sample(LENGTHS, choices.randrange(1, 6))
        self.columns = [
            ("k" * size, choices.randrange(1, 4), choices.choice([1, 1, 1, 2, 4])) for size in sizes
        ]

    def varint(self, value: int, most: int = 10) -> bytes:
        """Of the shortest form, so that entries are alike."""
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        return bytes([*out, value])

    def run(self, kind: int, count: int) -> bytes:
        if kind == 1:
            size = self.choices.choice([0, 1, 5, 30, 90, 130])
            return b"".join(self.field(1, self.choices.randbytes(size)) for _ in range(count))
        if kind == 2:
            return self.field(1, self.choices.randbytes(4 * count))
        return self.field(1, b"".join(self.varint(self.integer()) for _ in range(count)))

    def row(self) -> bytes:
        columns = self.columns
        if self.chance(10):
            columns = self.choices.sample(columns, len(columns))
        if self.chance(10):
            columns = columns[1:]
        entries = [
            self.field(1, key.encode()) + self.field(2, self.field(kind, self.run(kind, count)))
            for key, kind, count in columns
        ]
        features = self.field(1, b"".join(self.field(1, entry) for entry in entries))
        return features + (self.field(2, self.entries(self.steps)) if self.chance(10) else b"")


@given(choices=seeds)
@SETTINGS
def test_rows_of_a_table(choices: random.Random) -> None:
    rows = Rows(choices)
    records = [rows.row() for _ in range(choices.randrange(2, 12))]
    assert not any(check(records, choices.randbytes(choices.choice([0, 200]))))
    check([rows.mutated(record) if rows.chance(60) else record for record in records])


@pytest.mark.parametrize("lists", [False, True], ids=["example", "sequence"])
@given(choices=seeds)
@SETTINGS
def test_odd_messages(lists: bool, choices: random.Random) -> None:
    messages = Messages(choices)
    records = [messages.mutated(messages.message(lists)) for _ in range(choices.randrange(1, 5))]
    check(records * 2)


@given(records=st.lists(st.binary(max_size=60), max_size=4))
@SETTINGS
def test_random_bytes(records: list[bytes]) -> None:
    check(records)


def test_every_byte_of_a_record() -> None:
    """Each bit of each byte, in a record behind one that tells what to expect."""
    rows = Rows(random.Random(5))
    rows.columns = [("a", 3, 1), ("bytes", 1, 1), ("float", 2, 1), ("numbers", 3, 2)]
    good = rows.row()
    assert check([good]) == [0]
    for place, byte in enumerate(good):
        changed = [good[:place] + bytes([byte ^ 1 << bit]) + good[place + 1 :] for bit in range(8)]
        records = [record for one in changed for record in (good, one)]
        assert statuses(decode_kernel, records) == statuses(decode_reference, records), place


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_values_of_every_length(kind: int) -> None:
    """Lengths that all take one byte, rightly or not, in a record behind one that tells what to expect."""
    rows = Rows(random.Random(0))

    def record(key_length: int, run: bytes) -> bytes:
        size = len(run)
        entry, feature, values = ((size + more) & 255 for more in (key_length + 8, 4, 2))
        key = [10, key_length, *b"k" * key_length]
        head = [10, entry, *key, 18, feature, kind * 8 + 2, values, 10, size & 255]
        return rows.field(1, bytes(head) + run)

    for key_length in (0, 1, 6, 7, 40, 54, 55):
        good = record(key_length, b"\x01" * 4)
        for size in range(150):
            for run in (b"\x01" * size, b"\x80" * (size - 1) + b"\x01", b"\x81" * size):
                records = [good, record(key_length, run), record(key_length, run)]
                assert statuses(decode_kernel, records) == statuses(decode_reference, records), (
                    key_length,
                    run,
                )


def test_what_is_wrong() -> None:
    def features(value: bytes, key: bytes = b"a") -> bytes:
        entry = rows.field(1, key) + rows.field(2, value)
        return rows.field(1, rows.field(1, entry))

    rows = Rows(random.Random(0))
    good = features(rows.field(3, rows.field(1, b"\x05")))
    cases = [
        (b"\x0a\x05", 1),
        (b"\x00", 2),
        (b"\x0f", 3),
        (b"\x0b", 4),
        (b"\x0b" * 101, 5),
        (features(rows.field(3, rows.field(1, b"\x80" * 10 + b"\x01"))), 6),
        (features(rows.field(3, rows.field(1, b"\x01" * 300 + b"\xff" * 10 + b"\x01" * 90))), 6),
        (b"\x0a\xff\xff\xff\xff\x0f", 7),
        (features(rows.field(3, b""), b"\xff"), 8),
        (features(rows.field(2, rows.field(1, b"\0\0\0"))), 9),
        (features(rows.field(3, rows.field(1, b"\x80"))), 1),
        (features(rows.field(3, rows.field(1, b"\x01" * 60 + b"\x80" * 9))), 1),
        (b"", 0),
        (b"\x1a\x00", 0),
    ]
    records = [record for case, _ in cases for record in (good, case)]
    assert check(records) == [status for _, expected in cases for status in (0, expected)]
    assert check([]) == []


def test_how_deep_groups_may_be() -> None:
    """At most 100 messages and groups: a Feature is 3 deep, in a step 4, and its list one more."""
    rows = Rows(random.Random(0))
    for depth, wrap in ((3, lambda feature: feature), (4, lambda feature: rows.field(1, feature))):
        for more, inner in ((0, lambda group: group), (1, lambda group: rows.field(1, group))):
            records = []
            for groups in (100 - depth - more, 101 - depth - more):
                entry = rows.field(1, b"a") + rows.field(2, wrap(inner(b"\x23" * groups + b"\x24" * groups)))
                records.append(rows.field(depth - 2, rows.field(1, entry)))
            assert check(records) == [0, 5], (depth, more)


def test_runs_of_long_values() -> None:
    """Ten bytes that go on, anywhere in a packed run."""
    rows = Rows(random.Random(0))
    for size in (63, 64, 65, 119, 120, 200):
        for place in range(size - 10):
            run = bytearray(b"\x01" * size)
            run[place : place + 9] = b"\xff" * 9
            value = rows.field(2, rows.field(3, rows.field(1, bytes(run))))
            run[place + 9] = 0x80
            longer = rows.field(2, rows.field(3, rows.field(1, bytes(run))))
            records = [rows.field(1, rows.field(1, rows.field(1, b"a") + part)) for part in (value, longer)]
            assert statuses(decode_kernel, records) == [0, 6], (size, place)


def test_places_outside_the_buffer_are_refused() -> None:
    for offset, length in ((0, 2), (1, 1), (-1, 1), (0, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="payload 0 lies outside its buffer"):
            decode_kernel.check_records((b"\0",), np.array([offset]), np.array([length]))
