"""A column of byte strings, stored as references into buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from indexer.options import suggests_options
from tfrecord._columns.arrays import Int64Array, as_int64, as_position, is_integer, splits_of
from tfrecord._columns.text import bytes_text, items_text
from tfrecord._columns.to_arrow import ArrowColumn, binary_array, fixed_lists, large_binary_array
from tfrecord._kernels.engine import decode_kernel as kernel


class BytesColumn(ArrowColumn):
    """n byte strings as places in buffers: nothing is copied until a value is requested.

    `buffers` are bytes-like objects (often memoryviews over mapped files) that the column keeps alive.
    `offsets` and `lengths` are int64 arrays with one entry per value; `buffer_ids` (int32) says which buffer
    holds each value, None means all are in `buffers[0]`. `shape` is `(n,)` unless given: a column with k
    values per record has shape `(n, k)`, with offsets and lengths flat, in C order.

    Raises ValueError if a value would lie outside its buffer.
    """

    __slots__ = ("_views", "buffer_ids", "buffers", "lengths", "offsets", "shape")
    __module__ = "tfrecord.columns"

    buffers: tuple[Any, ...]
    offsets: Int64Array
    lengths: Int64Array
    buffer_ids: npt.NDArray[np.int32] | None
    shape: tuple[int, ...]

    def __init__(
        self,
        buffers: Iterable[Any],
        offsets: npt.ArrayLike,
        lengths: npt.ArrayLike,
        buffer_ids: npt.ArrayLike | None = None,
        *,
        shape: Sequence[int] | None = None,
    ) -> None:
        if isinstance(buffers, (bytes, bytearray, memoryview)):
            raise TypeError("buffers is a tuple of buffers: write (data,) for one")
        self.buffers = tuple(buffers)
        self.offsets = as_int64(offsets, "offsets")
        self.lengths = as_int64(lengths, "lengths")
        self.buffer_ids = None if buffer_ids is None else as_int64(buffer_ids, "buffer_ids").astype(np.int32)
        count = len(self.offsets)
        self.shape = (count,) if shape is None else tuple(int(extent) for extent in shape)
        self._views: tuple[memoryview, ...] | None = None
        self._check(count)

    def _check(self, count: int) -> None:
        if len(self.lengths) != count:
            raise ValueError(f"{count} offsets but {len(self.lengths)} lengths")
        if not self.shape or min(self.shape) < 0 or int(np.prod(self.shape, dtype=object)) != count:
            raise ValueError(f"shape {self.shape} does not hold {count} values")
        sizes = np.array([len(view) for view in self._memoryviews()], np.int64)
        if self.buffer_ids is None:
            ids: Any = 0
            if count and not len(sizes):
                raise ValueError(f"{count} values but no buffer")
        else:
            ids = self.buffer_ids
            if len(ids) != count:
                raise ValueError(f"{count} offsets but {len(ids)} buffer_ids")
            if count and not (0 <= int(ids.min()) and int(ids.max()) < len(sizes)):
                raise ValueError(f"buffer_ids must be in 0..{len(sizes) - 1}")
        if not count:
            return
        size = sizes[ids]
        # Compare with what remains, never add: a sum of two int64 may wrap around.
        bad = (self.offsets < 0) | (self.lengths < 0) | (self.lengths > size)
        bad |= self.offsets > size - np.minimum(self.lengths, size)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"value {i} (offset {int(self.offsets[i])}, length {int(self.lengths[i])}) "
                "lies outside its buffer"
            )

    @classmethod
    def _trusted(
        cls,
        buffers: tuple[Any, ...],
        offsets: Int64Array,
        lengths: Int64Array,
        buffer_ids: npt.NDArray[np.int32] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> BytesColumn:
        """Data that a kernel has already checked: no check, no copy."""
        self = object.__new__(cls)
        self.buffers = buffers
        self.offsets = offsets
        self.lengths = lengths
        self.buffer_ids = buffer_ids
        self.shape = (len(offsets),) if shape is None else shape
        self._views = None
        return self

    @classmethod
    def from_list(cls, values: Iterable[Any]) -> BytesColumn:
        """A column of bytes-like objects, copied into one buffer."""
        held = [_as_bytes(value) for value in values]
        lengths = np.fromiter(map(len, held), np.int64, len(held))
        return cls._trusted((b"".join(held),), splits_of(lengths)[:-1], lengths)

    def _reshaped(self, shape: tuple[int, ...]) -> BytesColumn:
        """The same values in another shape."""
        return BytesColumn._trusted(self.buffers, self.offsets, self.lengths, self.buffer_ids, shape)

    def _memoryviews(self) -> tuple[memoryview, ...]:
        """The buffers as flat read-only bytes."""
        if self._views is None:
            self._views = tuple(memoryview(buffer).cast("B").toreadonly() for buffer in self.buffers)
        return self._views

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of values over all dimensions."""
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Total bytes of all values (not of the buffers that hold them)."""
        return int(self.lengths.sum())

    def view(self, index: int) -> memoryview:
        """Read-only memoryview of value `index`; it stays valid as long as it is held.

        In a column with several dimensions, values are numbered in C order.
        """
        i = as_position(index, len(self.offsets), "values")
        buffer = self._memoryviews()[0 if self.buffer_ids is None else self.buffer_ids[i]]
        start = int(self.offsets[i])
        return buffer[start : start + int(self.lengths[i])]

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | npt.NDArray[Any]) -> BytesColumn: ...
    def __getitem__(self, index: Any) -> Any:
        """An integer gives the value as bytes (or a row as a BytesColumn, if there are several dimensions);
        slices, integer and bool arrays give a BytesColumn over the same buffers."""
        if len(self.shape) == 1 and is_integer(index):
            return self.view(index).tobytes()
        return self._select(index)

    def _select(self, index: Any) -> Any:
        if isinstance(index, (str, bytes, float, np.floating)):
            raise TypeError(f"values are chosen by integers, slices or masks, not by {index!r}")
        offsets = self.offsets.reshape(self.shape)[index]
        lengths = self.lengths.reshape(self.shape)[index]
        ids = None if self.buffer_ids is None else self.buffer_ids.reshape(self.shape)[index]
        if np.ndim(offsets) == 0:
            start = int(offsets)
            return self._memoryviews()[0 if ids is None else int(ids)][start : start + int(lengths)].tobytes()
        return BytesColumn._trusted(
            self.buffers,
            np.ascontiguousarray(offsets).reshape(-1),
            np.ascontiguousarray(lengths).reshape(-1),
            None if ids is None else np.ascontiguousarray(ids).reshape(-1),
            offsets.shape,
        )

    def __iter__(self) -> Iterator[Any]:
        if len(self.shape) > 1:
            return (self._select(i) for i in range(len(self)))
        return iter(self.ravel_list())

    def ravel_list(self) -> list[bytes]:
        """All values as bytes, in C order."""
        if self.buffer_ids is None and len(self.offsets) and type(self.buffers[0]) is bytes:
            data = self.buffers[0]  # a slice of bytes is bytes: one object per value, not two
            return [data[start:end] for start, end in self._spans()]
        return [view.tobytes() for view in self._slices()]

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self.offsets.tolist(), (self.offsets + self.lengths).tolist(), strict=True)

    def _slices(self) -> Iterator[memoryview]:
        """Views of the values in place, in C order."""
        views = self._memoryviews()
        if not len(self.offsets):
            return iter(())
        if self.buffer_ids is None:
            view = views[0]
            return (view[start:end] for start, end in self._spans())
        ids = self.buffer_ids.tolist()
        return (views[i][start:end] for i, (start, end) in zip(ids, self._spans(), strict=True))

    def to_list(self) -> list[Any]:
        """The values as bytes; lists of lists if the column has several dimensions."""
        flat: list[Any] = self.ravel_list()
        if len(self.shape) == 1:
            return flat
        shaped: list[Any] = _object_array(flat).reshape(self.shape).tolist()
        return shaped

    def to_numpy(self) -> npt.NDArray[np.object_]:
        """An object array of bytes in the column's shape (numpy's string dtype drops trailing zeros)."""
        return _object_array(self.ravel_list()).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a BytesColumn cannot become an array without a copy")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype)

    def compact(self) -> BytesColumn:
        """The same values, copied to one new buffer that holds nothing else."""
        starts = splits_of(self.lengths)[:-1]
        return BytesColumn._trusted(
            (self._gathered().tobytes(),), starts, self.lengths.copy(), None, self.shape
        )

    def _gathered(self) -> npt.NDArray[np.uint8]:
        """All values one after another, in a new array."""
        out: npt.NDArray[np.uint8] = kernel.empty((self.nbytes,))
        kernel.gather(self.buffers, self.offsets, self.lengths, self.buffer_ids, out)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        small = self.compact()
        return BytesColumn._trusted, (small.buffers, small.offsets, small.lengths, None, small.shape)

    @suggests_options
    def to_arrow(self, *, binary_views: bool = False) -> Any:
        """An Arrow array of `large_binary`: a copy of the values that keeps nothing else alive.

        With `binary_views=True` it is `binary_view`: no value is copied, and the array keeps the column's
        buffers (often whole mapped files) alive; pickling or sending it includes them. If a value has 2 GiB
        or more, or pyarrow is older than 19, the result is `large_binary` anyway. k values per record become
        fixed-size lists. Raises ImportError with the pip command if pyarrow is missing.
        """
        array = None
        if binary_views:
            array = binary_array(self._memoryviews(), self.offsets, self.lengths, self.buffer_ids)
        if array is None:
            array = large_binary_array(self._gathered(), splits_of(self.lengths))
        return fixed_lists(array, self.shape)

    def to_torch(self) -> list[Any]:
        """A list of bytes: torch has no tensor of byte strings."""
        return self.to_list()

    def _preview(self, index: int) -> str:
        if len(self.shape) > 1:
            row = self._select(index)
            return items_text((row._preview(i) for i in range(len(row))), len(row))
        return bytes_text(self.view(index))

    def __repr__(self) -> str:
        values = items_text((self._preview(i) for i in range(len(self))), len(self))
        return f"BytesColumn {self.shape}, {self.nbytes:,} bytes: {values}"

    def equals(self, other: object) -> bool:
        """Whether `other` is a column of the same shape and the same values."""
        if not isinstance(other, BytesColumn) or self.shape != other.shape:
            return False
        same = np.array_equal(self.lengths, other.lengths)
        return same and np.array_equal(self._gathered(), other._gathered())

    def __eq__(self, other: object) -> bool:
        return self.equals(other) if isinstance(other, BytesColumn) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def concat(columns: Sequence[BytesColumn]) -> BytesColumn:
        """The values of all columns, concatenated, over the same buffers."""
        if not columns:
            return BytesColumn._trusted((b"",), np.zeros(0, np.int64), np.zeros(0, np.int64))
        if len(columns) == 1:
            return columns[0]
        tail = columns[0].shape[1:]
        for column in columns:
            if column.shape[1:] != tail:
                raise ValueError(
                    f"columns of {tail} and of {column.shape[1:]} values per record cannot be joined"
                )
        places: dict[int, int] = {}
        buffers: list[Any] = []
        ids = []
        for column in columns:
            numbers = np.empty(len(column.buffers), np.int32)
            for i, buffer in enumerate(column.buffers):
                if id(buffer) not in places:
                    places[id(buffer)] = len(buffers)
                    buffers.append(buffer)
                numbers[i] = places[id(buffer)]
            own = np.zeros(column.size, np.int32) if column.buffer_ids is None else column.buffer_ids
            ids.append(numbers[own] if column.size else own)
        return BytesColumn._trusted(
            tuple(buffers),
            np.concatenate([column.offsets for column in columns]),
            np.concatenate([column.lengths for column in columns]),
            np.concatenate(ids) if len(buffers) > 1 else None,
            (sum(map(len, columns)), *tail),
        )


def _as_bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise TypeError(f"a bytes column holds bytes-like objects, got {type(value).__name__}") from None


def _object_array(values: list[bytes]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), object)
    array[:] = values
    return array
