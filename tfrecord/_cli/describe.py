"""Records in readable form."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tfrecord._cli.sniffing import as_text, sniff_bytes
from tfrecord._cli.terminal import safe

_TEXT = 120
_NUMBERS = 8
_VALUES = 4


def kind_of(value: Any) -> str:
    """`int64`, `float`, `bytes`, or `no kind`, of one feature of a record's dict."""
    if value is None:
        return "no kind"
    if isinstance(value, np.ndarray) and value.dtype.kind in "if":
        return "int64" if value.dtype.kind == "i" else "float"
    return "bytes"


def bytes_text(value: Any, limit: int = _TEXT) -> str:
    """Text in quotes; other bytes by their format."""
    content = sniff_bytes(value)
    if content.kind == "text":
        text = as_text(bytes(value[: 4 * limit]))
        if text is None:  # truncated inside a character
            text = bytes(value[: 4 * limit]).decode("utf-8", "ignore")
        shown = safe(text[:limit])
        return (
            f'"{shown}"'
            if len(text) <= limit and len(value) <= 4 * limit
            else f'"{shown}…" ({len(value):,} bytes)'
        )
    if content.kind in ("image", "audio") and "bytes" not in content.label:
        return f"{content.label}, {len(value):,} bytes"
    return content.label


def value_text(value: Any, limit: int = _TEXT) -> str:
    """One feature of a record's dict in one line."""
    if value is None:
        return "(no kind)"
    if isinstance(value, (bytes, memoryview)):
        return bytes_text(value, limit)
    if isinstance(value, list):
        steps = ", ".join(value_text(step, limit // 2) for step in value[:_VALUES])
        count = "1 step" if len(value) == 1 else f"{len(value)} steps"
        return f"{count}: {steps}" + (", …" if len(value) > _VALUES else "") if value else count
    if value.dtype == object:
        shown = [bytes_text(item, limit // 2) for item in value[:_VALUES]]
        return _listed(shown, len(value), _VALUES)
    if value.dtype.kind == "f":
        numbers = [f"{float(number):.6g}" for number in value[:_NUMBERS]]
    else:
        numbers = [str(int(number)) for number in value[:_NUMBERS]]
    return numbers[0] if len(value) == 1 else _listed(numbers, len(value), _NUMBERS)


def number_text(value: float | int | None) -> str:
    """A number in few characters."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def counted_text(value: Any, kind: str, limit: int = 24) -> str:
    """A value that statistics counted, of a feature of this kind."""
    if isinstance(value, bytes):
        return bytes_text(value, limit)
    return str(np.float32(value)).removesuffix(".0") if kind == "float" else str(value)


def _listed(shown: list[str], count: int, most: int) -> str:
    if not count:
        return "[]"
    return f"[{', '.join(shown)}" + (f", … {count} values]" if count > most else "]")


def feature_json(value: Any) -> Any:
    """A feature as JSON with its kind: `{"int64": [1]}`, `{"float": [0.5]}`, `{"text": ["a"]}`, `{"base64":
    ["AA=="]}`.

    None is a feature without a kind. Floats that JSON lacks are strings: `NaN`, `Infinity`, `-Infinity`, and
    a NaN with unusual bits as `nan:7fc00001`. `text` is used where every value is UTF-8 without
    control characters.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return [feature_json(step) for step in value]
    if isinstance(value, (bytes, memoryview)):
        return _bytes_json([bytes(value)])
    if value.dtype == object:
        return _bytes_json([bytes(item) for item in value])
    if value.dtype.kind == "f":
        return {"float": [float_json(item) for item in np.asarray(value, np.float32)]}
    return {"int64": value.tolist()}


def float_json(value: np.float32) -> float | str:
    """A float32 as the shortest JSON number that converts back to it, or a word."""
    if np.isfinite(value):
        return float(str(value))
    if np.isnan(value):
        bits = int(value.view(np.uint32))
        return "NaN" if bits == 0x7FC00000 else f"nan:{bits:08x}"
    return "Infinity" if value > 0 else "-Infinity"


def _bytes_json(values: list[bytes]) -> dict[str, list[str]]:
    texts = [as_text(value) for value in values]
    if all(text is not None for text in texts):
        return {"text": [str(text) for text in texts]}
    return {"base64": [base64.b64encode(value).decode() for value in values]}
