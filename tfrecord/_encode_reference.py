"""The encoder in plain Python: what runs where no compiler was, and what the compiled one is compared with.

Bytes (minimal varints, key before value, numbers packed, features in the order of the dict)::

    Example         0A len Features                     SequenceExample  0A len Features  12 len FeatureLists
    Features        (0A len (0A len key  12 len Feature))*
    FeatureLists    (0A len (0A len key  12 len FeatureList))*
    FeatureList     (0A len Feature)*
    Feature         0A len BytesList | 12 len FloatList | 1A len Int64List
    BytesList       (0A len value)*                     FloatList, Int64List    nothing, or 0A len packed values
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._values import BYTES, FLOAT, Values, check_key, refuse, split_spec, to_steps, to_values


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def encode_feature(values: Values, kind: int) -> bytes:
    """One Feature message; an empty list keeps its kind."""
    if kind == BYTES:
        content = b"".join(_field(1, bytes(value)) for value in values)
    elif not len(values):
        content = b""
    elif kind == FLOAT:
        content = _field(1, values.astype("<f4").tobytes())  # type: ignore[union-attr]
    else:
        content = _field(1, b"".join(_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values.tolist()))  # type: ignore[union-attr]
    return _field(kind, content)


def _entry(key: bytes, value: bytes) -> bytes:
    return _field(1, _field(1, key) + _field(2, value))


def _guard(values: Values, key: object, limit: int) -> None:
    """Refuse before anything of that size is built."""
    size = sum(map(len, values)) if isinstance(values, list) else len(values)
    if size > limit:
        refuse(ValueError, key, f"at least {size} bytes", f"an Example of at most {limit} bytes (2 GiB - 1)")


def _features(datum: Mapping[str, Any], limit: int) -> bytes:
    entries = []
    for key, spec in datum.items():
        name = check_key(key)
        value, kind = split_spec(key, spec)
        values = to_values(key, value, kind)
        _guard(values, key, limit)
        entries.append(_entry(name, encode_feature(values, kind)))
    return b"".join(entries)


def _feature_lists(datum: Mapping[str, Any], limit: int) -> bytes:
    entries = []
    for key, spec in datum.items():
        name = check_key(key)
        value, kind = split_spec(key, spec)
        steps = []
        for i, step in enumerate(to_steps(key, value, kind)):
            values = to_values(key, step, kind, i)
            _guard(values, key, limit)
            steps.append(_field(1, encode_feature(values, kind)))
        entries.append(_entry(name, b"".join(steps)))
    return b"".join(entries)


def encode_record(datum: Mapping[str, Any], sequence: Mapping[str, Any] | None, limit: int) -> bytes:
    """The payload of one record: an Example, or with `sequence` a SequenceExample."""
    record = _field(1, _features(datum, limit))
    if sequence is not None:
        record += _field(2, _feature_lists(sequence, limit))
    if len(record) > limit:
        raise ValueError(f"got a record of {len(record)} bytes, expected at most {limit} (2 GiB - 1) for an Example")
    return record
