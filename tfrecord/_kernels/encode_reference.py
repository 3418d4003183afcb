"""The encoders in plain Python: used without compiled kernels, and as the reference for their tests.

Bytes (minimal varints, key before value, numbers packed, features in the order of the dict)::

    Example         0A len Features                     SequenceExample  0A len Features  12 len FeatureLists
    Features        (0A len (0A len key  12 len Feature))*
    FeatureLists    (0A len (0A len key  12 len FeatureList))*
    FeatureList     (0A len Feature)*
    Feature         0A len BytesList | 12 len FloatList | 1A len Int64List
    BytesList       (0A len value)*
    FloatList, Int64List    nothing, or 0A len packed values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexer.framing import frame_record
from tfrecord._kernels.codes import BYTES, FLOAT


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _feature(values: Any, kind: int) -> bytes:
    """One Feature message; an empty list keeps its kind, and kind 0 is a Feature without one."""
    if not kind:
        return b""
    if kind == BYTES:
        content = b"".join(_field(1, bytes(value)) for value in values)
    elif not len(values):
        content = b""
    elif kind == FLOAT:
        content = _field(1, values.astype("<f4").tobytes())
    else:
        content = _field(1, b"".join(_varint(value & 0xFFFFFFFFFFFFFFFF) for value in values.tolist()))
    return _field(kind, content)


def _entry(key: bytes, value: bytes) -> bytes:
    return _field(1, _field(1, key) + _field(2, value))


frame = frame_record


class RecordEncoder:
    """Dicts to frames or payloads; the arguments are those of the compiled class of this name."""

    def __init__(
        self,
        types: dict[str, int],
        check_key: Callable[[Any], bytes],
        split_spec: Callable[[Any, Any, bool], tuple[Any, int]],
        to_values: Callable[[Any, Any, int, int | None], Any],
        to_steps: Callable[[Any, Any, int], Any],
        too_large: Callable[[Any, int], Any],
        array: type,
        ints: frozenset[type],
        floats: frozenset[type],
    ) -> None:
        self._check_key = check_key
        self._split_spec = split_spec
        self._to_values = to_values
        self._to_steps = to_steps
        self._too_large = too_large

    def encode(
        self, datum: dict[Any, Any], sequence: dict[Any, Any] | None, limit: int, framed: bool
    ) -> bytes:
        """The payload of one record, or its whole frame."""
        record = _field(1, self._entries(datum, False, limit))
        if sequence is not None:
            record += _field(2, self._entries(sequence, True, limit - len(record)))
        if len(record) > limit:
            self._too_large(None, len(record))
        return frame_record(record) if framed else record

    def _entries(self, datum: dict[Any, Any], steps: bool, limit: int) -> bytes:
        entries, size = [], 0
        for key, spec in datum.items():
            name = self._check_key(key)
            value, kind = self._split_spec(key, spec, steps)
            if not kind and not steps:  # a value without a kind means that the record lacks the feature
                continue
            if steps:
                rows = enumerate(self._to_steps(key, value, kind))
                content = b"".join(_field(1, self._one(key, row, kind, i, limit)) for i, row in rows)
            else:
                content = self._one(key, value, kind, None, limit)
            entries.append(_entry(name, content))
            size += len(entries[-1])
            if size > limit:
                self._too_large(key, size)
        return b"".join(entries)

    def _one(self, key: Any, value: Any, kind: int, step: int | None, limit: int) -> bytes:
        values = self._to_values(key, value, kind, step) if kind else []
        size = sum(map(len, values)) if kind == BYTES else len(values)
        if size > limit:  # before anything of that size is built
            self._too_large(key, size)
        return _feature(values, kind)


class RowEncoder:
    """Rows of columns to frames; the arguments are those of the compiled class of this name."""

    def __init__(
        self, columns: Sequence[Any], num_rows: int, num_context: int, sequence: bool, limit: int
    ) -> None:
        self._columns = columns
        self._context = columns[:num_context]
        self._lists = columns[num_context:] if sequence else None
        self._rows = num_rows
        self._limit = limit

    def measure(self, payloads: npt.NDArray[np.uint64]) -> tuple[int, int, int]:
        """Fill in the size of each payload; returns (3, row, column) for the first one that is too large,
        else (0, 0, 0)."""
        for row in range(self._rows):
            for place, column in enumerate(self._columns):
                if _least_size(column, row) > self._limit:  # before anything of that size is built
                    return 3, row, place
            size = len(self._payload(row))
            if size > self._limit:
                return 3, row, 0
            payloads[row] = size
        return 0, 0, 0

    def frames(self, start: int, stop: int, step: int, size: int) -> bytes:
        """Frames of the rows start, start + step, ... below stop."""
        found = b"".join(frame_record(self._payload(row)) for row in range(start, stop, step))
        if len(found) != size:
            raise RuntimeError("another thread changed the columns while they were written")
        return found

    def _payload(self, row: int) -> bytes:
        record = _field(1, b"".join(self._row_entries(self._context, row)))
        if self._lists is not None:
            record += _field(2, b"".join(self._row_entries(self._lists, row)))
        return record

    def _row_entries(self, columns: Sequence[Any], row: int) -> Iterator[bytes]:
        for column in columns:
            if column.present is not None and not column.present[row]:
                continue
            if column.steps is None:
                content = _feature(_span(column, row), column.kind)
            else:
                spans = range(int(column.steps[row]), int(column.steps[row + 1]))
                content = b"".join(_field(1, _feature(_span(column, i), column.kind)) for i in spans)
            yield _entry(column.key, content)


def _bounds(column: Any, first: int, last: int) -> tuple[int, int]:
    """Positions of the values of the spans first..last."""
    if column.splits is None:
        return first * column.width, last * column.width
    return int(column.splits[first]), int(column.splits[last])


def _least_size(column: Any, row: int) -> int:
    """A lower bound for the size of a row's encoded values."""
    if column.steps is None:
        start, stop = _bounds(column, row, row + 1)
    else:
        start, stop = _bounds(column, int(column.steps[row]), int(column.steps[row + 1]))
    return stop - start if column.kind != BYTES else int(column.lengths[start:stop].sum())


def _span(column: Any, i: int) -> Any:
    """The values of one row or step."""
    start, stop = _bounds(column, i, i + 1)
    if column.kind != BYTES:
        return column.values[start:stop]
    found = []
    for value in range(start, stop):
        buffer = column.buffers[0 if column.ids is None else column.ids[value]]
        offset = int(column.offsets[value])
        found.append(buffer[offset : offset + int(column.lengths[value])])
    return found
