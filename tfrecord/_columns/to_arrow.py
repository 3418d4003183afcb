"""Columns as Arrow arrays, without a copy if Arrow has a type for the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tfrecord._columns.arrays import BoolArray, Int64Array, ranges
from tfrecord._optional import optional

# A view (Arrow columnar format, "Variable-size Binary View Layout") is 16 bytes: length, then up to 12 bytes
# inline, or 4 bytes of prefix, the buffer's number and an int32 offset into it.
INLINE = 12
_VIEW_MAX = (1 << 31) - 1
# A larger buffer is passed to Arrow once per gibibyte in use, so that every offset fits int32.
_WINDOW_BITS = 30


def dense_array(values: npt.NDArray[Any]) -> Any:
    """A numpy array (n, ...) as a primitive array or fixed-size lists; only bool is copied."""
    pa = optional("pyarrow")
    if values.dtype.kind == "O" and values.size:
        raise TypeError("images of different sizes have no Arrow type: give ImageFeature a full shape")
    flat = np.ascontiguousarray(values).reshape(-1)
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    return fixed_lists(pa.array(flat), values.shape)


def fixed_lists(array: Any, shape: Sequence[int]) -> Any:
    """A flat array as `shape[0]` nested fixed-size lists of shape `shape[1:]`."""
    pa = optional("pyarrow")
    count = len(array)
    for axis in range(len(shape) - 1, 0, -1):
        count = int(np.prod(shape[:axis], dtype=np.int64))
        array = pa.Array.from_buffers(pa.list_(array.type, shape[axis]), count, [None], children=[array])
    return array


def list_array(row_splits: Int64Array, values: Any, present: BoolArray | None) -> Any:
    """Large lists over `values`. Rows that are not present are null."""
    pa = optional("pyarrow")
    validity = None
    if present is not None and not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_list(values.type),
        len(row_splits) - 1,
        [validity, pa.py_buffer(np.ascontiguousarray(row_splits))],
        children=[values],
    )


@cache
def knows_views() -> bool:
    """Whether this pyarrow can make views over buffers (19 can). Nothing else decides the type."""
    pa = optional("pyarrow")
    empty = pa.py_buffer(b"")
    try:
        pa.Array.from_buffers(pa.binary_view(), 0, [None, empty, empty, empty])
    except (AttributeError, ValueError):
        return False
    return True


def binary_array(
    buffers: Sequence[memoryview],
    offsets: Int64Array,
    lengths: Int64Array,
    buffer_ids: npt.NDArray[np.int32] | None,
) -> Any:
    """`binary_view` over the buffers; long values are not copied.

    None if a value has 2 GiB or more, or if pyarrow cannot make views.
    """
    pa = optional("pyarrow")
    if not knows_views() or (len(lengths) and int(lengths.max()) > _VIEW_MAX):
        return None
    views = np.zeros((len(offsets), 4), np.int32)
    views[:, 0] = lengths
    held: list[Any] = []
    groups: list[tuple[int, Any]] = [(0, slice(None))] if buffer_ids is None else _groups(buffer_ids)
    for number, rows in groups if len(offsets) else ():
        _fill_views(views, np.frombuffer(buffers[number], np.uint8), offsets[rows], lengths[rows], rows)
        held += _place(views, buffers[number], offsets, lengths, rows, len(held))
    return pa.Array.from_buffers(pa.binary_view(), len(offsets), [None, pa.py_buffer(views), *held])


def _groups(buffer_ids: npt.NDArray[np.int32]) -> list[tuple[int, Any]]:
    """(buffer, the numbers of its values) for each buffer in use."""
    if not len(buffer_ids):
        return []
    order = np.argsort(buffer_ids, kind="stable")
    used, starts = np.unique(buffer_ids[order], return_index=True)
    return [(int(number), rows) for number, rows in zip(used, np.split(order, starts[1:]), strict=True)]


def _fill_views(
    views: npt.NDArray[np.int32],
    source: npt.NDArray[np.uint8],
    offsets: Int64Array,
    lengths: Int64Array,
    rows: Any,
) -> None:
    """Fill in the bytes that the views themselves hold: short values, and the start of long ones."""
    taken = np.where(lengths <= INLINE, lengths, 4)
    numbers = np.arange(len(views))[rows]
    flat = views.view(np.uint8).reshape(-1)
    step = 1 << 20  # bounds the index arrays
    for at in range(0, len(numbers), step):
        part = slice(at, at + step)
        flat[ranges(numbers[part] * 16 + 4, taken[part])] = source[ranges(offsets[part], taken[part])]


def _place(
    views: npt.NDArray[np.int32],
    buffer: memoryview,
    offsets: Int64Array,
    lengths: Int64Array,
    rows: Any,
    first: int,
) -> list[Any]:
    """Fill in buffer number (from `first` on) and offset of each long value; return the Arrow buffers."""
    pa = optional("pyarrow")
    numbers = np.arange(len(views))[rows]
    numbers = numbers[lengths[numbers] > INLINE]
    windows = offsets[numbers] >> _WINDOW_BITS
    used, window_of = np.unique(windows, return_inverse=True)
    views[numbers, 2] = first + window_of
    views[numbers, 3] = offsets[numbers] - (windows << _WINDOW_BITS)
    whole = pa.py_buffer(buffer)
    return [whole.slice(int(window) << _WINDOW_BITS) for window in used]


def large_binary_array(joined: npt.NDArray[np.uint8], splits: Int64Array) -> Any:
    """`large_binary` over one run of bytes, split at `splits` (n + 1)."""
    pa = optional("pyarrow")
    return pa.Array.from_buffers(
        pa.large_binary(), len(splits) - 1, [None, pa.py_buffer(splits), pa.py_buffer(joined)]
    )


class ArrowColumn:
    """What a column offers to other libraries, all of it by way of its `to_arrow`."""

    __slots__ = ()

    def __arrow_c_array__(self: Any, requested_schema: object | None = None) -> Any:
        """For pyarrow, polars and others: the capsules of `to_arrow()`."""
        return self.to_arrow().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self: Any, requested_schema: object | None = None) -> Any:
        """For pyarrow, polars and others: a stream of the one array of `to_arrow()`."""
        return optional("pyarrow").chunked_array([self.to_arrow()]).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self: Any) -> Any:
        """For pyarrow and others: the type of `to_arrow()`."""
        return self[:0].to_arrow().type.__arrow_c_schema__()


def masked(array: Any, present: BoolArray) -> Any:
    """The array with null where `present` is False."""
    if present.all():
        return array
    pa = optional("pyarrow")
    return array.take(pa.array(np.arange(len(array)), mask=~present))


def text_of(array: Any) -> Any:
    """Binary values, also within lists, as text. This copies them.

    Raises ArrowInvalid if a value is not UTF-8.
    """
    pa = optional("pyarrow")
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        text = text_of(array.flatten())
        return pa.Array.from_buffers(pa.list_(text.type, kind.list_size), len(array), [None], children=[text])
    if pa.types.is_large_list(kind):
        text = text_of(array.values)
        return pa.Array.from_buffers(
            pa.large_list(text.type), len(array), array.buffers()[:2], array.null_count, children=[text]
        )
    return array.cast(pa.large_string()) if pa.types.is_large_binary(kind) else array
