"""Decides once which engine runs: the compiled kernels, or the Python reference."""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType

__all__ = ["engine", "kernel", "load_kernel"]

_REQUESTED = os.environ.get("TFRECORD_ENGINE", "").strip().lower()
if _REQUESTED not in ("", "native", "reference"):
    raise ValueError(f"TFRECORD_ENGINE is {_REQUESTED!r}; it may be 'native', 'reference' or unset")

_missing: list[str] = []


def load_kernel(name: str) -> ModuleType | None:
    """A compiled module by its full name, or None where the Python reference has to do: asked for by
    ``TFRECORD_ENGINE=reference``, or because it was not built. The first that was not is warned of, once.

    Raises:
        ImportError: it was not built, and ``TFRECORD_ENGINE=native`` asks for it.
    """
    if _REQUESTED == "reference":
        return None
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if _REQUESTED == "native":
            raise
        if not _missing:
            warnings.warn(
                f"the compiled kernel {name} could not be loaded ({error}); the slow Python reference runs. "
                "Install a C compiler and reinstall tfrecord, or set TFRECORD_ENGINE=reference to silence "
                "this.",
                RuntimeWarning,
                stacklevel=2,
            )
        _missing.append(name)
        return None


kernel: ModuleType | None = load_kernel("indexer._kernel._framing")
engine: str = "reference" if kernel is None else "native"
