"""Decides once which engine decodes and encodes: the compiled kernels, or the Python reference."""

from __future__ import annotations

from types import ModuleType

from indexer._engine import kernel as framing_kernel
from indexer._engine import load_kernel

__all__ = ["decode_kernel", "encode_kernel", "engine"]

_kernel = load_kernel("tfrecord._kernels.decode")
if _kernel is None:
    from tfrecord._kernels import decode_reference as decode_kernel
else:
    decode_kernel = _kernel

encode_kernel: ModuleType | None = load_kernel("tfrecord._kernels.encode")

# "native" only if all three kernels are available.
engine: str = "reference" if None in (_kernel, encode_kernel, framing_kernel) else "native"
