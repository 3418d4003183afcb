"""Shards for the tests of Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tfrecord


def write_shard(path: Path, first: int, count: int, *, odd: bool = False, **options: Any) -> None:
    """Records of a number, two floats, and text of differing length; ``odd`` ones have no text."""
    rng = np.random.default_rng(first)
    with tfrecord.TFRecordWriter(path, **options) as writer:
        for number in range(first, first + count):
            record = {"id": (number, "int"), "pair": (rng.random(2), "float")}
            if not odd:
                record["words"] = ([f"w{number}"] * int(rng.integers(0, 4)), "bytes")
            writer.write(record)
