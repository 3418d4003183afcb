"""Windows of the steps of RLDS episodes."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from indexer.errors import DecodeError
from indexer.options import check_count
from tfrecord._columns.arrays import Int64Array, as_position, is_integer, splits_of
from tfrecord._columns.batch import BytesColumn, Ragged
from tfrecord._reading.decoder import LOCATED_ERRORS
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.store import RecordStore
from tfrecord._reading.view import RecordView
from tfrecord.reader import TFRecordReader
from tfrecord.tfds.features import FeaturesDict, Image
from tfrecord.tfds.features import Sequence as SequenceFeature
from tfrecord.tfds.folder import TFDSError
from tfrecord.tfds.leaves import Leaf, Values
from tfrecord.tfds.nested import NestedDecoder, single

__all__ = ["STEPS", "StepsReader", "steps_of"]

STEPS = "steps"
PADDING = "is_padding"
_CHUNK = 256
# The weight of one step when windows are grouped.
_STEP_BYTES = 1 << 14


class StepsReader(TFRecordReader):
    """Windows of steps of RLDS episodes, by position; made by `TFDSReader.steps`.

    It works like a `TFDSReader`: a window is a nested dict of the features of a step, each with the window as
    its first axis; a batch has shape `(n, window, ...)`. With ``pad``, ``is_padding`` is a bool array
    `(window,)`, True after the end of the episode, where other values are 0, empty, or False. Windows are
    ordered by episode and start.

    Attributes: ``features`` (of a step), ``window``, ``stride``, ``pad``; ``episodes`` and ``starts``, int64
    (n,), give the position of each window's episode and its first step.
    """

    def __init__(
        self, reader: TFRecordReader, features: FeaturesDict, window: int, stride: int, pad: bool
    ) -> None:
        view = reader._view
        self.__dict__.update(reader.__dict__)
        self.features = features
        self.window, self.stride, self.pad = (
            check_count(window, "window"),
            check_count(stride, "stride"),
            bool(pad),
        )
        assert isinstance(view.decoder, NestedDecoder)
        decoder = WindowDecoder(view.decoder, self.window, self.pad)
        lengths = _step_counts(view, view.decoder, decoder.leaves.values())
        last = lengths if self.pad else lengths - (self.window - 1)
        counts = np.maximum(0, -(-last // self.stride))
        self.episodes = np.repeat(np.arange(len(lengths)), counts)
        first = splits_of(counts)[:-1]
        self.starts = (np.arange(len(self.episodes)) - np.repeat(first, counts)) * self.stride
        selection = view.stored(self.episodes)
        self._view = WindowView(view.store, decoder, selection, self.starts)
        self._views, self._owns_store = weakref.WeakSet(), False  # it closes with the reader
        reader._views.add(self)
        self._call = f"{reader._call}.steps({window}, {stride}, {self.pad})"

    def __getitem__(self, key: Any) -> Any:
        if not is_integer(key):
            return super().__getitem__(key)
        rows = self._view.fetch(np.array([as_position(key, len(self), "windows")]))
        assert isinstance(self._view.decoder, NestedDecoder)
        try:
            return self._view.decoder.dicts(rows.payloads)[0]
        except LOCATED_ERRORS as error:
            raise error.at(*rows.locate(0)) from None

    def read_raw(self, positions: Any) -> BytesColumn:
        """The payloads of the windows' episodes."""
        column: Any = self._view.fetch(self._view.positions(positions)).payloads
        return column.payloads  # type: ignore[no-any-return]

    def select(self, positions: Any) -> StepsReader:
        """A view of some of the windows."""
        chosen = self._view.positions(positions)
        made: Any = super().select(chosen)
        made.episodes, made.starts = self.episodes[chosen], self.starts[chosen]
        return made  # type: ignore[no-any-return]


