"""Messages for the tests of parsing, made by protobuf."""

from __future__ import annotations

from typing import Any

from tfrecord.example_pb2 import Example, SequenceExample


def put(feature: Any, values: Any) -> None:
    if values is None:
        return
    kind, items = values
    getattr(feature, f"{kind}_list").SetInParent()
    getattr(feature, f"{kind}_list").value.extend(items)


def example(**features: Any) -> bytes:
    """Each feature is a pair of kind and values; None makes a Feature without a kind."""
    message = Example()
    for key, values in features.items():
        put(message.features.feature[key], values)
    return bytes(message.SerializeToString(deterministic=True))


def sequence(context: dict[str, Any], lists: dict[str, Any]) -> bytes:
    message = SequenceExample()
    for key, values in context.items():
        put(message.context.feature[key], values)
    for key, steps in lists.items():
        made = message.feature_lists.feature_list[key]
        for step in steps:
            put(made.feature.add(), step)
    return bytes(message.SerializeToString(deterministic=True))


def ints(*values: int) -> tuple[str, list[int]]:
    return "int64", list(values)


def floats(*values: float) -> tuple[str, list[float]]:
    return "float", list(values)


def strings(*values: bytes) -> tuple[str, list[bytes]]:
    return "bytes", list(values)
