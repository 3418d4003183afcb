"""Records for the datasets: payloads by position or in stored order, decoded one by one or as batches."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from indexer.errors import TFRecordError
from indexer.stores import Url
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.decoder import LOCATED_ERRORS, LocatedError, decoded_ahead, is_damage
from tfrecord._reading.index_columns import MergedIndex
from tfrecord._reading.rows import RowBatch
from tfrecord._reading.store import RecordStore
from tfrecord._reading.view import RecordView
from tfrecord.features import FeaturePlan
from tfrecord.sampling.permutation import Int64Array, Permutation
from tfrecord.sampling.plans import Plan
from tfrecord.torch._readahead import Later, Readahead

__all__ = ["DROPPED", "Source", "SourceAhead", "joined"]


# Ranges that lie near each other become one request; in more data than this, those of a batch seldom do.
_MUCH = 64 << 20
# A request costs about as much as reading eight records of this size.
_SMALL_RECORD = 16 << 10


class _Dropped:
    """Stands for a record that is not yielded: skipped as damaged, or dropped by the transform."""


DROPPED = _Dropped()


class Source:
    """Records as the datasets use them. Opens nothing until records are requested."""

    def __init__(self, view: RecordView) -> None:
        self.view = view
        self._positioned: bool | None = None
        self._fingerprint: int | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return self.view.store.paths

    @property
    def positioned(self) -> bool:
        """Whether positions can be reached directly: each file is plain, or has an index."""
        if self._positioned is None:
            store = self.view.store
            self._positioned = self.view.selection is not None or all(
                store.all_given or store.given[number] is not None or not store.compression(number)
                for number in range(len(store.paths))
            )
        return self._positioned

    @property
    def scatters_requests(self) -> bool:
        """Whether records in random order would each be a request to a store, though they are small."""
        store = self.view.store
        if self.view.selection is not None:
            return False
        urls = [
            number
            for number, path in enumerate(store.paths)
            if isinstance(path, Url) and path.options.cache is None
        ]
        uncached = [index for number in urls if (index := store.given[number]) is not None]
        size, count = sum(index.file_size for index in uncached), sum(map(len, uncached))
        return size > _MUCH and size < _SMALL_RECORD * count

    @property
    def skips(self) -> bool:
        """Whether damaged records are skipped."""
        return self.view.store.policy.skips

    @property
    def plan(self) -> FeaturePlan:
        """The requested features (for SequenceExamples, those of the context)."""
        return self.view.decoder.plan

    def __len__(self) -> int:
        return len(self.view)

    def select(self, positions: Int64Array) -> Source:
        """A source of some of these records, in this order."""
        return Source(self.view.select(positions))

    def index_column(self, name: str) -> npt.NDArray[Any] | None:
        """A value for each record from the indexes; None if one of them lacks the column."""
        columns = MergedIndex(self.view.store).columns
        if name not in columns:
            return None
        return columns[name] if self.view.selection is None else columns[name][self.view.selection]

    def fetch(self, positions: Int64Array) -> RowBatch:
        """The payloads at these positions; damaged records are left out if damage is skipped."""
        return self.view.fetch(positions)

    def fetch_in_order(self, positions: Int64Array) -> Iterator[RowBatch]:
        """Like `fetch`, but yields the records before a damaged one, then raises."""
        return self.view.fetch_in_order(positions)

    def readahead(self, count: int | None = None) -> SourceAhead:
        """For one pass: tells the system, and asks stores for, what it reads next; of stores, this many
        records ahead."""
        return SourceAhead(self.view, count)

    def before_damage(self) -> tuple[Source, int]:
        """The readable part of files without an index, in which a damaged frame hides what follows.

        Returns a source and how many of its first records may be read; other damage still raises.
        """
        found: list[TFRecordError] = []
        policy = DamagePolicy(found.append)
        old = self.view.store
        store = RecordStore(old.paths, old.given, old.options, policy)
        count = 0
        for number in range(len(old.paths)):
            count += len(store.index(number))
            if found:
                break
        len(store)
        policy.on_error = _raise
        decoder = copy.copy(self.view.decoder)
        decoder.policy = policy
        twin = Source(RecordView(store, decoder, self.view.selection))
        twin._positioned = True
        return twin, count

    def stream(
        self, consumer: int, consumers: int, shuffle_files: tuple[int, int] | None
    ) -> Iterator[tuple[str, int, memoryview]]:
        """(path, record, payload) of one of several consumers, in stored order; each record goes to one
        consumer.

        If there are enough files, each consumer gets whole files. Otherwise it gets a part of each file that
        has an index, and every `consumers`-th record of the others. `shuffle_files` holds the seed and epoch
        that decide the order of the files.
        """
        paths, store = self.paths, self.view.store
        order = range(len(paths))
        if shuffle_files is not None:
            order = Permutation(len(paths), seed=shuffle_files[0], epoch=shuffle_files[1])  # type: ignore[assignment]
        by_file = self.deals_files(consumers)
        for place, number in enumerate(order):
            share = (consumer - place) % consumers
            if by_file and share:
                continue
            index = None if by_file else store.given[number]
            if index is None:
                runs = store.stream(number, share, 1 if by_file else consumers)
            else:
                start, stop = (len(index) * part // consumers for part in (share, share + 1))
                runs = store.stream(number, start, stop=stop)
            for run in runs:
                for row, payload in enumerate(run.payloads()):
                    yield paths[number], run.first + row * run.step, payload

    def deals_files(self, consumers: int) -> bool:
        """Whether consumers get whole files, so that none is decompressed twice."""
        return len(self.paths) >= consumers

    def unindexed(self) -> list[str]:
        """The compressed files that have no index."""
        store = self.view.store
        return [
            path
            for number, path in enumerate(self.paths)
            if store.given[number] is None and store.compression(number)
        ]

    def prepare(self) -> None:
        """Determine the record type."""
        self.view.prepare()

    def decode_one(self, payload: memoryview, path: str, record: int) -> Any:
        """A record as a dict (a pair of dicts, bytes); DROPPED if it is not a valid message and such
        records are skipped."""
        decoder = self.view.decoder
        if decoder.record_type != "bytes":
            decoder.look(path, [payload])
        try:
            return decoder.one(payload)
        except LOCATED_ERRORS as error:
            placed = decoder.located(error, path, record)
            if not self.skips or not is_damage(payload, error):
                raise placed from None
            self.view.store.policy.handle(placed)
            return DROPPED

    def decode_rows(self, rows: RowBatch) -> Iterator[Any]:
        """`decode_one` of each row in turn, some ahead; only for sources that do not skip damage."""
        decoder = self.view.decoder
        views = list(chain.from_iterable(rows.groups()))
        if decoder.record_type == "bytes":
            yield from (view.tobytes() for view in views)
            return

        def failed(row: int, payload: memoryview, error: LocatedError) -> None:
            raise decoder.located(error, *rows.locate(row)) from None

        if views:
            decoder.look(rows.locate(0)[0], views)
        decoded = decoded_ahead(views, 0, rows.check, decoder.one, decoder.many, failed)
        yield from chain.from_iterable(decoded)

    def decode_batch(
        self,
        payloads: BytesColumn,
        locate: Callable[[int], tuple[str, int]],
        num_threads: int | None = None,
    ) -> Any:
        """The columns of a batch; `locate` gives the path and number of the record in a row."""
        return self.view.decoder.batch(payloads, locate, num_threads=num_threads)

    def fingerprint(self) -> int:
        """A number that identifies these records, from their count, their lengths and samples of their
        contents.

        It does not depend on where the files lie or on how the records are spread over them.
        """
        if self._fingerprint is None:
            self._fingerprint = self._compute_fingerprint()
        return self._fingerprint

    def _compute_fingerprint(self) -> int:
        if not self.positioned:
            seen = [
                (os.path.basename(path), os.path.getsize(path) if os.path.exists(path) else None)
                for path in self.paths
            ]
            return crc32(repr(seen).encode())
        count = len(self)
        if not count:
            return 0
        found = crc32(
            self.view.sizes(np.unique(np.linspace(0, count - 1, 64).astype(np.int64))).tobytes(), count
        )
        for position in sorted({0, count // 2, count - 1}):
            try:
                found = crc32(self.view.fetch_one(position)[0], found)
            except TFRecordError:
                found = crc32(b"damaged", found)
        return found


class SourceAhead:
    """A `Readahead` for positions of a view."""

    def __init__(self, view: RecordView, count: int | None) -> None:
        self._view = view
        self._ahead = Readahead(view.store, count)
        self.reach = self._ahead.reach
        self._known: dict[bytes, tuple[Int64Array, Int64Array]] = {}

    def look_up(self, plan: Plan, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`plan.records` of items that will be read later, which is kept until then."""
        found = self._known[items.tobytes()] = plan.records(items)
        return found

    def records(self, plan: Plan, items: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`plan.records` of the items that are read now."""
        return self._known.pop(items.tobytes(), None) or plan.records(items)

    def window(self, positions: Int64Array, later: Later | None = None) -> None:
        """See `Readahead.window`."""
        stored = self._view.stored
        self._ahead.window(stored(positions), None if later is None else lambda n: stored(later(n)))


def joined(sources: Sequence[Source]) -> Source:
    """A source that decodes the records of all of these the same way; its own positions have no meaning.

    The record type and the dense columns, where not given, are decided from all sources together.
    Raises ValueError if the sources would be decoded differently.
    """
    first = sources[0].view.decoder
    types = {source.view.decoder.record_type for source in sources} - {None}
    for source in sources:
        decoder = source.view.decoder
        plans, wanted = (decoder.plan, decoder.sequence_plan), (first.plan, first.sequence_plan)
        if len(types) > 1 or plans != wanted:
            raise ValueError(
                "batches of all sources need the same features and record_type in each, but those of "
                f"{sources[0].paths[0]} and {source.paths[0]} differ"
            )
    stores = [source.view.store for source in sources]
    paths = [store.place(path) for store in stores for path in store.paths]
    given = [index for store in stores for index in store.given]
    store = RecordStore(paths, given, stores[0].options, stores[0].policy)
    decoder = copy.copy(first)
    decoder.record_type, decoder.dense = next(iter(types), None), None
    return Source(RecordView(store, decoder))


def _raise(error: TFRecordError) -> None:
    raise error
