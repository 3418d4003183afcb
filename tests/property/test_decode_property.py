"""Messages that no encoder would make: the kernel, the reference and protobuf agree on values and on what is
refused."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfrecord import example_pb2, parse
from tfrecord._kernels import decode_reference, wire_reference
from tfrecord._kernels.engine import engine
from tfrecord.features import FixedLenFeature

KEYS = ["a", "b", "cc", "", "é", "key_of_more_than_sixteen_bytes", "n\0l"]
LONG_KEYS = ["a" * 16, "b" * 17, "k" * 64, "l" * 65, "m" * 126]
KINDS = {"bytes": 1, "float": 2, "int64": 3}
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))

seeds = st.randoms(use_true_random=False)


def kernels() -> list[tuple[str, Any]]:
    """Every decoder there is: the reference, and the kernel at each SIMD level of this processor."""
    found: list[tuple[str, Any]] = [("reference", decode_reference.Decoder)]
    if engine == "native":
        from tfrecord._kernels import decode

        for name, level in decode.SIMD_LEVELS.items():
            if level <= decode.BEST_LEVEL:
                found.append((name, lambda *a, level=level: decode.Decoder(*a, simd=level)))
    return found


class Messages:
    """Wire bytes from a source of choices. `tame` leaves out what upb treats otherwise than the rules."""

    def __init__(self, choices: random.Random, tame: bool = False) -> None:
        self.choices = choices
        self.tame = tame

    def chance(self, percent: int) -> bool:
        return self.choices.randrange(100) < percent

    def varint(self, value: int, most: int = 10) -> bytes:
        out = bytearray()
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        if len(out) < most and self.chance(3):
            out[-1] |= 128
            out += b"\x80" * self.choices.randrange(most - len(out)) + b"\0"
        return bytes(out)

    def tag(self, number: int, wire: int) -> bytes:
        return self.varint(number << 3 | wire, 5)

    def field(self, number: int, content: bytes) -> bytes:
        return self.tag(number, 2) + self.varint(len(content), 5) + content

    def unknown(self, depth: int = 0) -> bytes:
        number = self.choices.choice([4, 5, 15, 16, 2**29 - 1])
        wire = self.choices.choice([0, 1, 2, 5, 3])
        if wire == 0:
            return self.tag(number, 0) + self.varint(self.choices.randrange(2**64))
        if wire == 2:
            return self.field(number, self.choices.randbytes(self.choices.randrange(5)))
        if wire == 3:
            inner = (
                b"".join(self.unknown(depth + 1) for _ in range(self.choices.randrange(3)))
                if depth < 4
                else b""
            )
            return self.tag(number, 3) + inner + self.tag(number, 4)
        return self.tag(number, wire) + self.choices.randbytes(8 if wire == 1 else 4)

    def mixed(self, fields: list[bytes], percent: int = 5) -> bytes:
        """Fields with unknown ones, and known numbers of other wire types, strewn between them."""
        out = []
        for field in [*fields, b""]:
            while self.chance(percent):
                out.append(self.unknown() if self.chance(70) else self.tag(1, 1) + bytes(8))
            out.append(field)
        return b"".join(out)

    def integer(self) -> int:
        return self.choices.choice(
            [0, 1, 127, 128, 300, 2**31, 2**32 + 7, 2**63, 2**64 - 1, self.choices.randrange(2**20)]
        )

    def values(self, kind: int) -> bytes:
        count = self.choices.choice([0, 1, 1, 1, 2, 3, 20, 100, 200])
        if self.chance(80) and kind != 1:  # one packed run
            if kind == 2:
                return self.field(1, self.choices.randbytes(4 * count))
            small = self.chance(50)
            return self.field(
                1,
                b"".join(
                    self.varint(self.choices.randrange(128) if small else self.integer())
                    for _ in range(count)
                ),
            )
        fields = []
        for _ in range(min(count, 4)):
            if kind == 1:
                fields.append(self.field(1, self.choices.randbytes(self.choices.choice([0, 1, 5, 200]))))
            elif kind == 2:
                fields.append(
                    self.tag(1, 5) + self.choices.randbytes(4) if self.chance(50) else self.values(2)
                )
            else:
                fields.append(
                    self.tag(1, 0) + self.varint(self.integer()) if self.chance(50) else self.values(3)
                )
        return self.mixed(fields)

    def feature(self, kind: int) -> bytes:
        if self.chance(5):
            return b"" if self.chance(50) else self.mixed([])
        members = [self.field(kind, self.values(kind))]
        while self.chance(15):
            other = kind if self.chance(60) else self.choices.randrange(1, 4)
            members.insert(0 if self.chance(80) else 1, self.field(other, self.values(other)))
        return self.mixed(members, 4)

    def entry(self, value: Any) -> bytes:
        key = self.choices.choice(KEYS)
        kind = 1 + KEYS.index(key) % 3 if self.chance(97) else self.choices.randrange(1, 4)
        fields = [self.field(1, key.encode()), self.field(2, value(kind))]
        if self.chance(10):
            fields.append(self.field(2, value(kind)))
        if self.chance(5):
            fields.append(self.field(1, self.choices.choice(KEYS).encode()))
        if self.chance(10):
            self.choices.shuffle(fields)
        if self.chance(5):
            del fields[self.choices.randrange(len(fields))]
        return b"".join(fields) if self.tame else self.mixed(fields, 3)

    def entries(self, value: Any) -> bytes:
        return self.mixed([self.field(1, self.entry(value)) for _ in range(self.choices.randrange(8))], 4)

    def steps(self, kind: int) -> bytes:
        return self.mixed([self.field(1, self.feature(kind)) for _ in range(self.choices.randrange(4))], 4)

    def message(self, lists: bool) -> bytes:
        fields = []
        for _ in range(1 if self.chance(85) else self.choices.randrange(4)):
            fields.append(self.field(1, self.entries(self.feature)))
            if lists:
                fields.append(self.field(2, self.entries(self.steps)))
        return self.mixed(fields, 4)

    def mutated(self, message: bytes) -> bytes:
        data = bytearray(message)
        for _ in range(self.choices.choice([0, 1, 1, 2])):
            at = self.choices.randrange(len(data) + 1)
            action = self.choices.randrange(4)
            if action == 0:
                del data[at:]
            elif action == 1:
                data[at:at] = self.choices.randbytes(1)
            elif at < len(data):
                data[at : at + 1] = b"" if action == 2 else bytes([data[at] ^ 1 << self.choices.randrange(8)])
        return bytes(data)


def values_of(kind: int, values: Any, buffers: tuple[bytes, ...]) -> Any:
    if kind == 1:
        offsets, lengths = (part.tolist() for part in values[:2])
        return [buffers[0][o : o + n] for o, n in zip(offsets, lengths, strict=True)]
    return None if kind == 0 else values.tobytes()


def decoded(decoder: Any, buffers: tuple[bytes, ...], threads: int = 1) -> Any:
    """What a decoder says of a batch, in comparable form; of a failure its nature and its row.

    The records lie in one buffer with something behind them, as in a file, which lets the kernel read ahead.
    """
    lengths = np.array([len(b) for b in buffers], np.int64)
    whole = (b"".join(buffers) + bytes(100),)
    failure, found, listed = decoder.decode(whole, np.cumsum(lengths) - lengths, lengths, None, threads)
    single = decoder.decode(buffers, None, None, None, threads)[0]
    assert (failure and failure[:2]) == (single and single[:2])
    if failure is not None:
        return ("wire" if failure[0] < 20 else failure[0], failure[1])
    result = []
    for present, columns in filter(None, (found, listed)):
        for flags, (key, kind, *arrays, values) in zip(present.tolist(), columns, strict=True):
            tables = [None if array is None else array.tolist() for array in arrays]
            result.append((key, kind, flags, tables, values_of(kind, values, whole)))
    return result


def requests(choices: random.Random, lists: bool) -> list[tuple[Any, Any]]:
    """All features; and some of them, each ragged or dense, of a kind or of any."""

    def some() -> tuple[Any, ...]:
        keys = choices.sample(KEYS, choices.randrange(len(KEYS)))
        found = []
        for key in keys:
            kind = choices.choice([0, 1 + KEYS.index(key) % 3, 1 + KEYS.index(key) % 3])
            shape = choices.choice([None, None, (), (2,), (1, 3), (0,)]) if kind else None
            default = None
            if shape is not None and kind > 1 and choices.randrange(2):
                default = bytes(math.prod(shape) * (4 if kind == 2 else 8))
            found.append((key, kind, shape, default))
        return tuple(found)

    return [(None, None if lists else False), (some(), some() if lists else False)]


@pytest.mark.parametrize("lists", [False, True], ids=["example", "sequence"])
@given(choices=seeds)
@SETTINGS
def test_kernels_agree(lists: bool, choices: random.Random) -> None:
    messages = Messages(choices)
    batch = [messages.message(lists) for _ in range(choices.randrange(4))]
    bad = messages.mutated(messages.message(lists))
    batch.insert(choices.randrange(len(batch) + 1), bad)
    for request in requests(choices, lists):
        results = {name: decoded(make(*request), tuple(batch)) for name, make in kernels()}
        expected = results.pop("reference")
        if isinstance(expected, list):
            for name, result in results.items():
                assert result == expected, (name, request)
        else:
            for name, result in results.items():
                assert isinstance(result, tuple), (name, request, expected)


def alike(messages: Messages) -> tuple[list[str], list[bytes]]:
    """Records with the same keys in the same order and one value each, and now and then one that differs."""
    choices = messages.choices
    keys = choices.sample([*KEYS, *LONG_KEYS], choices.randrange(1, 9))

    odd = choices.choice([0, 0, 1, 5])

    def value(key: str) -> bytes:
        kind = 1 + len(key) % 3
        if messages.chance(odd):
            return messages.feature(kind if messages.chance(95) else choices.randrange(1, 4))
        if kind == 1:
            inner = messages.field(1, choices.randbytes(choices.choice([0, 1, 9, 80, 150])))
        elif kind == 2:
            inner = messages.field(1, choices.randbytes(4))
        else:
            inner = messages.field(1, messages.varint(messages.integer()))
        return messages.field(kind, inner)

    def record() -> bytes:
        order = list(keys)
        if messages.chance(3 * odd):
            choices.shuffle(order)
        if messages.chance(3 * odd):
            order.insert(choices.randrange(len(order)), choices.choice(keys))
        if messages.chance(odd):
            del order[choices.randrange(len(order))]
        entries = [messages.field(1, key.encode()) + messages.field(2, value(key)) for key in order]
        data = messages.field(1, b"".join(messages.field(1, entry) for entry in entries))
        if messages.chance(odd):
            data += messages.message(False)
        return messages.mutated(data) if messages.chance(odd // 4) else data

    return keys, [record() for _ in range(choices.choice([2, 5, 30]))]


@given(seed=st.integers(0, 2**64))
@settings(SETTINGS, max_examples=100)
def test_records_that_repeat_the_keys_of_others(seed: int) -> None:
    choices = random.Random(seed)  # too many choices for a generator that can be shrunk
    keys, batch = alike(Messages(choices))
    dense = [
        (key, kind, (), bytes(4 if kind == 2 else 8) if kind > 1 and choices.randrange(3) else None)
        for key in keys
        for kind in [1 + len(key) % 3]
    ]
    ragged = [(key, choices.choice([0, 1 + len(key) % 3]), None, None) for key in keys]
    mixed = [choices.choice(pair) for pair in zip(dense, ragged, strict=True) if choices.randrange(4)]
    for columns in (dense, ragged, mixed, mixed[:1], [], None):
        request = (None if columns is None else tuple(columns), False)
        for threads in (1, 2):
            results = [(name, decoded(make(*request), tuple(batch), threads)) for name, make in kernels()]
            expected = results[0][1]
            for name, result in results:
                assert result == expected or isinstance(result, tuple) and isinstance(expected, tuple), name


@given(choices=seeds, data=st.binary(max_size=60))
@SETTINGS
def test_random_bytes(choices: random.Random, data: bytes) -> None:
    for lists in (False, True):
        for request in requests(choices, lists):
            results = [decoded(make(*request), (data,)) for _, make in kernels()]
            assert all(result == results[0] for result in results), request


@pytest.mark.parametrize("lists", [False, True], ids=["example", "sequence"])
@given(choices=seeds)
@SETTINGS
def test_single_records_agree_with_batches(lists: bool, choices: random.Random) -> None:
    messages = Messages(choices)
    data = messages.mutated(messages.message(lists))
    for request in requests(choices, lists):
        ragged = tuple(
            None if part is None else part and tuple((k, kind, None, b"") for k, kind, _, _ in part)
            for part in request
        )
        for name, make in kernels():
            decoder = make(*ragged)
            batch = decoded(decoder, (data,))
            failure, context, listed = decoder.record(data)
            assert (failure is None) == isinstance(batch, list), (name, failure, batch)
            if failure is not None:
                assert failure[0] >= 20 or batch[0] == "wire"
                continue
            flat = {key: (kind, values) for key, kind, _, _, values in batch[: len(context)]}
            assert list(flat) == list(context)
            for key, value in context.items():
                same_values(value, *flat[key])
            for key, kind, _, (outer, _, inner), values in batch[len(context) :]:
                assert len(listed[key]) == outer[1]
                for step, value in enumerate(listed[key]):
                    size = 1 if kind == 1 else 4 if kind == 2 else 8
                    part = None if values is None else values[inner[step] * size : inner[step + 1] * size]
                    same_values(value, kind, part)


def same_values(value: Any, kind: int, expected: Any) -> None:
    if kind == 0:
        assert value is None
    elif kind == 1:
        assert ([value] if isinstance(value, bytes) else list(value)) == expected
    else:
        assert value.dtype == (np.float32 if kind == 2 else np.int64)
        assert value.flags.owndata and value.flags.writeable and value.tobytes() == expected


def from_protobuf(feature: Any) -> tuple[int, Any]:
    name = feature.WhichOneof("kind")
    if name is None:
        return 0, None
    kind = KINDS[name.removesuffix("_list")]
    values = getattr(feature, name).value
    if kind == 1:
        return 1, list(values)
    return kind, struct.pack(f"<{len(values)}{'f' if kind == 2 else 'q'}", *values)


def plain(data: bytes, kind: int, values: Any) -> tuple[int, Any]:
    if kind == 1:
        return 1, [data[start : start + length] for start, length in values]
    return kind, None if kind == 0 else values.tobytes()


@given(choices=seeds)
@SETTINGS
def test_protobuf_agrees_with_the_reference(choices: random.Random) -> None:
    messages = Messages(choices, tame=True)
    data = messages.message(True)
    message = example_pb2.SequenceExample.FromString(data)
    context, lists = wire_reference.parse_message(data, None, None)
    quiet = {key: from_protobuf(feature) for key, feature in message.context.feature.items()}
    assert without_nan({k: plain(data, *v) for k, v in context.items()}) == without_nan(quiet)
    steps = {k: [from_protobuf(f) for f in v.feature] for k, v in message.feature_lists.feature_list.items()}
    for key, expected in steps.items():
        found = [plain(data, *step) for step in lists[key]]
        assert without_nan(dict(enumerate(found))) == without_nan(dict(enumerate(expected)))
    assert lists.keys() == steps.keys()


def without_nan(features: dict[Any, tuple[int, Any]]) -> dict[Any, Any]:
    """Floats with every NaN alike: Python's own float does not keep the bits of a signalling one."""
    return {
        key: np.nan_to_num(np.frombuffer(values, "<f4"), nan=1.5).tolist() if kind == 2 else (kind, values)
        for key, (kind, values) in features.items()
    }


