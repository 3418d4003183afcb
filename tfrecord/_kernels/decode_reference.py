"""Messages to columns in plain Python: used without compiled kernels, and as the oracle of the kernel's
tests.

`Decoder` and the functions have the same contracts as the compiled `decode` (see `decode.pyi`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import Any

import numpy as np

from tfrecord._kernels.classify_reference import classify
from tfrecord._kernels.codes import (
    BYTES,
    FLOAT,
    INT64,
    KIND_CONFLICT,
    KIND_MISMATCH,
    MISSING,
    UNKNOWN,
    WRONG_COUNT,
    RecordClass,
)
from tfrecord._kernels.wire_reference import WireError, fields, parse_message

__all__ = ["Decoder", "check_records", "empty", "gather", "lengths_of", "record_class", "survey"]

_DTYPES: dict[int, Any] = {FLOAT: np.dtype("<f4"), INT64: np.dtype(np.int64)}


class Mismatch(Exception):
    """A feature does not match the request: status, key, two numbers with details, the step of a list."""

    step = -1


def _content(payload: Any) -> bytes:
    """The bytes of a bytes-like object, and of nothing else (`bytes` also accepts numbers)."""
    with memoryview(payload) as view:
        if not view.c_contiguous:
            raise BufferError("the payload is not contiguous")
        return bytes(view)


def record_class(payload: Any) -> int:
    """A `RecordClass`; see `decode.pyi`."""
    data = _content(payload)
    try:
        parse_message(data, None, None)
        return int(classify(data))
    except WireError:
        return int(RecordClass.INVALID)


def survey(buffer: Any, offsets: Any, lengths: Any) -> tuple[int, int, bool, dict[str, Any], dict[str, Any]]:
    """Which features records have; see `decode.pyi`."""
    data = memoryview(buffer).cast("B")
    features: dict[str, list[tuple[int, int]]] = {}
    lists: dict[str, list[list[tuple[int, int]]]] = {}
    seen_lists, count, status = False, 0, 0
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        payload = bytes(data[offset : offset + length])
        try:
            context, listed = parse_message(payload, None, None)
        except WireError as error:
            status = error.args[0]
            break
        count += 1
        seen_lists |= any(n == 2 and wire == 2 for n, wire, _, _ in fields(payload, 0, len(payload), 0))
        for key, (kind, values) in context.items():
            features.setdefault(key, []).append((kind, 0 if values is None else len(values)))
        for key, steps in listed.items():
            lists.setdefault(key, []).append([(k, 0 if v is None else len(v)) for k, v in steps])
    none = 2**63 - 1
    result = {}
    for key, found in features.items():
        sizes = [size for kind, size in found if kind]
        bits = sum({1 << kind for kind, _ in found if kind})
        result[key] = (bits, len(sizes), min(sizes, default=none), max(sizes, default=-1), none, -1)
    result_lists = {}
    for key, rows in lists.items():
        sizes = [size for steps in rows for _, size in steps]
        bits = sum({1 << kind for steps in rows for kind, _ in steps if kind})
        counts = [len(steps) for steps in rows]
        result_lists[key] = (
            bits,
            len(rows),
            min(counts),
            max(counts),
            min(sizes, default=none),
            max(sizes, default=-1),
        )
    return status, count, seen_lists, result, result_lists


def check_records(buffers: tuple[Any, ...], offsets: Any, lengths: Any, buffer_ids: Any = None) -> Any:
    """A status (uint8) for each record; see `decode.pyi`."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    statuses = np.zeros(len(offsets), np.uint8)
    for row, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        data = views[0 if buffer_ids is None else int(buffer_ids[row])]
        if offset < 0 or length < 0 or offset + length > len(data):
            raise ValueError(f"payload {row} lies outside its buffer")
        try:
            parse_message(bytes(data[offset : offset + length]), None, None)
        except WireError as error:
            statuses[row] = error.args[0]
    return statuses


