"""Command-line tools. This package also exports `create_index` and `create_indices` of `tfrecord2idx`."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

__all__ = ["create_index", "create_indices", "tfrecord2idx"]

if _TYPE_CHECKING:
    from . import tfrecord2idx
    from .tfrecord2idx import create_index, create_indices
else:
    # Imported on first use: `python -m tfrecord.tools.tfrecord2idx` must not find itself already imported.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'tfrecord.tools' has no attribute {name!r}")
        module = _importlib.import_module("tfrecord.tools.tfrecord2idx")
        return module if name == "tfrecord2idx" else getattr(module, name)

    def __dir__() -> list[str]:
        return list(__all__)
