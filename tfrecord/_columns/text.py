"""Values as short text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy.typing as npt

_BYTES = 20
_ITEMS = 4
_CELL = 60


def bytes_text(view: memoryview | bytes) -> str:
    """A byte string, or its beginning and length."""
    if len(view) <= _BYTES:
        return repr(bytes(view))
    return f"{bytes(view[:_BYTES])!r}… ({len(view):,} bytes)"


def items_text(items: Iterable[str], total: int) -> str:
    """The first few of `total` items in brackets."""
    shown = [item for item, _ in zip(items, range(_ITEMS), strict=False)]
    more = [f"… {total - len(shown):,} more"] if total > len(shown) else []
    return f"[{', '.join(shown + more)}]"


def array_text(array: npt.NDArray[Any]) -> str:
    """One row of a dense column."""
    if array.ndim == 0:
        return str(array[()])
    return items_text((array_text(row) for row in array[:_ITEMS]), len(array))


def cut(text: str, limit: int = _CELL) -> str:
    """`text`, shortened to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
