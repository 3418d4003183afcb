"""Decides once which engine runs: the compiled kernel, or the Python reference."""

from __future__ import annotations

import os
import warnings
from types import ModuleType

__all__ = ["engine", "kernel"]

_REQUESTED = os.environ.get("TFRECORD_ENGINE", "").strip().lower()
if _REQUESTED not in ("", "native", "reference"):
    raise ValueError(f"TFRECORD_ENGINE is {_REQUESTED!r}; it may be 'native', 'reference' or unset")


def _load() -> ModuleType | None:
    if _REQUESTED == "reference":
        return None
    try:
        from . import _framing
    except ImportError as error:
        if _REQUESTED == "native":
            raise
        warnings.warn(
            f"the compiled kernel indexer._framing could not be loaded ({error}); the slow Python reference "
            "runs. Install a C compiler and reinstall tfrecord, or set TFRECORD_ENGINE=reference to silence "
            "this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return _framing


kernel: ModuleType | None = _load()
engine: str = "reference" if kernel is None else "native"
