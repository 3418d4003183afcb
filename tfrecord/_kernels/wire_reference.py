"""The wire format of messages in plain Python, by the protobuf rules: slow and simple.

The protobuf library itself cannot be used: upb drops map entries with unknown fields, and does not check for
field number 0 inside groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrecord._kernels.codes import (
    BAD_FLOATS,
    BAD_GROUP,
    BAD_TAG,
    BAD_TYPE,
    BAD_UTF8,
    BYTES,
    FLOAT,
    INT64,
    LENGTH_TOO_LARGE,
    TOO_DEEP,
    TRUNCATED,
    UNKNOWN,
    VARINT_TOO_LONG,
)

__all__ = ["WireError", "fields", "parse_message"]

MAX_DEPTH = 100  # messages and groups together, as protobuf counts


class WireError(Exception):
    """A message breaks the rules; ``args[0]`` is the status."""


def _varint(data: bytes, at: int, end: int, most: int = 10) -> tuple[int, int]:
    value = 0
    for index in range(most):
        if at >= end:
            raise WireError(TRUNCATED)
        byte = data[at]
        at += 1
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, at
    raise WireError(VARINT_TOO_LONG)


def _tag(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    try:
        tag, at = _varint(data, at, end, 5)
    except WireError as error:
        raise WireError(BAD_TAG if error.args[0] == VARINT_TOO_LONG else error.args[0]) from None
    if tag >= 2**32 or tag < 8:
        raise WireError(BAD_TAG)
    return tag >> 3, tag & 7, at


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    try:
        length, at = _varint(data, at, end, 5)
    except WireError as error:
        raise WireError(LENGTH_TOO_LARGE if error.args[0] == VARINT_TOO_LONG else error.args[0]) from None
    if length > 2**31 - 1:
        raise WireError(LENGTH_TOO_LARGE)
    if length > end - at:
        raise WireError(TRUNCATED)
    return length, at


def fields(data: bytes, at: int, end: int, depth: int) -> Iterator[tuple[int, int, int, int]]:
    """Field number, wire type and content extent of every field in ``data[at:end]``; groups are skipped.

    The message is nested `depth` deep."""
    while at < end:
        number, wire, at = _tag(data, at, end)
        start = at
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == 1 or wire == 5:
            at += 8 if wire == 1 else 4
            if at > end:
                raise WireError(TRUNCATED)
        elif wire == 2:
            length, start = _length(data, at, end)
            at = start + length
        elif wire == 3:
            at = _skip_group(data, at, end, number, depth + 1)
        elif wire == 4:
            raise WireError(BAD_GROUP)
        else:
            raise WireError(BAD_TYPE)
        yield number, wire, start, at


def _skip_group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    opened = [number]
    while opened:
        if depth + len(opened) - 1 > MAX_DEPTH:
            raise WireError(TOO_DEEP)
        if at >= end:
            raise WireError(BAD_GROUP)
        number, wire, at = _tag(data, at, end)
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == 1 or wire == 5:
            at += 8 if wire == 1 else 4
            if at > end:
                raise WireError(TRUNCATED)
        elif wire == 2:
            length, at = _length(data, at, end)
            at += length
        elif wire == 3:
            opened.append(number)
        elif wire == 4:
            if opened.pop() != number:
                raise WireError(BAD_GROUP)
        else:
            raise WireError(BAD_TYPE)
    return at


def _values(data: bytes, kind: int, extents: Sequence[tuple[int, int]], depth: int) -> Any:
    """The values of a list message that is the concatenation of `extents`."""
    floats: list[bytes] = []
    found: list[Any] = []
    for first, last in extents:
        for number, wire, start, end in fields(data, first, last, depth):
            if number != 1:
                continue
            if kind == BYTES and wire == 2:
                found.append((start, end - start))
            elif kind == FLOAT and wire == 5:
                floats.append(data[start:end])
            elif kind == FLOAT and wire == 2:
                if (end - start) % 4:
                    raise WireError(BAD_FLOATS)
                floats.append(data[start:end])
            elif kind == INT64 and wire == 0:
                found.append(_varint(data, start, end)[0] & (2**64 - 1))
            elif kind == INT64 and wire == 2:
                while start < end:
                    value, start = _varint(data, start, end)
                    found.append(value & (2**64 - 1))
    if kind == BYTES:
        return found
    if kind == FLOAT:
        return np.frombuffer(b"".join(floats), "<f4")
    return np.array(found, np.uint64).view(np.int64)


def _feature(data: bytes, extents: Sequence[tuple[int, int]], depth: int) -> tuple[int, Any]:
    """Kind and values of a Feature that is the concatenation of `extents` (protobuf's merge)."""
    kind = UNKNOWN
    members: list[tuple[int, int]] = []
    for first, last in extents:
        for number, wire, start, end in fields(data, first, last, depth):
            if wire != 2 or number not in (BYTES, FLOAT, INT64):
                continue
            _values(
                data, number, [(start, end)], depth + 1
            )  # members that a later one replaces must be valid too
            if number != kind:
                kind, members = number, []
            members.append((start, end))
    return kind, _values(data, kind, members, depth + 1) if kind else None


def _steps(data: bytes, extents: Sequence[tuple[int, int]], depth: int) -> list[tuple[int, Any]]:
    steps = []
    for first, last in extents:
        for number, wire, start, end in fields(data, first, last, depth):
            if number == 1 and wire == 2:
                steps.append(_feature(data, [(start, end)], depth + 1))
    return steps


def _map(data: bytes, at: int, end: int, wanted: Any, found: dict[str, Any], value: Any) -> None:
    """Read the map entries of ``data[at:end]`` into `found`; `value` reads the value of an entry."""
    for number, wire, first, last in fields(data, at, end, 1):
        if number != 1 or wire != 2:
            continue
        keys = [b""]
        extents = []
        for field, kind, start, stop in fields(data, first, last, 2):
            if field == 1 and kind == 2:
                keys.append(data[start:stop])
            elif field == 2 and kind == 2:
                extents.append((start, stop))
        if wanted is not None and keys[-1] not in wanted:
            continue
        try:
            key = [key.decode() for key in keys][-1]
        except UnicodeDecodeError:
            raise WireError(BAD_UTF8) from None
        found[key] = value(data, extents, 3)


def parse_message(
    data: bytes, wanted: Any = None, wanted_lists: Any = False
) -> tuple[dict[str, tuple[int, Any]], dict[str, list[tuple[int, Any]]]]:
    """The features of an Example, or the context and the feature lists of a SequenceExample.

    Args:
        wanted: keys (bytes) to decode, None for all; others are skipped by their length.
        wanted_lists: the same for feature lists; False if the message is an Example.

    Raises:
        WireError: the message breaks a rule.
    """
    context: dict[str, tuple[int, Any]] = {}
    lists: dict[str, list[tuple[int, Any]]] = {}
    for number, wire, start, end in fields(data, 0, len(data), 0):
        if number == 1 and wire == 2:
            _map(data, start, end, wanted, context, _feature)
        elif number == 2 and wire == 2 and wanted_lists is not False:
            _map(data, start, end, wanted_lists, lists, _steps)
    return context, lists