def same_items(request: dict[Any, Any], items: tuple[Any, ...]) -> bool:
    """Whether a dict holds these objects; see `decode.pyi`."""
    found = tuple(chain.from_iterable(request.items()))
    return len(found) == len(items) and all(map(is_, found, items))


def lengths_of(buffers: tuple[Any, ...]) -> Any:
    """Sizes in bytes (int64), or the position of the first one that is not bytes-like."""
    lengths = np.empty(len(buffers), np.int64)
    for index, buffer in enumerate(buffers):
        try:
            with memoryview(buffer) as view:
                if not view.c_contiguous:
                    return index
                lengths[index] = view.nbytes
        except TypeError:
            return index
    return lengths


def empty(shape: tuple[int, ...]) -> Any:
    return np.empty(shape, np.uint8)


def gather(buffers: tuple[Any, ...], offsets: Any, lengths: Any, buffer_ids: Any, out: Any) -> None:
    """Copy byte strings one after another to `out`."""
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    ids = [0] * len(offsets) if buffer_ids is None else buffer_ids.tolist()
    places = zip(ids, offsets.tolist(), lengths.tolist(), strict=True)
    joined = b"".join(views[i][start : start + length] for i, start, length in places)
    to = memoryview(out).cast("B")
    if len(joined) != len(to) or len(joined) != int(lengths.sum()):
        raise ValueError("the byte strings do not fill the output exactly")
    to[:] = joined


class _Rows:
    """Collects one column over records (or over steps)."""

    def __init__(self, key: str, kind: int, shape: Any, default: Any, rows: int) -> None:
        self.key, self.wanted, self.shape, self.default = key, kind, shape, default
        self.count = -1 if shape is None else math.prod(shape)
        self.kind = kind
        self.present = [False] * rows
        self.rows: list[Any] = [None] * rows
        self.sources = [0] * rows
        self.without_kind: set[int] = set()

    def add(self, row: int, kind: int, values: Any, source: int) -> None:
        if kind == UNKNOWN:
            self.without_kind.add(row)
            return
        if self.kind not in (UNKNOWN, kind):
            raise Mismatch(KIND_MISMATCH if self.wanted else KIND_CONFLICT, self.key, self.kind, kind)
        self.kind = kind
        self.present[row] = True
        self.rows[row] = values
        self.sources[row] = source

    def check(self, row: int) -> None:
        """Check that a dense row has the values that it needs."""
        length = 0 if self.rows[row] is None else len(self.rows[row])
        if self.count < 0 or length == self.count and (length or self.default is None) and self.present[row]:
            return
        if length:
            raise Mismatch(WRONG_COUNT, self.key, self.count, length)
        if self.default is None:
            raise Mismatch(MISSING, self.key, 2 if row in self.without_kind else int(self.present[row]), 0)

    def finish(self) -> tuple[str, int, Any, Any]:
        """Key, kind, splits and values; `present` says which rows are present."""
        dtype = _DTYPES.get(self.kind)
        dense = self.count >= 0
        lengths = [0 if row is None else len(row) for row in self.rows]
        splits = None if dense else np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        if self.kind == UNKNOWN:
            return self.key, UNKNOWN, splits, None
        if self.kind == BYTES:
            places = [
                (*item, source)
                for row, source in zip(self.rows, self.sources, strict=True)
                for item in row or ()
            ]
            table = np.array(places, np.int64).reshape(-1, 3)
            offsets, lengths, ids = table.T.copy()
            return self.key, BYTES, splits, (offsets, lengths, ids.astype(np.int32))
        if dense:
            default = np.frombuffer(self.default, dtype) if self.default is not None else None
            rows = [row if row is not None and len(row) else default for row in self.rows]
            values = np.empty((len(rows), *self.shape), dtype)
            for index, row in enumerate(rows):
                if row is not None:
                    values[index] = row.reshape(self.shape)
            return self.key, self.kind, None, values
        full = [row for row in self.rows if row is not None and len(row)]
        return self.key, self.kind, splits, np.concatenate(full) if full else np.empty(0, dtype)


