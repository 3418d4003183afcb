"""Columns of image files to columns of pixels, on the threads of one pool."""

from __future__ import annotations

import os
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from indexer.errors import DecodeError, ImageError
from tfrecord._columns.bytes_column import BytesColumn
from tfrecord._columns.column_batch import ColumnBatch
from tfrecord._columns.pixels import image_pixels, load_decoders
from tfrecord._columns.ragged import Ragged
from tfrecord._columns.raw import bad_row
from tfrecord._columns.sequence_batch import SequenceBatch
from tfrecord._kernels.engine import decode_kernel as kernel
from tfrecord.features import Column, FeaturePlan, ImageOptions

__all__ = ["decode_images", "one_image", "with_images"]

# The pool starts threads as they are needed. More than this never decode at once.
_MOST_THREADS = 64


def with_images(
    batch: Any, plan: FeaturePlan, sequence_plan: FeaturePlan | None, bad: list[DecodeError] | None
) -> Any:
    """A batch with its image files decoded.

    With ``bad``, records with damaged images are left out. Their errors, whose rows count the payloads, are
    added to the list, which has those of the payloads that were left out before.

    Raises:
        ImageError: an image is damaged. DecodeError: it does not have the size that was asked for. The first
            such record is reported.
    """
    errors: list[DecodeError] = []
    if isinstance(batch, SequenceBatch):
        assert sequence_plan is not None
        context = _decoded(batch.context, plan.images, errors)
        made: Any = SequenceBatch(context, _decoded(batch.feature_lists, sequence_plan.images, errors))
    else:
        made = _decoded(batch, plan.images, errors)
    if not errors:
        return made
    errors.sort(key=lambda error: error.record or 0)
    wrong = [error for error in errors if bad is None or not isinstance(error, ImageError)]
    left_out = [error.record or 0 for error in bad or ()]
    rows = np.delete(np.arange(len(batch) + len(left_out)), left_out)
    if wrong:
        raise wrong[0].at(None, int(rows[wrong[0].record or 0]))
    assert bad is not None
    found = {error.record or 0: error for error in reversed(errors)}  # one per record, the first
    bad += [error.at(None, int(rows[row])) for row, error in sorted(found.items())]
    bad.sort(key=lambda error: error.record or 0)
    return made[np.delete(np.arange(len(made)), list(found))]


def _decoded(batch: ColumnBatch, columns: tuple[Column, ...], errors: list[DecodeError]) -> ColumnBatch:
    """The batch with these columns decoded; where an image cannot be, its error is added to ``errors``."""
    made = dict(batch.items())
    for column in columns:
        assert column.image is not None
        held = made[column.key]
        steps = held.row_splits if isinstance(held, Ragged) else None
        if steps is not None and None in (column.image.height, column.image.width):
            raise ValueError(
                f"the feature list {column.key!r} holds images, which need a full shape: "
                "give ImageFeature a height and a width"
            )
        pixels, failures = decode_images(held if steps is None else held.values, column.image)
        for row, error in failures:
            placed = bad_row(column, error.reason, row, steps)
            errors.append(type(error)(placed.reason, key=placed.key, record=placed.record))
        made[column.key] = pixels if steps is None else Ragged._trusted(pixels, steps)
    return ColumnBatch._trusted(made, batch._flags, batch.num_rows)


def one_image(column: Column, data: Any) -> Any:
    """The image of a single record."""
    assert column.image is not None
    try:
        return image_pixels(bytes(data), column.image)
    except DecodeError as error:
        raise type(error)(error.reason, key=column.key, record=0) from None


def decode_images(column: BytesColumn, options: ImageOptions) -> tuple[Any, list[tuple[int, DecodeError]]]:
    """The pixels of n image files, and (row, error) of those that cannot be decoded: their rows are garbage.

    The pixels are one array if the options give the size, else an object array of n arrays.
    """
    load_decoders()
    count = len(column)
    pixels: Any = np.empty(count, object)
    if options.height is not None and options.width is not None:
        pixels = kernel.empty((count, options.height, options.width, options.channels))
    failures: list[tuple[int, DecodeError]] = []
    rows = deque(range(count))

    def work() -> None:
        while rows:
            try:
                row = rows.popleft()
            except IndexError:  # another thread was faster
                return
            out = None if pixels.dtype == object else pixels[row]
            try:  # of a copy, because a mapped file may change while it is decoded
                found = image_pixels(column.view(row).tobytes(), options, out)
            except DecodeError as error:
                failures.append((row, error))
                continue
            if out is None:
                pixels[row] = found
            elif not np.may_share_memory(found, out):
                out[...] = found

    helpers = [_pool().submit(work) for _ in range(min(_threads(options), count) - 1)]
    try:
        work()
    finally:
        rows.clear()  # in case of an error: the helpers stop
        for helper in helpers:
            helper.result()
    return pixels, sorted(failures, key=lambda failure: failure[0])


def _threads(options: ImageOptions) -> int:
    if options.num_threads is not None:
        return min(options.num_threads, _MOST_THREADS)
    processes = sys.modules.get("multiprocessing")
    if processes is not None and processes.parent_process() is not None:
        return 1  # its siblings use the other CPUs
    return min(_cpus(), _MOST_THREADS)


@cache
def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of this process, started when they are first needed and kept."""
    return ThreadPoolExecutor(_MOST_THREADS, "tfrecord-images")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # no thread survives a fork
