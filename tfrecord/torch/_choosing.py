"""What a dataset must know about its records before an epoch: which ones a filter keeps, and their
lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tfrecord._columns.batch import BytesColumn, ColumnBatch, Ragged, SequenceBatch
from tfrecord._reading.rows import RowBatch
from tfrecord.sampling.permutation import Int64Array
from tfrecord.torch._options import as_integer
from tfrecord.torch._ragged import RaggedOptions, tensors_of
from tfrecord.torch._source import DROPPED, Source
from tfrecord.torch._workers.errors import call_with_place

__all__ = ["Keep", "kept_rows", "record_lengths"]

_CHUNK = 4096
_UNKNOWN, _LEFT_OUT, _KEPT = range(3)

Predicate = Callable[[Any], Any]


class Keep:
    """Which records of a source a predicate keeps. Each record is tested once, when it is first needed.

    `batched` predicates get a batch and return a bool per row; others get a record and return one bool.
    """

    def __init__(self, source: Source, predicate: Predicate, batched: bool, ragged: RaggedOptions) -> None:
        self._source, self._predicate, self._batched, self._ragged = source, predicate, batched, ragged
        self._known = np.zeros(len(source), np.uint8)

    def __call__(self, positions: Int64Array) -> npt.NDArray[np.bool_]:
        """A bool for each position: int64 (n,)."""
        unknown = np.unique(positions[self._known[positions] == _UNKNOWN])
        for begin in range(0, len(unknown), _CHUNK):
            chunk = unknown[begin : begin + _CHUNK]
            self._known[chunk] = _LEFT_OUT
            self._known[self._kept_of(chunk)] = _KEPT
        found: npt.NDArray[np.bool_] = self._known[positions] == _KEPT
        return found

    def _kept_of(self, chunk: Int64Array) -> Int64Array:
        kept = self._says(chunk)
        if kept is not None:
            return chunk[kept]
        # Some damaged records were skipped, and we do not know which ones: test the records one by one.
        found = [position for position in chunk.tolist() if _any(self._says(np.array([position])))]
        return np.array(found, np.int64)

    def _says(self, positions: Int64Array) -> npt.NDArray[np.bool_] | None:
        """A bool for each position; None if damaged records were skipped."""
        rows = self._source.fetch(positions)
        if len(rows) < len(positions):
            return None
        return kept_rows(self._source, rows, self._predicate, self._ragged if self._batched else None)

    def __getstate__(self) -> dict[str, Any]:
        # Results are not pickled: a worker tests the records that it needs.
        return {**self.__dict__, "_known": np.zeros_like(self._known)}


def kept_rows(
    source: Source, rows: RowBatch, predicate: Predicate, ragged: RaggedOptions | None
) -> npt.NDArray[np.bool_] | None:
    """Which rows a predicate keeps. It gets batches with ragged columns in this form, or (None) records.

    Returns None if some rows are not valid messages and are skipped.
    """
    if not len(rows):
        return np.zeros(0, np.bool_)
    source.prepare()
    if ragged is None:
        found = []
        for row in range(len(rows)):
            path, record = rows.locate(row)
            item = source.decode_one(rows.payloads.view(row), path, record)
            place = f"{path}: record {record}"
            kept_one = item is not DROPPED and _one_bool(
                call_with_place(predicate, item, "filter", place), place
            )
            found.append(kept_one)
        return np.array(found, np.bool_)
    batch = source.decode_batch(rows.payloads, rows.locate)
    path, record = rows.locate(0)
    count = len(batch) if isinstance(batch, BytesColumn) else batch.num_rows
    if count < len(rows):
        return None
    place = f"{path}: record {record} (the first of a batch of {count})"
    said = call_with_place(predicate, tensors_of(batch, ragged), "filter", place)
    if isinstance(said, torch.Tensor):
        said = said.detach().cpu().numpy()
    kept = np.asarray(said)
    if kept.dtype != np.bool_ or kept.shape != (count,):
        raise TypeError(
            f"{place}: with batches a filter returns a bool for each row, shape ({count},), "
            f"not {kept.dtype} of shape {kept.shape}"
        )
    return kept


def _any(kept: npt.NDArray[np.bool_] | None) -> bool:
    return kept is not None and bool(kept.any())


def _one_bool(said: Any, place: str) -> bool:
    """A predicate's result for one record: a bool, or an array or tensor with one value."""
    size = getattr(said, "numel", None) or getattr(said, "size", 1)
    if (size() if callable(size) else size) != 1:
        raise TypeError(f"{place}: a filter returns one bool, not an array of shape {tuple(said.shape)}")
    return bool(said)


def record_lengths(source: Source, key: str | Callable[[Any], Any]) -> Int64Array:
    """The length of each record, int64 (n,): the number of values of a feature, or what `key` returns.

    The lengths of a feature `x` come from the index if it has the column `len(x)`, otherwise from one pass
    over the data.
    """
    if isinstance(key, str):
        kept = source.index_column(f"len({key})")
        if kept is not None:
            return np.ma.filled(kept, 0).astype(np.int64)
    parts: list[Any] = [np.zeros(0, np.int64)]
    source.prepare()
    decoder = source.view.decoder
    if isinstance(key, str):
        decoder.check_columns((key,))
    is_present = callable(key) or decoder.allow_missing
    for positions in _chunks(len(source)):
        rows = source.fetch(positions)
        if len(rows) < len(positions):
            raise ValueError("bucket_by_length needs every record: on_error='skip' may leave records out")
        if isinstance(key, str):
            measured, some = _feature_lengths(source, rows, key)
            is_present = is_present or some
        else:
            measured = _said(source, rows, key)
        parts.append(measured)
    if isinstance(key, str) and not is_present and len(source):
        raise source.view.in_no_record(key)
    return np.concatenate(parts)


def _chunks(count: int) -> Iterator[Int64Array]:
    return (np.arange(begin, min(begin + _CHUNK, count)) for begin in range(0, count, _CHUNK))


def _feature_lengths(source: Source, rows: RowBatch, key: str) -> tuple[Int64Array, bool]:
    """The lengths, and whether any of the records has the feature."""
    batch: Any = source.view.decoder.batch(rows.payloads, rows.locate, (key,))
    if isinstance(batch, SequenceBatch):
        batch = batch.feature_lists if key in batch.feature_lists else batch.context
    if not isinstance(batch, ColumnBatch):
        raise ValueError("records of bytes have no features to measure: give a function as key")
    column, some = batch[key], bool(batch.present[key].any())
    if isinstance(column, Ragged):
        return column.lengths(), some
    shape: tuple[int, ...] = getattr(column, "shape", (len(column),))
    return np.full(len(rows), shape[1] if len(shape) > 1 else 1, np.int64), some


def _said(source: Source, rows: RowBatch, key: Callable[[Any], Any]) -> Int64Array:
    out = np.empty(len(rows), np.int64)
    for row in range(len(rows)):
        path, record = rows.locate(row)
        item = source.decode_one(rows.payloads.view(row), path, record)
        place = f"{path}: record {record}"
        out[row] = as_integer(call_with_place(key, item, "key", place), f"{place}: the length", 0)
    return out
