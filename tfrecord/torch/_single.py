"""`TFRecordDataset`: the records of one file or many as an iterable dataset."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from indexer.compression import Compression
from indexer.errors import CorruptRecordError, TFRecordError
from indexer.options import suggests_options, warn_caller
from tfrecord._reading.call_text import call_text, function_text
from tfrecord._reading.damage import OnError
from tfrecord._reading.rows import RowBatch
from tfrecord.reader import TFRecordReader
from tfrecord.sampling.orders import Order, StoredOrder, shuffled_order
from tfrecord.sampling.permutation import derive_key
from tfrecord.sampling.plans import all_records
from tfrecord.sampling.share import Share
from tfrecord.torch._base import EpochDataset
from tfrecord.torch._choosing import Keep, kept_rows, record_lengths
from tfrecord.torch._operations import Bucket, Filter, Repeat
from tfrecord.torch._options import (
    DatasetOptions,
    ReaderOptions,
    as_integer,
    asked_features,
    check_shuffle,
    check_split,
    check_transform,
    known_options,
    open_source,
)
from tfrecord.torch._producer import Finish, payload_batches, produce_items
from tfrecord.torch._queue import chunks_before_errors, shuffle_payloads, with_last
from tfrecord.torch._ragged import RaggedOptions
from tfrecord.torch._source import DROPPED, Source
from tfrecord.torch._workers.ranks import Consumer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["TFRecordDataset"]

_DEFAULT_QUEUE, _DEFAULT_QUEUE_BYTES = 16_384, 256 << 20
_CHUNK = 256
_MOST_COUNTED = 1 << 24
Payload = tuple[str, int, Any]  # path, record, payload


class TFRecordDataset(EpochDataset):
    """Records of TFRecord files, each exactly once per epoch over all ranks and workers.

    Args:
        data_path: a path, a list, a glob or a folder, or a `TFRecordReader`.
        index_path: None uses the index beside each file, if there is one (otherwise headers are scanned); or
            a path, a list with one path per file, a folder, or False.
        description: the features to read: names, or names to types (`"byte"`, `"int"`, `"float"`) or specs. A
            record that lacks a named feature raises MissingFeatureError (a KeyError); each spec has its own
            rule for missing features.
        shuffle_queue_size: shuffle through a queue of this many records. If `shuffle` is given too, the size
            is used only for compressed files without an index, whose shuffle is a queue; otherwise you get a
            warning.
        transform: called with each record (or batch) after the shuffle, in the worker; its result is
            yielded.
        sequence_description: the feature lists of SequenceExamples; items are then pairs (context, lists).
        compression_type: None detects it from the content.
        features, sequence_features: the same, but with the rules of `TFRecordReader`: if a record lacks a
            feature requested by name or short name, its value is empty.
        shuffle: False; True for a permutation of all records; "block" for one that keeps neighbours together
            (blocks of 1,024, mixed in groups of 8), for disks that are slow at random reads.
        seed: the order of an epoch depends on (seed, epoch) alone. None draws a random seed (one rank only).
        rank, world_size: of this process. Default: from torch.distributed, or else from the environment
            variables that the launcher sets.
        split: what to do if ranks would get unequal numbers of items: "exact" accepts this (with a warning if
            items are batches), "drop" drops the last items, "pad" repeats some, marked by `is_padding` (a key
            of every record, a bool per row of batches). Use "drop" or "pad" with DDP.
        batch_size: yield batches of this many records as dicts of tensors (use
            `DataLoader(batch_size=None)`).
        drop_last: drop the last batch if it is not full.
        ragged: how a batch holds ragged columns: "ragged" (`values` and `row_splits`), "nested", or "pad": a
            tensor `x` as wide as its longest row, and a bool tensor `x_mask`, True where there is a value.
        pad_value, max_length, pad_to_multiple_of: for ragged="pad": the value that pads short rows (default
            0), the width (longer rows are truncated), and a number to whose multiple the width is rounded up.
            The first two may be dicts by feature.
        prefetch: prepare this many items ahead in a background thread, so that reading and decoding overlap
            the training step. For datasets with `batch_size` that are read without workers; in a worker it
            does nothing. The iterator's `close` ends the thread, and so does dropping the iterator.
        readahead: how many batches (without `batch_size`, records) to fetch ahead if the data is behind URLs.
            None keeps 32 requests under way.
        on_error, max_skips: "raise", "skip", or a callable that gets the error, for damaged records.
            `max_skips` applies to each process separately; `num_skipped` counts over all workers.
        reshuffle_each_epoch: False gives every epoch the order of epoch 0.
        shuffle_queue_bytes: limit on the bytes in the queue, for compressed files without an index. (For
            other files the queue holds only positions.)
        drop_none: drop items for which the transform returns None.
        **reader_options: `record_type`, `allow_missing`, `verify`, `mmap`, `access`,
            `max_spool_bytes`, `max_record_bytes`, `num_threads` of `TFRecordReader`.

    Each pass is the next epoch, also through a DataLoader. A dataset pickles as its options, and reopens the
    files where it is read. Raises ValueError or TypeError for invalid options, and FileNotFoundError if no
    file is found.
    """

    def __init__(
        self,
        data_path: Any,
        index_path: Any = None,
        description: Any = None,
        shuffle_queue_size: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        sequence_description: Any = None,
        compression_type: Compression | None = None,
        *,
        features: Any = None,
        sequence_features: Any = None,
        shuffle: bool | Literal["block"] = False,
        seed: int | None = 0,
        rank: int | None = None,
        world_size: int | None = None,
        split: Literal["exact", "drop", "pad"] = "exact",
        batch_size: int | None = None,
        drop_last: bool = False,
        ragged: Literal["ragged", "pad", "nested"] = "ragged",
        pad_value: Any = None,
        max_length: int | Mapping[str, int] | None = None,
        pad_to_multiple_of: int | None = None,
        prefetch: int = 0,
        readahead: int | None = None,
        on_error: OnError = "raise",
        max_skips: int | None = None,
        reshuffle_each_epoch: bool = True,
        shuffle_queue_bytes: int | None = None,
        drop_none: bool = False,
        **reader_options: Unpack[ReaderOptions],
    ) -> None:
        call = call_text(type(self).__name__, TFRecordDataset.__init__, locals())
        super().__init__(
            DatasetOptions(
                seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch, prefetch
            )
        )
        self._call = call
        self._shuffle, self.shuffle_queue_size = check_shuffle(shuffle, shuffle_queue_size)
        self.shuffle_queue_bytes = (
            None if shuffle_queue_bytes is None else as_integer(shuffle_queue_bytes, "shuffle_queue_bytes", 1)
        )
        self.readahead = None if readahead is None else as_integer(readahead, "readahead", 0)
        check_transform(transform)
        padding = RaggedOptions(ragged, pad_value, max_length, pad_to_multiple_of)
        self.finish = Finish(transform, bool(drop_none), padding, split == "pad")
        self._tested_all = False  # a filter has decoded every record
        self._predicates: tuple[tuple[Callable[[Any], Any], bool], ...] = ()
        asked = asked_features(features, description, sequence_features, sequence_description)
        self._reader, self.source = open_source(
            data_path,
            index_path,
            asked,
            compression_type,
            on_error=on_error,
            max_skips=max_skips,
            **known_options(TFRecordDataset.__init__, reader_options),
        )
        check_split(split, [self.source], drop_none)
        if self._shuffle and self.shuffle_queue_size is not None and self.source.positioned:
            warn_caller(
                f"shuffle={self._shuffle!r} needs no queue here, so shuffle_queue_size is not used: "
                "give one of the two"
            )
        if self._shuffle is True and self.source.scatters_requests:
            warn_caller(
                "shuffle=True over URLs asks for each record by itself, and these records are small: "
                "shuffle='block' needs far fewer requests, and cache='auto' keeps the files on this machine"
            )

    @property
    def reader(self) -> TFRecordReader:
        """The files, for random access."""
        return self._reader

    @property
    def positioned(self) -> bool:
        """False for compressed files without an index."""
        return self.source.positioned

    def sources(self) -> list[Source]:
        """Where the records come from."""
        return [self.source]

    def num_records(self) -> int:
        """Records of one epoch, over all ranks."""
        return len(self.source)

    def order(self, epoch: int, source_pass: int = 0) -> Order:
        """The records of an epoch before any operation; a mix reads them in several passes."""
        seed = self.seed
        if source_pass and self.reshuffle_each_epoch:
            seed = derive_key("turn", self.seed, source_pass)
        return shuffled_order(
            len(self.source), self._shuffle, self.shuffle_queue_size, seed=seed, epoch=self.state_epoch(epoch)
        )

    def produce(
        self, epoch: int, source_pass: int = 0, finish: Finish | None = None
    ) -> Callable[..., Iterator[Any]]:
        """For one epoch: a function that takes items and padding flags and returns an iterator of outputs."""
        plan = self.plan(epoch, source_pass)
        ahead = self.source.readahead(self._records_ahead())
        return partial(produce_items, self.source, ahead, plan, self.gives_batches, finish or self.finish)

    def _records_ahead(self) -> int | None:
        return None if self.readahead is None else self.readahead * (self.batch_size or 1)

    def open_epoch(self, epoch: int) -> tuple[int, Callable[..., Iterator[Any]], TFRecordError | None]:
        """(number of items over all ranks, result of `produce`, error to raise after the last item)."""
        try:
            return super().open_epoch(epoch)
        except CorruptRecordError as error:
            ordered = self._shuffle or self.shuffle_queue_size is not None or self.operations
            if ordered or self.split != "exact":
                raise
            # In stored order the good records come first, then the damage that hides the others.
            source, count = self.source.before_damage()
            plan = self.batched(StoredOrder(count))
            ahead = source.readahead(self._records_ahead())
            produce = partial(produce_items, source, ahead, plan, self.gives_batches, self.finish)
            return len(plan), produce, error

    def reads_all(self, epoch: int) -> bool:
        """Whether an epoch reads every record of the files; False if finding out would cost much."""
        dropped_from = self.batch_size if self.drop_last else None
        if not self.positioned:
            return dropped_from in (None, 1)
        if not (self._tested_all or self.source.view.is_whole):
            return False
        if not self.operations:
            return not (dropped_from and len(self.source) % dropped_from)
        plan = self.plan(epoch)
        if max(len(plan), len(self.source)) > _MOST_COUNTED:
            return False
        return len(np.unique(all_records(plan))) == len(self.source)

    # ---- operations ----------------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[Any], Any]) -> TFRecordDataset:
        """A dataset of the records for which `predicate` is true; batches are refilled with the next records.

        Without `batch_size` the predicate gets each record and returns one bool. With `batch_size` it gets
        batches, like a transform, and returns a bool per row, shape (n,); `lambda x: x["label"] == 3` works
        for both. It sees decoded values, before the transform, and must give the same answer each time.

        `filter` tests every record once, when you call it. (After `take` or `skip`, which choose other
        records in each epoch, it tests when an epoch begins.) So `len` is exact, and order, shares and states
        are those of a dataset that holds only the kept records. If an index has the column that you filter
        by, a dataset of `reader.select(reader.where(label=3))` reads no data. Compressed files without an
        index are filtered while they are read.
        """
        if not callable(predicate):
            raise TypeError(f"filter takes a function, got {type(predicate).__name__}")
        if any(isinstance(one, Bucket) for one in self.operations):
            raise ValueError("call filter before bucket_by_length, which makes the batches")
        return self.filtered_as(predicate, self.gives_batches)

    def filtered_as(self, predicate: Callable[[Any], Any], batched: bool) -> TFRecordDataset:
        """`filter` with a predicate that gets batches or records."""
        made = self._copy(f".filter({function_text(predicate)})")
        if not self.positioned:
            made._predicates = (*self._predicates, (predicate, batched))
            return made
        made.count_skips()
        keep = Keep(self.source, predicate, batched, self.finish.ragged)
        # Filter and repeat give the same result in either order.
        last = len(self.operations)
        while last and isinstance(self.operations[last - 1], Repeat):
            last -= 1
        if last:
            made.operations = (*self.operations[:last], Filter(keep), *self.operations[last:])
            return made
        chosen = np.arange(len(self.source), dtype=np.int64)
        chosen = chosen[keep(chosen)]
        made._tested_all = self._tested_all or self.source.view.is_whole
        made.source = self.source.select(chosen)
        made._reader = self._reader.select(chosen)
        return made

    @suggests_options
    def bucket_by_length(
        self,
        key: str | Callable[[Any], Any],
        boundaries: Sequence[int],
        batch_sizes: Sequence[int],
        *,
        drop_last: bool = False,
    ) -> TFRecordDataset:
        """A dataset of batches of records of similar length, to keep padding small.

        Args:
            key: a feature, whose number of values is the length (for a feature list, its number of steps), or
                a function that returns the length of a record.
            boundaries: ascending; a record of length l is in bucket i if ``boundaries[i - 1] <= l <
                boundaries[i]``.
            batch_sizes: records per batch in each bucket, one more than boundaries.
            drop_last: drop batches that are not full; each bucket may have one.

        The lengths of a feature `x` come from the index if it stores them
        (``tfrecord.build_index(path, columns=["len(x)"])``), otherwise from one pass over the data when you
        call this. Records keep the order of the dataset, and a batch comes when its last record does. So the
        batches are the same for any number of ranks and workers, and a state says how many were taken.
        """
        if self.gives_batches:
            raise ValueError("bucket_by_length makes the batches: do not give batch_size")
        if not isinstance(boundaries, Iterable) or not isinstance(batch_sizes, Iterable):
            raise TypeError("boundaries and batch_sizes are lists, batch_sizes with one more integer")
        bounds = [as_integer(bound, "a boundary", 0) for bound in boundaries]
        sizes = [as_integer(size, "a batch size", 1) for size in batch_sizes]
        if bounds != sorted(set(bounds)):
            raise ValueError(f"boundaries must ascend, got {bounds}")
        if len(sizes) != len(bounds) + 1:
            raise ValueError(
                f"{len(bounds)} boundaries make {len(bounds) + 1} buckets, got {len(sizes)} batch sizes"
            )
        shown = repr(key) if isinstance(key, str) else function_text(key)
        lengths = record_lengths(self.source, key) if self.positioned else np.zeros(0, np.int64)
        bucket = Bucket(lengths, bounds, sizes, bool(drop_last))
        last = ", drop_last=True" if drop_last else ""
        return self._with(bucket, f".bucket_by_length({shown}, {bounds}, {sizes}{last})")

    # ---- streams -------------------------------------------------------------------------------------------

    def payloads(
        self, epoch: int, consumer: Consumer, source_pass: int = 0
    ) -> Iterator[tuple[str, int, Any]]:
        """One consumer's payloads, for a stream: (path, record, payload)."""
        if self.positioned:
            return self._placed_payloads(epoch, consumer, source_pass)
        files = (
            (derive_key("files", self.seed, source_pass), self.state_epoch(epoch)) if self._shuffle else None
        )
        payloads = self.source.stream(consumer.number, consumer.count, files)
        for predicate, batched in self._predicates:
            payloads = self._kept(payloads, predicate, batched)
        return payloads

    def _kept(
        self, payloads: Iterator[Payload], predicate: Callable[[Any], Any], batched: bool
    ) -> Iterator[Payload]:
        """The payloads that a predicate keeps, of those that arrive one by one."""
        ragged = self.finish.ragged if batched else None
        for chunk in chunks_before_errors(payloads, _CHUNK):
            kept = kept_rows(self.source, RowBatch.of_payloads(chunk), predicate, ragged)
            if kept is not None:
                yield from itertools.compress(chunk, kept.tolist())
                continue
            for payload in chunk:  # some are not valid messages, and we do not know which
                kept = kept_rows(self.source, RowBatch.of_payloads([payload]), predicate, ragged)
                if kept is not None and kept.any():
                    yield payload

    def _placed_payloads(
        self, epoch: int, consumer: Consumer, source_pass: int
    ) -> Iterator[tuple[str, int, Any]]:
        order = self.order(epoch, source_pass)
        place = (consumer.rank, consumer.world_size, consumer.worker, consumer.num_workers)
        share = Share(len(order), *place)
        for begin in range(0, len(share), _CHUNK):
            for rows in self.source.fetch_in_order(order.positions(share.places(begin, begin + _CHUNK))):
                for row in range(len(rows.payloads)):
                    yield (*rows.locate(row), rows.payloads.view(row))

    def stream(self, epoch: int, consumer: Consumer, skip: int) -> Iterator[tuple[Any, bool]]:
        """One consumer's items after the first `skip`, and which is the last."""
        self.say_what_streams_cost(consumer)
        key = derive_key("stream", self.seed, self.state_epoch(epoch), consumer.number)
        payloads = self.shuffled(self.payloads(epoch, consumer), key)
        if self.batch_size is None:
            self.source.prepare()
            rest = with_last(itertools.islice(payloads, skip, None))
            return ((self.decode(*payload), last) for payload, last in rest)
        wanted = itertools.islice(payloads, skip * self.batch_size, None)
        return payload_batches(self.source, wanted, self.batch_size, self.drop_last, self.finish)

    def decode(self, path: str, record: int, payload: Any, finish: Finish | None = None) -> Any:
        """A payload as an item."""
        item = self.source.decode_one(payload, path, record)
        if item is DROPPED:
            return item
        return (finish or self.finish).record(item, False, lambda row: (path, record))

    def shuffled(self, payloads: Iterator[Any], key: int) -> Iterator[Any]:
        """Payloads through the shuffle queue, if one was requested."""
        if not self._shuffle and self.shuffle_queue_size is None and self.shuffle_queue_bytes is None:
            return payloads
        size, most = self.shuffle_queue_size, self.shuffle_queue_bytes
        if size is None:
            size, most = _DEFAULT_QUEUE, most or _DEFAULT_QUEUE_BYTES
        return shuffle_payloads(payloads, size, most, random.Random(key))

    def say_what_streams_cost(self, consumer: Consumer) -> None:
        """Warn once about a queue instead of a permutation, and about files that several workers
        decompress."""
        if consumer.number:
            return
        if self._shuffle and self.shuffle_queue_size is None:
            self._say_once(
                0,
                f"{self.source.paths[0]}: compressed files without an index are shuffled through a queue of "
                f"{_DEFAULT_QUEUE:,} records, not fully; build an index (tfrecord index PATH)",
            )
        if not self.source.deals_files(consumer.count):
            shared = self.source.unindexed()
            self._say_once(
                1,
                f"{shared[0]}: {consumer.count} workers share {len(shared)} compressed file(s) without an "
                "index, so each worker decompresses all of them; build an index, or write more files",
            )

    def describe(self) -> dict[str, Any]:
        """The JSON-able description that a state must match."""
        return {
            "seed": self.seed,
            "num_records": len(self.source) if self.positioned else None,
            "data": self.source.fingerprint(),
            "shuffle": self._shuffle,
            "shuffle_queue_size": self.shuffle_queue_size,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "reshuffle_each_epoch": self.reshuffle_each_epoch,
            **({} if self.positioned else {"shuffle_queue_bytes": self.shuffle_queue_bytes}),
        } | self._described_operations()
