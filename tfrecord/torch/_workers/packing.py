"""A dict of tensors that goes from a worker to the main process in one piece.

A DataLoader sends each tensor of a batch separately, by a file descriptor requested over a socket. With forty
columns this costs more than reading and decoding them. Here all columns are placed in one buffer, sorted by
dtype; the receiver's tensors are views of its copy of the buffer.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, NoReturn

import torch
from torch.utils.data import get_worker_info

from indexer.options import known_names
from tfrecord._columns.batch import TensorRagged
from tfrecord.torch._workers import blocks

__all__ = ["TensorDict"]

# Up to this size the buffer goes through the pipe itself, beyond it through reused shared memory.
_INLINE = 1 << 16
_ALIGNMENT = 64


class TensorDict(dict[str, Any]):
    """A batch: a dict of tensors, lists of bytes and ragged columns, sent between processes as one."""

    def __missing__(self, key: object) -> NoReturn:
        raise KeyError(f"no column {key!r}{known_names(key, self)}")

    def __copy__(self) -> TensorDict:
        return TensorDict(self)

    def copy(self) -> TensorDict:
        """A shallow copy."""
        return TensorDict(self)


class _Group(NamedTuple):
    """Consecutive tensors of one dtype, from `start` on."""

    dtype: torch.dtype
    members: list[int]
    sizes: list[int]
    start: int

    @property
    def end(self) -> int:
        return self.start + sum(self.sizes) * self.dtype.itemsize


class _Strings(NamedTuple):
    """Consecutive byte strings, from `start` on."""

    start: int
    lengths: list[int]


class _Items(NamedTuple):
    """The parts of a list of tensors."""

    parts: list[Any]


def _is_plain(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.requires_grad
        and not value.is_conj()
        and not value.is_neg()
    )


class _Packer:
    """Takes a batch apart and lays out its values."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.strings: list[tuple[int, list[bytes]]] = []
        self.end = 0

    def _room(self, size: int) -> int:
        start = self.end
        self.end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return start

    def part(self, value: Any) -> Any:
        """The description from which a value is rebuilt; tensors are given by number."""
        if _is_plain(value):
            self.tensors.append(value)
            return len(self.tensors) - 1
        if type(value) is TensorRagged:
            return (self.part(value.values), self.part(value.row_splits))
        if type(value) is list and value and all(type(item) is bytes for item in value):
            lengths = [len(item) for item in value]
            start = self._room(sum(lengths))
            self.strings.append((start, value))
            return _Strings(start, lengths)
        if type(value) is list and value and all(map(_is_plain, value)):  # images of different sizes
            return _Items([self.part(item) for item in value])
        if type(value) is dict:
            return {name: self.part(item) for name, item in value.items()}
        return [value]

    def groups(self) -> list[_Group]:
        """Where the tensors go."""
        by_dtype: dict[torch.dtype, list[int]] = {}
        for i, tensor in enumerate(self.tensors):
            by_dtype.setdefault(tensor.dtype, []).append(i)
        made = []
        for dtype, members in by_dtype.items():
            sizes = [self.tensors[i].numel() for i in members]
            made.append(_Group(dtype, members, sizes, self._room(sum(sizes) * dtype.itemsize)))
        return made

    def fill(self, memory: memoryview, groups: list[_Group]) -> None:
        """Copy everything to its place."""
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        for group in groups:
            if group.end > group.start:
                # As bytes: not every dtype can be concatenated.
                flat = [_as_bytes(self.tensors[i]) for i in group.members]
                torch.cat(flat, out=whole[group.start : group.end])
        for start, items in self.strings:
            for item in items:
                memory[start : start + len(item)] = item
                start += len(item)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor in order as bytes, without a copy where they lie one after another."""
    flat = tensor.reshape(-1)
    if flat.stride(0) != 1:  # of `expand`, say; `contiguous` does not change the stride of a single value
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def _pack(batch: dict[str, Any]) -> tuple[Any, ...]:
    """(parts, groups, shapes, data): data is the buffer, or the block of shared memory that holds it."""
    packer = _Packer()
    parts = {name: packer.part(value) for name, value in batch.items()}
    groups = packer.groups()
    shapes = [tuple(tensor.shape) for tensor in packer.tensors]
    block = blocks.take(packer.end) if packer.end > _INLINE else None
    if block is not None:
        packer.fill(blocks.view(block), groups)
        return parts, groups, shapes, block
    data = bytearray(packer.end)
    if data:
        packer.fill(memoryview(data), groups)
    return parts, groups, shapes, data


def _unpack(parts: Any, groups: list[_Group], shapes: list[tuple[int, ...]], data: Any) -> TensorDict:
    block = data if isinstance(data, blocks.Block) else None
    memory = memoryview(data) if block is None else blocks.view(block)
    tensors: list[Any] = [None] * len(shapes)
    for group in groups:
        if block is not None:
            held: Any = bytearray(memory[group.start : group.end])
        else:
            held = memory[group.start : group.end]
        whole = torch.frombuffer(held, dtype=torch.uint8) if len(held) else torch.empty(0, dtype=torch.uint8)
        whole = whole.view(group.dtype)
        for i, tensor in zip(group.members, torch.split(whole, group.sizes), strict=True):
            tensors[i] = tensor if len(shapes[i]) == 1 else tensor.view(shapes[i])
    result = TensorDict({name: _put_together(part, tensors, memory) for name, part in parts.items()})
    if block is not None:
        blocks.release(block)
    return result


def _put_together(part: Any, tensors: list[Any], memory: memoryview) -> Any:
    if isinstance(part, int):
        return tensors[part]
    if isinstance(part, _Strings):
        out, at = [], part.start
        for length in part.lengths:
            out.append(bytes(memory[at : at + length]))
            at += length
        return out
    if isinstance(part, _Items):
        return [_put_together(one, tensors, memory) for one in part.parts]
    if isinstance(part, tuple):
        return TensorRagged._trusted(*(_put_together(one, tensors, memory) for one in part))
    if isinstance(part, dict):
        return {name: _put_together(one, tensors, memory) for name, one in part.items()}
    return part[0]


def _reduce(batch: TensorDict) -> tuple[Any, ...]:
    return (_unpack, _pack(batch)) if get_worker_info() is not None else (TensorDict, (dict(batch),))


# Only between processes: an ordinary pickle holds the batch itself.
ForkingPickler.register(TensorDict, _reduce)
