"""Decides once which engine decodes: the compiled kernel, or the Python reference."""

from __future__ import annotations

import importlib
import os
import warnings
from types import ModuleType

from indexer._engine import kernel as framing_kernel

__all__ = ["decode_kernel", "encode_kernel", "engine"]


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

encode_kernel: ModuleType | None = load_kernel("_encode")

# "native" only where all three kernels are there.
engine: str = "reference" if None in (_kernel, encode_kernel, framing_kernel) else "native"
