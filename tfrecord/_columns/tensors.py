"""numpy arrays as torch tensors, and the tensor operations that ragged columns need."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._optional import optional


def tensor_of(array: npt.NDArray[Any]) -> Any:
    """A writable tensor: over the memory of a writable, contiguous array, else a copy."""
    torch = optional("torch")
    array = np.ascontiguousarray(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def tensors_of(column: npt.NDArray[Any]) -> Any:
    """A dense column as a tensor; images of different sizes, an object array, as a list of tensors."""
    return list(map(tensor_of, column)) if column.dtype.kind == "O" else tensor_of(column)


def nested_of(values: Any, row_splits: Any) -> Any:
    """A nested tensor (jagged layout) over `values`, split at `row_splits`."""
    torch = optional("torch")
    if hasattr(torch.nested, "nested_tensor_from_jagged"):
        return torch.nested.nested_tensor_from_jagged(values, row_splits)
    rows = torch.tensor_split(values, row_splits[1:-1].cpu())  # torch before 2.4
    return torch.nested.as_nested_tensor(list(rows))


def padded(values: Any, row_splits: Any, width: int, fill_value: Any) -> Any:
    """The rows of `values` as a tensor (n, width, ...): short ones padded, long ones truncated."""
    torch = optional("torch")
    try:
        filled = values.new_full((), fill_value)
    except (TypeError, RuntimeError, OverflowError):  # text, or an integer that is too large
        filled = None
    if filled is None or not (values.is_floating_point() or filled.item() == fill_value):
        raise ValueError(f"fill value {fill_value!r} does not fit {values.dtype}")
    lengths = row_splits.diff()
    within = torch.arange(len(values), device=values.device)
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=values.device), lengths)
    within -= row_splits[:-1][rows]
    kept = within < width
    out = values.new_full((len(lengths), width, *values.shape[1:]), fill_value)
    out[rows[kept], within[kept]] = values[kept]
    return out
