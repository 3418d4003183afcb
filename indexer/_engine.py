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
    raise ValueError(f"TFRECORD_ENGINE is {_REQUESTED!r}; it must be 'native', 'reference' or unset")

_missing: list[str] = []


def load_kernel(name: str) -> ModuleType | None:
    """A compiled module by its full name, or None if the Python reference must be used.

    That is so if ``TFRECORD_ENGINE=reference`` asks for it, or if the module was not built. The first module
    that was not built gives one warning.

    Raises:
        ImportError: the module was not built, and ``TFRECORD_ENGINE=native`` requires it.
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
    """What to do about a missing kernel, which depends on where these files are."""
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
