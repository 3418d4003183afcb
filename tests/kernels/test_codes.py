"""Kernels and Python mean the same by a number."""

from __future__ import annotations

import re
from pathlib import Path

from tfrecord._kernels import codes

HEADER = Path(__file__).resolve().parents[2] / "tfrecord" / "_kernels" / "codes.h"


def test_the_header_has_the_numbers_of_the_module() -> None:
    text = HEADER.read_text()
    kinds = {name: int(value) for name, value in re.findall(r"\bKIND_(\w+) = (\d+)[, ]", text)}
    assert kinds == {name: getattr(codes, name) for name in ("UNKNOWN", "BYTES", "FLOAT", "INT64")}
    statuses = {name: int(value) for name, value in re.findall(r"\bWIRE_(\w+) = (\d+)\b", text)}
    assert statuses.pop("OK") == 0 and statuses.pop("NO_MEMORY") == 99
    assert statuses == {name: getattr(codes, name) for name in statuses}
    assert set(codes.REASONS) == {number for number in statuses.values() if number < 20}
