"""All records of a view as batches of columns, in stored order or shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tfrecord._columns.arrays import Int64Array
from tfrecord._reading.ahead import in_turn
from tfrecord._reading.decoder import Batch
from tfrecord._reading.rows import RowBatch, merge_rows
from tfrecord._reading.view import RecordView
from tfrecord.sampling.permutation import Permutation

__all__ = ["decodes_ahead", "mean_size", "shuffled_batches", "stored_batches"]

# How many record lengths are sampled to estimate the size of a batch.
_SAMPLE = 64


def stored_batches(
    view: RecordView, size: int, names: tuple[str, ...] | None, drop_last: bool, num_threads: int
) -> Iterator[Batch]:
    """Batches of ``size`` rows in stored order; good records come before the damage after them raises."""
    view.prepare()
    ready = view.ready_batches(size, names, drop_last)
    if ready is not None:
        yield from ready
        return
    dropped = 0

    def full() -> Iterator[RowBatch]:
        nonlocal dropped
        for rows in merge_rows(view.rows(), size):
            if drop_last and len(rows) < size:
                dropped += len(rows)
            else:
                yield rows

    merged = full()
    if not decodes_ahead(view, num_threads):
        for rows in merged:
            yield from view.decoder.batches(rows, names, drop_last, num_threads)
        if not dropped:
            view.end_pass(names)
        return

    def decode(rows: RowBatch) -> tuple[list[Batch], Exception | None]:
        found: list[Batch] = []
        try:
            found.extend(view.decoder.batches(rows, names, drop_last, 1))
        except Exception as error:  # raised below, after the good records
            return found, error
        return found, None

    calls = ((int(rows.payloads.lengths.sum()), partial(decode, rows)) for rows in merged)
    for found, error in in_turn(calls, num_threads):
        yield from found
        if error is not None:
            raise error
    if not dropped:
        view.end_pass(names)


def shuffled_batches(
    view: RecordView,
    size: int,
    names: tuple[str, ...] | None,
    drop_last: bool,
    num_threads: int,
    order: Permutation,
) -> Iterator[Batch]:
    """Batches of ``size`` rows in the order of a permutation."""
    stop = len(order) - len(order) % size if drop_last else len(order)
    parts = (
        order.positions(np.arange(first, min(first + size, stop), dtype=np.int64))
        for first in range(0, stop, size)
    )
    view.prepare()
    if not stop or not decodes_ahead(view, num_threads):
        for positions in parts:
            yield view.read(positions, names, num_threads)
        if stop == len(order):
            view.end_pass(names)
        return
    work = int(mean_size(view, order.positions(np.arange(min(_SAMPLE, stop), dtype=np.int64))) * size)
    yield from in_turn(((work, partial(view.read, positions, names, 1)) for positions in parts), num_threads)
    if stop == len(order):
        view.end_pass(names)


def mean_size(view: RecordView, positions: Int64Array) -> float:
    """Estimated bytes of a record, from the first of these."""
    return float(view.sizes(positions[:_SAMPLE]).mean())


def decodes_ahead(view: RecordView, num_threads: int) -> bool:
    """Not if damage is skipped, which must happen in order, and not for bytes, which are not decoded."""
    decoder = view.decoder
    return num_threads > 1 and not decoder.policy.skips and decoder.record_type != "bytes"
