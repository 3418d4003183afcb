"""A dict of tensors that goes from a worker to the main process in one piece.

A DataLoader sends each tensor of a batch on its own, by a file descriptor that is asked for over a socket: with forty
columns this costs more than reading and decoding them. Here all columns are laid into one buffer, sorted by dtype,
and are views of it on the other side.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.data import get_worker_info

from tfrecord.columns import TensorRagged

__all__ = ["TensorDict"]

# Up to here the buffer goes through the pipe itself, beyond it as one piece of shared memory.
_INLINE = 1 << 18
_ALIGNMENT = 64


class TensorDict(dict[str, Any]):
    """A batch: a dict of tensors, lists of bytes and ragged columns, which travels between processes in one piece."""

    def __copy__(self) -> TensorDict:
        return TensorDict(self)

    def copy(self) -> TensorDict:
        """A shallow copy."""
        return TensorDict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpack, _pack(self)) if get_worker_info() is not None else (TensorDict, (dict(self),))


def _is_plain(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_conj()
        and not value.is_neg()
    )


def _take_apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    """What is needed to put a value together again from the tensors that are added to `tensors`."""
    if _is_plain(value):
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if type(value) is TensorRagged:
        return ("ragged", _take_apart(value.values, tensors), _take_apart(value.row_splits, tensors))
    if type(value) is list and value and all(type(item) is bytes for item in value):
        tensors.append(torch.frombuffer(bytearray().join(value) or bytearray(1), dtype=torch.uint8))
        return ("bytes", len(tensors) - 1, [len(item) for item in value])
    return ("other", value)


def _put_together(parts: Any, tensors: list[torch.Tensor]) -> Any:
    kind = parts[0]
    if kind == "tensor":
        return tensors[parts[1]]
    if kind == "ragged":
        return TensorRagged._trusted(_put_together(parts[1], tensors), _put_together(parts[2], tensors))
    if kind == "bytes":
        data = memoryview(tensors[parts[1]].numpy())
        out, at = [], 0
        for length in parts[2]:
            out.append(bytes(data[at : at + length]))
            at += length
        return out
    return parts[1]


def _pack(batch: dict[str, Any]) -> tuple[Any, ...]:
    """(parts, groups, shapes, buffer): the parts of each value, and where in the buffer its tensors lie."""
    tensors: list[torch.Tensor] = []
    parts = {name: _take_apart(value, tensors) for name, value in batch.items()}
    by_dtype: dict[torch.dtype, list[int]] = {}
    for i, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(i)
    groups, end = [], 0
    for dtype, members in by_dtype.items():
        sizes = [tensors[i].numel() for i in members]
        groups.append((dtype, members, sizes, end))
        end += -(-sum(sizes) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    inline = end <= _INLINE
    raw = bytearray(end) if inline else None
    buffer = _shared(end) if raw is None else torch.frombuffer(raw, dtype=torch.uint8) if end else None
    for dtype, members, sizes, start in groups:
        if buffer is not None and sum(sizes):
            out = buffer[start : start + sum(sizes) * dtype.itemsize].view(dtype)
            torch.cat([tensors[i].reshape(-1) for i in members], out=out)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    return parts, groups, shapes, raw if inline else buffer


def _shared(size: int) -> torch.Tensor:
    """Bytes in shared memory, as `default_collate` makes them in a worker."""
    storage = torch.empty(0, dtype=torch.uint8)._typed_storage()._new_shared(size, device=torch.device("cpu"))
    return torch.empty(0, dtype=torch.uint8).new(storage)


def _unpack(parts: Any, groups: Any, shapes: Any, buffer: Any) -> TensorDict:
    if not isinstance(buffer, torch.Tensor):
        buffer = torch.frombuffer(buffer, dtype=torch.uint8) if len(buffer) else torch.empty(0, dtype=torch.uint8)
    tensors: list[Any] = [None] * len(shapes)
    for dtype, members, sizes, start in groups:
        whole = buffer[start : start + sum(sizes) * dtype.itemsize].view(dtype)
        for i, tensor in zip(members, whole.split(sizes), strict=True):
            tensors[i] = tensor if len(shapes[i]) == 1 else tensor.view(shapes[i])
    assert all(math.prod(shape) == tensor.numel() for shape, tensor in zip(shapes, tensors, strict=True))
    return TensorDict({name: _put_together(value, tensors) for name, value in parts.items()})
