"""A dict of tensors that goes from a worker to the main process as one block of shared memory."""

from __future__ import annotations

from typing import Any

__all__ = ["TensorDict"]


class TensorDict(dict[str, Any]):
    """A batch: a dict of tensors, lists of bytes and ragged columns."""
