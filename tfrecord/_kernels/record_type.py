"""The record type of a file: one rule for readers, loaders, datasets, index builds and commands."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

from indexer.options import near_matches
from indexer.sniffing import HEAD_SIZE, sniff
from tfrecord._kernels.codes import RecordClass
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord._kernels.wire_reference import WireError, fields

__all__ = [
    "MESSAGES",
    "RECORD_TYPES",
    "SAMPLE",
    "RecordType",
    "RecordTypeName",
    "Sample",
    "check_record_type",
    "classify",
    "has_lists",
    "is_valid",
    "payload_looks_like",
    "sample_places",
    "settle",
]

RecordTypeName = Literal["auto", "example", "sequence_example", "bytes"]
RECORD_TYPES = get_args(RecordTypeName)
# Declared if features are requested: Examples or SequenceExamples, and nothing else.
MESSAGES = "messages"
# How many payloads are sampled.
SAMPLE = 64
# Of longer payloads, only the beginning is examined.
_LOOK = 1 << 20

_FOR = (RecordClass.EXAMPLE, RecordClass.SEQUENCE)
_AGAINST = (RecordClass.INVALID, RecordClass.FOREIGN)
_LISTS = (RecordClass.SEQUENCE, RecordClass.NEUTRAL_LISTS)
_WORDS = {
    "example": "tf.train.Example",
    "sequence_example": "tf.train.SequenceExample",
    "bytes": "tf.train.Example",
}
_ELWC = "an ExampleListWithContext message, which tfrecord.parse_example_list decodes"


class RecordType(NamedTuple):
    """A record type, and the evidence for it.

    ``name`` is ``"example"``, ``"sequence_example"`` or ``"bytes"``. ``num_for`` and ``num_against`` count
    the sampled payloads that speak for messages and against them; others are neutral.
    ``looks_like`` describes a payload that speaks against messages, if its format is recognized.
    """

    name: str
    num_for: int = 0
    num_against: int = 0
    looks_like: str = ""

    @property
    def speaks(self) -> bool:
        """Whether any sampled payload speaks for messages or against them."""
        return bool(self.num_for or self.num_against)

    @property
    def warning(self) -> str:
        """The warning for the user; ``""`` if all sampled payloads agree with the type."""
        if not self.speaks or (self.name != "bytes" and not self.num_against):
            return ""
        looked = self.num_for + self.num_against
        are = "is not a" if self.num_against == 1 else "are not"
        text = f"{self.num_against} of the {looked} records looked at {are} {_WORDS[self.name]}"
        if self.name == "bytes":
            text += ", so the records are given as bytes (record_type='bytes' silences this)"
        if self.looks_like:
            text += f". {'The first of them' if self.num_against > 1 else 'It'} looks like {self.looks_like}"
        return text


def check_record_type(record_type: Any) -> str:
    """Check the name of a record type; ValueError for an unknown one."""
    if record_type not in RECORD_TYPES:
        near = near_matches(record_type, RECORD_TYPES)
        raise ValueError(f"record_type is {record_type!r}; it is one of {', '.join(RECORD_TYPES)}{near}")
    return str(record_type)


def classify(payload: Any) -> RecordClass:
    """The class of one payload, as evidence of its file's record type. Checks every value in it."""
    return RecordClass(kernel.record_class(payload))


def is_valid(payload: Any) -> bool:
    """Whether the payload parses as an Example and as a SequenceExample."""
    return classify(payload) is not RecordClass.INVALID


def has_lists(payload: Any) -> bool:
    """Whether the payload is a message with feature lists."""
    return classify(payload) in _LISTS


def sample_places(count: int) -> list[int]:
    """Which of ``count`` records to look at: up to 64, from the beginning, the middle and the end."""
    if count <= SAMPLE:
        return list(range(count))
    third = SAMPLE // 3
    first, middle = SAMPLE - 2 * third, (count - third) // 2
    return sorted({*range(first), *range(middle, middle + third), *range(count - third, count)})


def settle(payloads: Iterable[Any], declared: str = "auto") -> RecordType:
    """The type of records, given these payloads as a sample; at most 64 are examined.

    ``declared``: ``"auto"``; `MESSAGES`, which leaves open only whether they have feature lists; or the name
    of a type, which is used as given.
    """
    if declared not in ("auto", MESSAGES):
        return RecordType(declared)
    sample = Sample()
    sample.add(payloads)
    return sample.record_type(declared)


class Sample:
    """Some payloads of a file, and what they say about its record type."""

    def __init__(self) -> None:
        self.classes: list[RecordClass] = []
        self._looks_like: str | None = None

    @property
    def is_full(self) -> bool:
        """Whether the sample is complete."""
        return len(self.classes) >= SAMPLE

    @property
    def speaks(self) -> bool:
        """Whether any payload speaks for messages or against them."""
        return any(one in _FOR or one in _AGAINST for one in self.classes)

    def add(self, payloads: Iterable[Any]) -> None:
        """Add payloads until the sample is full."""
        for payload in islice(payloads, SAMPLE - len(self.classes)):
            self.classes.append(classify(payload))
            if self._looks_like is None and self.classes[-1] in _AGAINST:
                self._looks_like = payload_looks_like(payload)

    def record_type(self, declared: str = "auto") -> RecordType:
        """The type according to the payloads so far."""
        num_for = sum(one in _FOR for one in self.classes)
        num_against = sum(one in _AGAINST for one in self.classes)
        too_many = num_against > max(1, (num_for + num_against) / 8) or (num_against and not num_for)
        if declared == MESSAGES and not too_many:
            num_against = 0  # each of them will raise an error
        if declared == "auto" and too_many:
            name = "bytes"
        elif declared in ("auto", MESSAGES):
            name = "sequence_example" if any(one in _LISTS for one in self.classes) else "example"
        else:
            name = declared
        return RecordType(name, num_for, num_against, self._looks_like or "")


def payload_looks_like(payload: Any) -> str:
    """A description of a payload that is not an Example, to follow "looks like"; ``""`` if unknown."""
    data = bytes(memoryview(payload)[:_LOOK])
    whole = len(data) == memoryview(payload).nbytes
    try:
        found = list(fields(data, 0, len(data), 0)) if whole else []
    except WireError:
        found = []
    if found and _is_example_list(data, found):
        return _ELWC
    if found and _is_tensor(data, found):
        return "a serialized tensor (TensorProto), which tfrecord.decode_tensor_proto decodes"
    return sniff(data[:HEAD_SIZE]) or ""


def _is_example_list(data: bytes, found: list[tuple[int, int, int, int]]) -> bool:
    """Whether each field is 1 (an Example of the list) or 2 (the context) and holds a clean Example."""
    return all(
        number in (1, 2) and wire == 2 and classify(data[start:end]) is RecordClass.EXAMPLE
        for number, wire, start, end in found
    )


def _is_tensor(data: bytes, found: list[tuple[int, int, int, int]]) -> bool:
    """Whether a known dtype comes first, then a shape, then only fields that a tensor has."""
    (number, wire, start, end), *rest = found
    has_dtype = (number, wire, end - start) == (1, 0, 1) and 1 <= data[start] <= 23
    shaped = any(number == 2 and wire == 2 for number, wire, _, _ in rest)
    return has_dtype and shaped and all(2 <= number <= 17 for number, _, _, _ in rest)