def _step_counts(view: RecordView, decoder: NestedDecoder, leaves: Collection[Leaf]) -> Int64Array:
    """The number of steps of each episode, from one of its features, without reading the others."""
    fixed = next((leaf.levels[0] for leaf in leaves if leaf.levels[0] is not None), None)
    if fixed is not None:
        return np.full(len(view), fixed, np.int64)
    cheap = min(leaves, key=lambda leaf: (len(leaf.levels), isinstance(leaf.feature, Image), leaf.key))
    store = object.__new__(RecordStore)  # the same files and indexes; checksums are verified by later reads
    store.__dict__.update(view.store.__dict__)
    store.options = replace(view.store.options, verify=False)
    unverified = replace(view, store=store)
    counts = [np.zeros(0, np.int64)]
    for start in range(0, len(view), _CHUNK):
        rows = unverified.fetch(np.arange(start, min(start + _CHUNK, len(view)), dtype=np.int64))
        try:
            ((_, values),) = decoder.stored(rows.payloads, (cheap.key,))
        except LOCATED_ERRORS as error:
            raise error.at(*rows.locate(error.record or 0)) from None
        counts.append(np.diff(values.levels[0]))
    return np.concatenate(counts)


@dataclass(frozen=True, eq=False)
class WindowView(RecordView):
    """Windows as records: `selection` holds the episode of each, `starts` its first step."""

    starts: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def select(self, positions: Int64Array) -> RecordView:
        return replace(super().select(positions), starts=self.starts[positions])  # type: ignore[call-arg]

    def fetch(self, positions: Int64Array) -> RowBatch:
        rows = super().fetch(positions)
        rows.payloads = WindowColumn(rows.payloads, self.starts[positions])  # type: ignore[assignment]
        return rows

    def fetch_in_order(self, positions: Int64Array) -> Iterator[RowBatch]:
        done = 0
        for rows in super().fetch_in_order(positions):
            starts = self.starts[positions[done : done + len(rows)]]
            rows.payloads = WindowColumn(rows.payloads, starts)  # type: ignore[assignment]
            done += len(rows)
            yield rows

    def rows(self) -> Iterator[RowBatch]:
        for start in range(0, len(self), _CHUNK):
            yield from self.fetch_in_order(np.arange(start, min(start + _CHUNK, len(self)), dtype=np.int64))


class Window(NamedTuple):
    """One window: the payload of its episode, and its first step."""

    payload: memoryview
    start: int


class WindowColumn:
    """Windows in place of payloads, with the column methods that the code between view and decoder needs."""

    def __init__(self, payloads: BytesColumn, starts: Int64Array) -> None:
        self.payloads = payloads
        self.starts = starts

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Any) -> WindowColumn:
        return WindowColumn(self.payloads[rows], self.starts[rows])

    def view(self, row: int) -> Window:
        return Window(self.payloads.view(row), int(self.starts[row]))

    @staticmethod
    def concat(columns: Sequence[WindowColumn]) -> WindowColumn:
        starts = np.concatenate([column.starts for column in columns])
        return WindowColumn(BytesColumn.concat([column.payloads for column in columns]), starts)

    def episodes(self) -> tuple[BytesColumn, Int64Array, Int64Array]:
        """The distinct payloads; the payload number of each window; one window of each payload."""
        column = self.payloads
        buffers: Any = np.zeros(len(self), np.int64) if column.buffer_ids is None else column.buffer_ids
        places = np.stack((buffers, column.offsets), axis=1)
        _, first, which = np.unique(places, axis=0, return_index=True, return_inverse=True)
        chosen: Any = column[first]
        return chosen, which.reshape(-1), first


