"""Decides once which engine runs: the compiled kernels, or the Python reference."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import warnings
from pathlib import Path
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
                f"{_hint(name)}, or set TFRECORD_ENGINE=reference to silence this.",
                RuntimeWarning,
                stacklevel=2,
            )
        _missing.append(name)
        return None


def _hint(name: str) -> str:
    """What to do where a kernel is missing: that depends on where these files lie."""
    root = Path(__file__).resolve().parent.parent
    pattern = name.replace(".", "/") + ".*"
    for found in importlib.metadata.distributions(name="tfrecord"):
        place = Path(str(found.locate_file(""))).resolve()
        if place != root and any(item.suffix in (".so", ".pyd") for item in place.glob(pattern)):
            return (
                f"tfrecord is installed in {place}, but the source folder {root} hides it: "
                "start Python in another folder (or build the source: pip install -e .)"
            )
    if (root / "pyproject.toml").is_file():
        return f"{root} is a source folder: build its kernels with pip install -e . and a C compiler"
    return "Install a C compiler and reinstall tfrecord"


kernel: ModuleType | None = load_kernel("indexer._kernel._framing")
engine: str = "reference" if kernel is None else "native"
