"""The targets of ``scripts/fuzz.py``: what must hold for any bytes."""

from __future__ import annotations

from collections.abc import Callable

from .kernels import check_example, check_framing, check_index, check_sequence
from .points import check_points

__all__ = ["TARGETS"]

TARGETS: dict[str, Callable[[bytes], None]] = {
    "framing": check_framing,
    "example": check_example,
    "sequence": check_sequence,
    "index": check_index,
    "points": check_points,
}
