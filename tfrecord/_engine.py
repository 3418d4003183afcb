"""Decides once which engine decodes: the compiled kernel, or the Python reference."""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType

__all__ = ["decode_kernel", "engine", "load_kernel"]


def load_kernel(name: str) -> ModuleType | None:
    """A compiled module of this package, or None where the reference has to do: asked for by
    ``TFRECORD_ENGINE=reference``, or (with one warning) because the module was not built.

    Raises:
        ImportError: it was not built and ``TFRECORD_ENGINE=native`` asks for it.
    """
    requested = os.environ.get("TFRECORD_ENGINE", "").strip().lower()
    if requested == "reference":
        return None
    try:
        return importlib.import_module(f"tfrecord.{name}")
    except ImportError as error:
        if requested == "native":
            raise
        warnings.warn(
            f"the compiled kernel tfrecord.{name} could not be loaded ({error}); the slow Python reference "
            "runs. "
            "Install a C compiler and reinstall tfrecord, or set TFRECORD_ENGINE=reference to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


_kernel = load_kernel("_decode")
if _kernel is None:
    from tfrecord import _reference as decode_kernel
else:
    decode_kernel = _kernel

engine: str = "reference" if _kernel is None else "native"
