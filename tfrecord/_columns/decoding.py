"""Decodes payloads by compiled plans, and makes the error for each way in which that fails."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np

from indexer.errors import DecodeError, FeatureKindError, MissingFeatureError, TFRecordError
from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._columns.build import finish_column, finish_value
from tfrecord._columns.images import with_images
from tfrecord._columns.raw import in_step, wrong_count
from tfrecord._kernels.codes import (
    BYTES,
    KIND_CONFLICT,
    KIND_MISMATCH,
    KIND_NAMES,
    KINDS,
    MISSING,
    REASONS,
    TOO_MANY,
    UNKNOWN,
    WRONG_COUNT,
)
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord.features import REQUIRED, Column, FeaturePlan, compile_features, no_feature, other_part

__all__ = [
    "INVALID",
    "as_payloads",
    "bad_rows",
    "decode_batch",
    "decode_record",
    "decode_records",
    "forget_decoders",
]

_ANY = Column("", None)
INVALID = "is not a valid Example or SequenceExample"
_EVERY = compile_features(None)
_ABSENCES = ("is missing", "is empty", "has no kind")
_ONE_MESSAGE = (bytes, bytearray, memoryview, str)
_NATIVE = {"bytes": None, "float": "float32", "int64": "int64"}


def bad_rows(payloads: BytesColumn) -> list[tuple[int, DecodeError]]:
    """Row and error of each payload that is not a valid message. Checks every value."""
    statuses = kernel.check_records(payloads.buffers, payloads.offsets, payloads.lengths, payloads.buffer_ids)
    return [(int(row), _invalid(int(statuses[row]))) for row in np.flatnonzero(statuses)]


def _invalid(status: int, row: int | None = None) -> DecodeError:
    return DecodeError(f"{INVALID}: {REASONS[status]}", record=row)


def decode_batch(
    payloads: BytesColumn,
    plan: FeaturePlan,
    *,
    sequence_plan: FeaturePlan | None = None,
    columns: Iterable[str] | None = None,
    num_threads: int = 1,
    bad: list[DecodeError] | None = None,
) -> ColumnBatch | SequenceBatch:
    """Decode payloads by compiled plans; `columns` narrows them to some names.

    With ``bad``, payloads that are not valid messages or hold a damaged image are left out, and their errors
    (each with its row in ``record``) are added to the list; what comes of an error below is in it or not.

    Raises:
        As `parse_example`; of several bad records, the first is reported, with any number of threads.
    """
    if columns is not None:
        plan, sequence_plan = _narrow(plan, sequence_plan, columns)
    try:
        batch = _decode(payloads, plan, sequence_plan, num_threads, bad)
    except (DecodeError, MissingFeatureError, FeatureKindError) as error:
        raise _first_error(payloads, plan, sequence_plan, error) from None
    if plan.images or sequence_plan is not None and sequence_plan.images:
        return with_images(batch, plan, sequence_plan, bad)  # type: ignore[no-any-return]
    return batch


def decode_record(
    payload: Any, plan: FeaturePlan, sequence_plan: FeaturePlan | None = None
) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
    """Decode one payload to a dict (of a SequenceExample to two); see `parse_single_example`.

    Raises:
        As `parse_example`, with ``record`` 0.
    """
    failure, context, lists = _decoder(plan, sequence_plan).record(payload)
    if failure is not None:
        error = _error(failure)
        raise _damage(_Buffers((payload,)), plan, sequence_plan, error) or _suggest(error, payload)
    if plan.hollow or sequence_plan is not None and sequence_plan.hollow:
        decode_batch(as_payloads((payload,)), plan, sequence_plan=sequence_plan)
    for column in plan.special:
        context[column.key] = finish_value(column, context[column.key])
    if sequence_plan is None:
        return context  # type: ignore[no-any-return]
    for column in sequence_plan.special:
        lists[column.key] = [_finish_step(column, *step) for step in enumerate(lists[column.key])]
    return context, lists


def decode_records(
    payloads: tuple[Any, ...], plan: FeaturePlan, sequence_plan: FeaturePlan | None = None
) -> list[dict[str, Any]]:
    """`decode_record` of the first payloads, which takes less time for many. It ends before the first one
    that `decode_record` must be asked for: an invalid one, or one of a SequenceExample."""
    if plan.hollow or sequence_plan is not None:
        return []
    records: list[dict[str, Any]] = _decoder(plan, None).records(payloads, plan.row_shapes)
    if not plan.unfinished:
        return records
    for row, record in enumerate(records):
        try:
            for column in plan.unfinished:
                record[column.key] = finish_value(column, record[column.key])
        except (DecodeError, MissingFeatureError):
            return records[:row]
    return records


def _finish_step(column: Column, number: int, step: Any) -> Any:
    try:
        return finish_value(column, step)
    except (DecodeError, MissingFeatureError) as error:
        raise type(error)(in_step(error.reason, number), key=column.key, record=0) from None


def as_payloads(serialized: Any) -> Any:
    """A user's batch in the form that `decode_batch` takes. TypeError if it is not a sequence of
    bytes-likes."""
    if isinstance(serialized, BytesColumn):
        return serialized
    if type(serialized) is list:
        return _Buffers(tuple(serialized))
    if isinstance(serialized, _ONE_MESSAGE):
        raise TypeError(
            "a batch must be a sequence of bytes-likes; for one message use a parse_single_... function"
        )
    if isinstance(serialized, np.ndarray) and serialized.dtype != object:
        raise TypeError(
            f"a batch must be a sequence of bytes-likes, not an array of {serialized.dtype} (S arrays "
            "lose zero bytes at the end of a string; dtype=object keeps them)"
        )
    if not isinstance(serialized, Iterable):
        raise TypeError(f"a batch must be a sequence of bytes-likes, not {type(serialized).__name__}")
    return _Buffers(tuple(serialized))


class _Buffers:
    """A BytesColumn of payloads that are whole buffers, which needs no arrays of its own."""

    __slots__ = ("buffer_ids", "buffers", "lengths", "offsets")

    def __init__(self, buffers: tuple[Any, ...]) -> None:
        self.buffers = buffers
        self.offsets = self.lengths = self.buffer_ids = None


def _narrow(
    plan: FeaturePlan, sequence_plan: FeaturePlan | None, columns: Iterable[str]
) -> tuple[FeaturePlan, FeaturePlan | None]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if sequence_plan is None:
        return plan.select(names), None
    known, listed = plan.names, sequence_plan.names
    of_context = [
        name for name in names if known is None and name not in (listed or ()) or name in (known or ())
    ]
    of_lists = [
        name for name in names if listed is None and name not in (known or ()) or name in (listed or ())
    ]
    for name in names:
        if name not in of_context and name not in of_lists:
            raise no_feature(name, (*(known or ()), *(listed or ())))
    return plan.select(of_context), sequence_plan.select(of_lists)


@lru_cache(maxsize=128)
def _decoder(plan: FeaturePlan, sequence_plan: FeaturePlan | None) -> Any:
    columns = None if plan.columns is None else tuple(map(_request, plan.columns))
    if sequence_plan is None:
        return kernel.Decoder(columns, plain=plan.plain)
    lists = None if sequence_plan.columns is None else tuple(map(_request, sequence_plan.columns))
    return kernel.Decoder(columns, lists)


def forget_decoders() -> None:
    """Let go of the decoders that are kept for the next call with equal features."""
    _decoder.cache_clear()


def _request(column: Column) -> tuple[str, int, tuple[int, ...] | None, bytes | None]:
    """What the kernel is asked for: key, kind, shape of a row (None: ragged), a row of defaults in the stored
    dtype.

    A ragged column without a fallback must be there, and may be missing with ``b""``. Defaults of other
    dtypes and of bytes are put in here, from a ragged column.
    """
    kind = KINDS.get(column.kind or "", UNKNOWN)
    if column.shape is None:
        return column.key, kind, None, None if column.absent == REQUIRED else b""
    if column.default is not None and (
        column.raw or column.dtype != _NATIVE[str(column.kind)] or kind == BYTES
    ):
        return column.key, kind, None, b""
    return column.key, kind, () if column.raw else column.shape, column.default


def _error(failure: tuple[int, int, str | None, int, int, int]) -> Any:
    """The exception for a status from the kernel. No other code makes them."""
    status, row, key, first, second, step = failure
    made: Any = DecodeError
    if status == KIND_MISMATCH:
        made, reason = FeatureKindError, f"is of kind {KIND_NAMES[second]}, not {KIND_NAMES[first]}"
        if second == BYTES:
            reason += (
                "; raw=True reads the bytes as an array: FixedLenFeature(shape, dtype, raw=True), or "
                "VarLenFeature(dtype, raw=True) if lengths differ"
            )
    elif status == KIND_CONFLICT:
        made, reason = (
            FeatureKindError,
            f"is of kind {KIND_NAMES[second]}, but of kind {KIND_NAMES[first]} before",
        )
    elif status == MISSING:
        made, reason = MissingFeatureError, f"{_ABSENCES[first]} and has no default"
    elif status == WRONG_COUNT:
        reason = wrong_count(second, first)
    elif status >= TOO_MANY:
        reason = REASONS[status]
    else:
        reason = f"{INVALID}: {REASONS[status]}"
    return made(reason if step < 0 else in_step(reason, step), key=key, record=row)


def _suggest(error: Any, payload: Any) -> Any:
    """The error of a payload; if a feature is missing, with similar names in the record."""
    if not isinstance(error, MissingFeatureError) or "is missing" not in error.reason:
        return error
    try:
        context, lists = decode_record(payload, _EVERY, _EVERY)
    except (DecodeError, FeatureKindError):
        return error
    reason = error.reason + other_part(error.key, context, lists)
    return MissingFeatureError(reason, key=error.key, record=error.record)


def _first_error(
    payloads: Any, plan: FeaturePlan, sequence_plan: FeaturePlan | None, error: Any
) -> TFRecordError:
    """The error of the first bad record, whichever stage found one first.

    Rows do not depend on each other (except for types that differ between them), so the rows before a bad one
    are tried until all are good; decoding the bad row then gives the error.
    """
    while error.record:
        try:
            _decode(_rows(payloads, 0, error.record), plan, sequence_plan, 1)
        except (DecodeError, MissingFeatureError, FeatureKindError) as earlier:
            error = earlier
        else:
            break
    row = error.record
    for start in (row, 0):  # on one thread, types that differ between rows are always reported alike
        try:
            _decode(_rows(payloads, start, row + 1), plan, sequence_plan, 1)
        except (DecodeError, MissingFeatureError, FeatureKindError) as found:
            error = found.at(None, row)
            break
    damage = _damage(_rows(payloads, row, row + 1), plan, sequence_plan, error)
    return _suggest(error, _row(payloads, row)) if damage is None else damage.at(None, row)


def _damage(
    payload: Any, plan: FeaturePlan, sequence_plan: FeaturePlan | None, error: TFRecordError
) -> DecodeError | None:
    """The error of a single payload for which `error` says that it is not what was asked for.

    The kernel decodes one feature after another, and may find one of the wrong type before a damaged one.
    """
    if isinstance(error, DecodeError):
        return None
    try:
        _decode(payload, _any_kind(plan), sequence_plan and _any_kind(sequence_plan), 1)
    except DecodeError as damage:
        return damage
    except FeatureKindError:
        pass
    return None


def _any_kind(plan: FeaturePlan) -> FeaturePlan:
    return compile_features([column.key for column in plan.columns]) if plan.columns else plan


def _row(payloads: Any, row: int) -> Any:
    return payloads.buffers[row] if payloads.offsets is None else payloads.view(row)


def _rows(payloads: Any, start: int, stop: int) -> Any:
    if payloads.offsets is None:
        return _Buffers(payloads.buffers[start:stop])
    ids = None if payloads.buffer_ids is None else payloads.buffer_ids[start:stop]
    return BytesColumn._trusted(
        payloads.buffers, payloads.offsets[start:stop], payloads.lengths[start:stop], ids
    )


def _check_present(
    plan: FeaturePlan,
    sequence_plan: FeaturePlan | None,
    present: Any,
    lists_present: Any,
    payloads: Any,
    left_out: Collection[int],
) -> None:
    """MissingFeatureError for the first record that lacks a required feature or feature list."""
    lists = sequence_plan.needed if sequence_plan is not None else ()
    if not plan.required and not lists:
        return
    count = len(payloads.buffers if payloads.offsets is None else payloads.offsets)
    rows = np.delete(np.arange(count), list(left_out))
    for number, column in plan.required:
        for row in rows[~present[number]].tolist():  # absent, or without a type
            failure = _decoder(FeaturePlan((column,)), None).record(_row(payloads, row))[0]
            if failure is not None and failure[0] == MISSING:
                raise _error(failure).at(None, row)
    for number, column in lists:
        absent = rows[~lists_present[number]]
        if len(absent):
            raise MissingFeatureError(key=column.key, record=int(absent[0]))


def _decode(
    payloads: Any,
    plan: FeaturePlan,
    sequence_plan: FeaturePlan | None,
    num_threads: int,
    bad: list[DecodeError] | None = None,
) -> ColumnBatch | SequenceBatch:
    buffers = payloads.buffers
    left_out: list[tuple[int, int]] | None = None if bad is None else []
    try:
        failure, found, found_lists = _decoder(plan, sequence_plan).decode(
            buffers, payloads.offsets, payloads.lengths, payloads.buffer_ids, num_threads, left_out
        )
    except (TypeError, BufferError):
        bad = kernel.lengths_of(buffers)
        if not isinstance(bad, int):
            raise
        raise TypeError(
            f"item {bad} of the batch must be bytes-like, not {type(buffers[bad]).__name__}"
        ) from None
    if failure is not None:
        raise _error(failure)
    count = len(buffers if payloads.offsets is None else payloads.offsets)
    if plan.plain and sequence_plan is None and not left_out:
        return ColumnBatch._trusted(found[1], found[0], count)
    if bad is not None and left_out:
        count -= len(left_out)
        bad += [_invalid(status, row) for row, status in left_out]
    lists_present = None if found_lists is None else found_lists[0]
    dropped = [row for row, _ in left_out or ()]
    _check_present(plan, sequence_plan, found[0], lists_present, payloads, dropped)
    present, parts = found
    if sequence_plan is None and plan.plain:
        return ColumnBatch._trusted(parts, present, count)
    columns: dict[str, Any] = {}
    for column, (key, kind, splits, values) in zip(plan.columns or repeat(_ANY), parts, strict=False):
        if splits is None and column.stored:
            columns[key] = values
        elif column.exact and column.shape is None and kind > BYTES:
            columns[key] = Ragged._trusted(values, splits)
        else:
            columns[key] = finish_column(column, kind, splits, values, buffers, count, None)
    context = _as_batch(columns, present, count, plan.columns is None)
    if sequence_plan is None:
        return context
    columns = {}
    present, parts = found_lists
    for column, (key, kind, outer, steps, splits, values) in zip(
        sequence_plan.columns or repeat(_ANY), parts, strict=False
    ):
        inner = finish_column(column, kind, splits, values, buffers, len(steps), outer)
        columns[key] = Ragged._trusted(inner, outer)
    return SequenceBatch(context, _as_batch(columns, present, count, sequence_plan.columns is None))


def _as_batch(columns: dict[str, Any], present: Any, count: int, found: bool) -> ColumnBatch:
    """The batch with these columns; those that were `found` and not requested are sorted by name.

    Records hold their features in any order, and all batches of a file should look alike.
    """
    if len(columns) != len(present):
        raise DecodeError("two features became one: the records were changed while they were decoded")
    names = list(columns)
    order = sorted(range(len(names)), key=names.__getitem__) if found else []
    if order != list(range(len(order))):
        columns = {names[i]: columns[names[i]] for i in order}
        present = present[order]
    return ColumnBatch._trusted(columns, present, count)
