"""Packages that only some calls need."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

# Import name -> the extra that brings it.
_EXTRAS = {
    "pyarrow": "arrow",
    "pyarrow.flight": "flight",
    "pandas": "pandas",
    "polars": "polars",
    "torch": "torch",
    "PIL.Image": "images",
    "click": "cli",
    "rich": "cli",
}
_NAMES = {"PIL.Image": "Pillow"}


def optional(name: str) -> Any:
    """The module `name`; where it is not installed, an ImportError with the pip command that mends it.

    A package that is there but broken shows its own error.
    """
    found = sys.modules.get(name)
    if found is not None and not getattr(
        getattr(found, "__spec__", None), "_initializing", False
    ):  # another thread imports it
        return found  # asked once a column: no import machinery
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise
        extra = _EXTRAS[name]
        raise ImportError(
            f"this needs {_NAMES.get(name, name)}, which is not installed: pip install 'tfrecord[{extra}]'",
            name=name,
        ) from None


def is_installed(name: str) -> bool:
    """Whether there is such a package; it is not imported."""
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None
