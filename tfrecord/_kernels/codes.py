"""Kinds of features, and status codes of invalid messages: the numbers that kernels and Python share."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BAD_FLOATS",
    "BAD_GROUP",
    "BAD_TAG",
    "BAD_TYPE",
    "BAD_UTF8",
    "BYTES",
    "CHANGED",
    "FLOAT",
    "INT64",
    "KINDS",
    "KIND_CONFLICT",
    "KIND_MISMATCH",
    "KIND_NAMES",
    "LENGTH_TOO_LARGE",
    "MISSING",
    "REASONS",
    "RecordClass",
    "TOO_DEEP",
    "TOO_MANY",
    "TRUNCATED",
    "UNKNOWN",
    "VARINT_TOO_LONG",
    "WRONG_COUNT",
]

# The field numbers of tf.train.Feature.
UNKNOWN, BYTES, FLOAT, INT64 = 0, 1, 2, 3
KIND_NAMES = ("unknown", "bytes", "float", "int64")
KINDS = {name: number for number, name in enumerate(KIND_NAMES) if number}

# The message is not valid.
TRUNCATED, BAD_TAG, BAD_TYPE, BAD_GROUP, TOO_DEEP = 1, 2, 3, 4, 5
VARINT_TOO_LONG, LENGTH_TOO_LARGE, BAD_UTF8, BAD_FLOATS, TOO_MANY, CHANGED = 6, 7, 8, 9, 10, 11
# The message is valid, but does not match the request.
KIND_MISMATCH, MISSING, WRONG_COUNT, KIND_CONFLICT = 20, 21, 22, 23

REASONS = {
    TRUNCATED: "the message is cut short (a length or value runs past its end)",
    BAD_TAG: "bad field tag",
    BAD_TYPE: "bad wire type",
    BAD_GROUP: "a group that does not end, or ends without a start",
    TOO_DEEP: "groups are nested too deep",
    VARINT_TOO_LONG: "a varint of more than ten bytes",
    LENGTH_TOO_LARGE: "a length of more than 2**31 - 1",
    BAD_UTF8: "a key is not valid UTF-8",
    BAD_FLOATS: "packed floats whose length is not a multiple of four",
    TOO_MANY: "too many different features for one batch",
    CHANGED: "its bytes changed while they were read",
}


class RecordClass(IntEnum):
    """The class of one payload, as evidence of its file's record type; same numbers as in `classify.h`.

    A feature is clean if its key is UTF-8 without control characters and its kind is known. ``SEQUENCE``
    and ``NEUTRAL_LISTS`` have at least one feature list. ``FOREIGN`` parses, but has no clean feature, and an
    unknown field or a strange key.
    """

    INVALID = 0
    EXAMPLE = 1
    SEQUENCE = 2
    NEUTRAL = 3
    NEUTRAL_LISTS = 4
    FOREIGN = 5