Request = tuple[str, int, Any, Any]


class Decoder:
    """See `decode.pyi`."""

    def __init__(
        self, columns: tuple[Request, ...] | None, lists: Any = False, simd: int = -1, plain: bool = False
    ) -> None:
        self._columns = columns
        self._plain = plain
        self._lists = lists
        self._wanted = None if columns is None else {column[0].encode() for column in columns}
        self._wanted_lists: Any = (
            lists if lists is None or lists is False else {column[0].encode() for column in lists}
        )

    def decode(
        self,
        buffers: tuple[Any, ...],
        offsets: Any,
        lengths: Any,
        buffer_ids: Any,
        num_threads: int = 1,
        bad: list[tuple[int, int]] | None = None,
    ) -> tuple[Any, Any, Any]:
        if offsets is None:
            offsets, lengths = np.zeros(len(buffers), np.int64), [memoryview(b).nbytes for b in buffers]
            buffer_ids = range(len(buffers))
        if bad is not None:
            return self._decode_good(buffers, offsets, lengths, buffer_ids, bad)
        count = len(offsets)
        columns = {c[0]: _Rows(*c, count) for c in self._columns or ()}
        lists: dict[str, tuple[Request, list[Any]]] = {c[0]: (c, [None] * count) for c in self._lists or ()}
        list_kinds: dict[str, int] = {c[0]: c[1] for c in self._lists or ()}
        bases = []
        for row in range(count):
            source = 0 if buffer_ids is None else int(buffer_ids[row])
            base = int(offsets[row])
            bases.append(base)
            data = bytes(memoryview(buffers[source]).cast("B")[base : base + int(lengths[row])])
            try:
                context, found_lists = parse_message(data, self._wanted, self._wanted_lists)
                for key, (kind, values) in context.items():
                    if key not in columns:
                        columns[key] = _Rows(key, UNKNOWN, None, None, count)
                    columns[key].add(row, kind, _based(kind, values, base), source)
                for column in columns.values():
                    column.check(row)
                for key, steps in found_lists.items():
                    request, rows = lists.setdefault(key, ((key, UNKNOWN, None, None), [None] * count))
                    rows[row] = (source, [(kind, _based(kind, values, base)) for kind, values in steps])
                    _check_steps(request, steps, list_kinds)
            except WireError as error:
                return (error.args[0], row, None, 0, 0, -1), None, None
            except Mismatch as error:
                return (error.args[0], row, *error.args[1:], error.step), None, None
        finished: Any = [column.finish() for column in columns.values()]
        if self._plain:
            finished = {key: values for key, _, _, values in finished}
        found = _flags([column.present for column in columns.values()], count), finished
        if self._lists is False:
            return None, found, None
        listed = [[row is not None for row in rows] for _, rows in lists.values()]
        finished = [_finish_list(request, rows, list_kinds) for request, rows in lists.values()]
        return None, found, (_flags(listed, count), finished)

    def _decode_good(
        self,
        buffers: tuple[Any, ...],
        offsets: Any,
        lengths: Any,
        buffer_ids: Any,
        bad: list[tuple[int, int]],
    ) -> tuple[Any, Any, Any]:
        """`decode` of the payloads that are valid."""
        rows = []
        for row in range(len(offsets)):
            source = memoryview(buffers[0 if buffer_ids is None else int(buffer_ids[row])]).cast("B")
            payload = bytes(source[int(offsets[row]) : int(offsets[row]) + int(lengths[row])])
            try:
                parse_message(payload, self._wanted, self._wanted_lists)
                rows.append(row)
            except WireError as error:
                bad.append((row, error.args[0]))
        starts, sizes = (np.array(array, np.int64)[rows] for array in (offsets, lengths))
        ids = None if buffer_ids is None else np.array(buffer_ids, np.int32)[rows]
        failure, *found = self.decode(buffers, starts, sizes, ids)
        if failure is not None:
            failure = (failure[0], rows[failure[1]], *failure[2:])
        return failure, found[0], found[1]

    def record(self, payload: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        data = _content(payload)
        try:
            context, lists = parse_message(data, self._wanted, self._wanted_lists)
            result = {}
            found = [(key, UNKNOWN, None, b"") for key in context]
            for key, wanted, shape, default in found if self._columns is None else self._columns:
                kind, values = context.get(key, (UNKNOWN, None))
                if default is None and key not in context:
                    raise Mismatch(MISSING, key, 0, 0)
                if default is None and not kind and shape is not None:
                    raise Mismatch(MISSING, key, 2, 0)
                result[key] = _single(data, key, wanted, kind, values)
            result_lists: dict[str, Any] = {}
            requests = [(key, UNKNOWN, None, b"") for key in lists] if self._lists is None else self._lists
            for key, wanted, shape, default in requests or ():
                if default is None and key not in lists:
                    raise Mismatch(MISSING, key, 0, 0)
                steps = lists.get(key, [])
                kinds = {key: wanted}
                if default is None and shape is not None:
                    _check_kinds(key, steps)
                _check_steps((key, wanted, None, None), steps, kinds)
                result_lists[key] = [_single(data, key, kinds[key], kind, values) for kind, values in steps]
        except WireError as error:
            return (error.args[0], 0, None, 0, 0, -1), {}, {}
        except Mismatch as error:
            return (error.args[0], 0, *error.args[1:], error.step), {}, {}
        return None, result, result_lists

    def records(self, payloads: tuple[Any, ...], shapes: Any = None) -> list[dict[str, Any]]:
        return []


def _flags(columns: list[list[bool]], count: int) -> Any:
    return np.array(columns, bool).reshape(len(columns), count)


def _based(kind: int, values: Any, base: int) -> Any:
    return [(start + base, length) for start, length in values] if kind == BYTES else values


def _check_steps(request: Request, steps: Sequence[tuple[int, Any]], kinds: dict[str, int]) -> None:
    key, wanted, count, default = request
    for step, (kind, values) in enumerate(steps):
        try:
            known = kinds.get(key, UNKNOWN)
            if kind != UNKNOWN:
                if known not in (UNKNOWN, kind):
                    raise Mismatch(KIND_MISMATCH if wanted else KIND_CONFLICT, key, known, kind)
                kinds[key] = kind
            probe = _Rows(key, wanted, count, default, 1)
            probe.add(0, kind, values, 0)
            probe.check(0)
        except Mismatch as error:
            error.step = step
            raise


def _check_kinds(key: str, steps: Sequence[tuple[int, Any]]) -> None:
    for step, (kind, _) in enumerate(steps):
        if not kind:
            error = Mismatch(MISSING, key, 2, 0)
            error.step = step
            raise error


def _finish_list(request: Request, rows: list[Any], kinds: dict[str, int]) -> tuple[Any, ...]:
    key = request[0]
    steps = [(source, *step) for row in rows if row is not None for source in [row[0]] for step in row[1]]
    column = _Rows(key, kinds.get(key, UNKNOWN), request[2], request[3], len(steps))
    for index, (source, kind, values) in enumerate(steps):
        column.add(index, kind, values, source)
    _, kind, splits, values = column.finish()
    counts = [0 if row is None else len(row[1]) for row in rows]
    outer = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    return key, kind, outer, np.array(column.present, bool), splits, values


def _single(data: bytes, key: str, wanted: int, kind: int, values: Any) -> Any:
    if kind and wanted not in (UNKNOWN, kind):
        raise Mismatch(KIND_MISMATCH, key, wanted, kind)
    kind = kind or wanted
    if kind == UNKNOWN:
        return None
    if kind == BYTES:
        items = [data[start : start + length] for start, length in values or ()]
        if len(items) == 1:
            return items[0]
        array = np.empty(len(items), object)
        array[:] = items
        return array
    return np.empty(0, _DTYPES[kind]) if values is None else values.copy()