@given(choices=seeds)
@SETTINGS
def test_protobuf_refuses_what_the_reference_refuses(choices: random.Random) -> None:
    messages = Messages(choices, tame=True)
    data = messages.mutated(messages.message(True))
    try:
        wire_reference.parse_message(data, None, None)
        status = 0
    except wire_reference.WireError as error:
        status = error.args[0]
    try:
        example_pb2.SequenceExample.FromString(data)
        accepted = True
    except Exception as error:
        assert type(error).__name__ == "DecodeError"
        accepted = False
    # Not looked at by upb: field number 0 inside groups.
    assert accepted == (status == 0) or (accepted and status == wire_reference.BAD_TAG)


@given(choices=seeds)
@settings(SETTINGS, max_examples=40)
def test_the_first_bad_record_is_reported_with_any_threads(choices: random.Random) -> None:
    messages = Messages(choices)
    batch = [messages.message(False) for _ in range(choices.choice([5, 70, 140]))]
    for _ in range(3):
        at = choices.randrange(len(batch))
        batch[at] = messages.mutated(batch[at])
    wanted = {"b": "float", "cc": FixedLenFeature((1,), "int64", 7), "a": "bytes"}
    for features in (None, wanted):
        outcomes = []
        for threads in (1, 2, 4):
            try:
                outcomes.append(parse.parse_example(batch, features, num_threads=threads))
            except Exception as error:
                outcomes.append((type(error), str(error), error.record, error.key))  # type: ignore[attr-defined]
        assert all(outcome == outcomes[0] for outcome in outcomes)
        if isinstance(outcomes[0], tuple) and outcomes[0][2]:
            parse.parse_example(batch[: outcomes[0][2]], features)