class WindowDecoder(NestedDecoder):
    """Decodes windows to nested dicts of the features of steps."""

    def __init__(self, decoder: NestedDecoder, window: int, pad: bool) -> None:
        steps = [leaf for leaf in decoder.leaves.values() if leaf.path[0] == STEPS and leaf.levels]
        if not steps:
            raise TFDSError(f"none of the features of {STEPS!r} can be divided into windows")
        super().__init__([replace(leaf, path=leaf.path[1:]) for leaf in steps], decoder.policy)
        self.window = window
        self.pad = pad
        if pad and any(leaf.path[0] == PADDING for leaf in self.leaves.values()):
            raise ValueError(f"the steps have a feature {PADDING!r}, which is the key of the padding mask")

    def one(self, payload: Any, missing: str = "empty") -> Any:
        return self.dicts(WindowColumn(single(payload.payload), np.array([payload.start])))[0]

    def weights(self, payloads: Any) -> Int64Array:
        return np.full(len(payloads), self.window * _STEP_BYTES)

    def values(
        self, payloads: Any, columns: tuple[str, ...] | None = None, num_threads: int = 1
    ) -> list[tuple[tuple[str, ...], Values]]:
        episodes, which, first = payloads.episodes()
        try:
            found = self.stored(episodes, columns, num_threads)
        except LOCATED_ERRORS as error:
            raise error.at(None, int(first[error.record or 0])) from None
        real = np.zeros((len(payloads), self.window), np.bool_)
        made = []
        for leaf, values in found:
            splits = values.levels[0]
            if isinstance(splits, int):
                splits = np.arange(0, len(episodes) * splits + 1, splits)
            begin = splits[which] + payloads.starts
            steps = begin[:, None] + np.arange(self.window)
            real = steps < splits[which + 1][:, None]
            wanting = ~real[:, 0] if self.pad else ~real[:, -1]
            if wanting.any():
                row = int(wanting.argmax())
                raise DecodeError(
                    "has fewer steps than other features of the episode", key=leaf.key, record=row
                )
            try:
                taken = leaf.decoded(_taken(values, steps[real]))
            except DecodeError as error:
                row = int(np.nonzero(real)[0][error.record or 0])
                raise error.at(None, row) from error.__cause__
            whole = taken if real.all() else _padded(taken, real)
            made.append((leaf.path, whole._replace(levels=[self.window, *whole.levels])))
        if self.pad:
            made.append(((PADDING,), Values([self.window], ~real.reshape(-1))))
        return made


def _taken(values: Values, rows: Int64Array) -> Values:
    """Some of the steps, as separate rows."""

    def chosen(items: Any) -> tuple[list[Any], Any]:
        column = Values(values.levels[1:], items).column()[rows]
        levels = []
        for _ in values.levels[1:]:
            levels.append(column.row_splits)
            column = column.values
        return levels, column

    levels, items = chosen(values.items)
    shapes = None if values.shapes is None else chosen(values.shapes)[1]
    return values._replace(levels=levels, items=items, shapes=shapes)


def _padded(values: Values, real: Any) -> Values:
    """Rows for all places of the windows: the real steps, and empty rows for padding."""
    flat = real.reshape(-1)

    def spread(splits: Int64Array) -> Int64Array:
        lengths = np.zeros(len(flat), np.int64)
        lengths[flat] = np.diff(splits)
        return splits_of(lengths)

    items = values.items
    if values.levels:
        return values._replace(levels=[spread(values.levels[0]), *values.levels[1:]])
    if isinstance(items, Ragged):
        return values._replace(items=Ragged._trusted(items.values, spread(items.row_splits)))
    places = np.maximum(np.cumsum(flat) - 1, 0)  # of padding: the last real step of its window
    if isinstance(items, list):
        made = [
            items[p] if r else np.zeros_like(items[p])
            for p, r in zip(places.tolist(), flat.tolist(), strict=True)
        ]
        return values._replace(items=made)
    if isinstance(items, BytesColumn):
        items = items[places]
        kept = items.lengths * np.repeat(flat, items.size // len(flat))
        empty = BytesColumn._trusted(items.buffers, items.offsets, kept, items.buffer_ids, items.shape)
        return values._replace(items=empty)
    spread_items = np.zeros((len(flat), *items.shape[1:]), items.dtype)
    spread_items[flat] = items
    return values._replace(items=spread_items)


def steps_of(features: FeaturesDict) -> FeaturesDict:
    """The features of a step. TFDSError if these are not RLDS episodes."""
    steps = features.get(STEPS)
    if not isinstance(steps, SequenceFeature) or not isinstance(steps.feature, FeaturesDict):
        raise TFDSError(f"these are not RLDS episodes: there is no sequence {STEPS!r} of dicts of features")
    return steps.feature
