"""The samples of WAV files, to draw them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_MOST_BYTES = 64 << 20
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def samples_of(data: Any) -> npt.NDArray[np.float32] | None:
    """The first channel of a WAV file, from -1 to 1; None for other files, and for other encodings than PCM
    and floats. Damaged sizes are cut to what is there."""
    view = memoryview(data)[:_MOST_BYTES]
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WAVE":
        return None
    at, form = 12, b""
    while at + 8 <= len(view):
        name, size = bytes(view[at : at + 4]), int.from_bytes(view[at + 4 : at + 8], "little")
        body = view[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = bytes(body[:26])
        elif name == b"data":
            return _decoded(body, form) if len(form) >= 16 else None
        at += 8 + size + size % 2
    return None


def _decoded(body: memoryview, form: bytes) -> npt.NDArray[np.float32] | None:
    kind = int.from_bytes(form[:2], "little")
    channels, bits = int.from_bytes(form[2:4], "little"), int.from_bytes(form[14:16], "little")
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = int.from_bytes(form[24:26], "little")
    step = channels * bits // 8
    count = len(body) // step if step else 0
    if not count or channels < 1:
        return None
    raw = np.frombuffer(body[: count * step], np.uint8).reshape(count, step)[:, : bits // 8]
    if kind == _FLOAT and bits in (32, 64):
        whole = np.ascontiguousarray(raw).view(f"<f{bits // 8}")
        with np.errstate(over="ignore"):
            floats: npt.NDArray[np.float32] = whole[:, 0].astype(np.float32)
        return floats
    if kind != _PCM or bits not in (8, 16, 24, 32):
        return None
    samples: npt.NDArray[np.float32]
    if bits == 8:
        samples = np.divide(raw[:, 0] - np.float32(128), 128, dtype=np.float32)
        return samples
    wide = np.zeros((count, 4), np.uint8)
    wide[:, 4 - bits // 8 :] = raw  # the highest bytes of 32 bits
    samples = np.divide(wide.view("<i4")[:, 0], 2**31, dtype=np.float32)
    return samples
