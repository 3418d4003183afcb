"""Predicates for tests of `filter`, and batches as lists make them."""

from __future__ import annotations

from typing import Any

from tfrecord import FixedLenFeature, VarLenFeature

FEATURES = {"id": FixedLenFeature((), "int"), "x": VarLenFeature("float")}


def even(item: dict[str, Any]) -> Any:
    return item["id"] % 2 == 0


def not_third(item: dict[str, Any]) -> Any:
    return item["id"] % 3 != 0


def batched(numbers: list[int], options: dict[str, Any]) -> list[list[int]]:
    size = options["batch_size"] or 1
    items = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    return [item for item in items if len(item) == size or not options["drop_last"]]
