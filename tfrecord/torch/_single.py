"""`TFRecordDataset`: the records of one file or many as an iterable dataset."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from indexer.errors import CorruptRecordError, TFRecordError
from indexer.options import warn_caller
from tfrecord.reader import TFRecordReader
from tfrecord.sampling.orders import StoredOrder, shuffled_order
from tfrecord.sampling.permutation import derive_key
from tfrecord.sampling.share import Share
from tfrecord.torch._base import EpochDataset
from tfrecord.torch._options import (
    EpochOptions,
    as_integer,
    check_shuffle,
    check_split,
    count_units,
    make_finish,
    one_of,
    open_source,
)
from tfrecord.torch._producer import Finish, payload_batches, produce_batches, produce_records
from tfrecord.torch._queue import shuffle_payloads, with_last
from tfrecord.torch._source import DROPPED, Source
from tfrecord.torch._workers.ranks import Consumer

__all__ = ["TFRecordDataset"]

_DEFAULT_QUEUE, _DEFAULT_QUEUE_BYTES = 16_384, 256 << 20
_CHUNK = 256


class TFRecordDataset(EpochDataset):
    """Records of TFRecord files, each exactly once an epoch over all ranks and workers.

    Args:
        data_path: a path, a list, a glob or a folder, or a `TFRecordReader`.
        index_path: None is the sidecar beside each file, where there is one (else frames are hopped); or a
            path, a list of one a file, a folder, or False.
        description: the features to read: names, or names to types (`"byte"`, `"int"`, `"float"`) or specs. A
            named feature that a record lacks is a KeyError, unless the description holds a `VarLenFeature`.
        shuffle_queue_size: shuffle through a queue of so many records. Beside `shuffle` it only counts for
            compressed files without an index, whose shuffle is a queue; elsewhere a warning says so.
        transform: called with each record (or batch) after the shuffle, in the worker; what it returns is
            given out.
        sequence_description: the feature lists of SequenceExamples; items are then pairs (context, lists).
        compression_type: None looks at the content.
        features, sequence_features: other names for `description` and `sequence_description`.
        shuffle: False; True is a permutation of all records; "block" one that keeps to neighbourhoods
            (blocks of 1,024, mixed in groups of 8), for disks that dislike random reads.
        seed: the order of an epoch is a function of (seed, epoch) alone. None draws one (one rank only).
        rank, world_size: this process's; default torch.distributed's, else the launcher's environment.
        split: what happens where ranks get unequal numbers of items: "exact" leaves it so, "drop" leaves out
            the last ones, "pad" repeats some, marked by `is_padding` (a key of every record, a bool per row
            of batches).
        batch_size: give out batches of so many records as dicts of tensors (use
            `DataLoader(batch_size=None)`).
        drop_last: leave out a last batch that is not full.
        ragged: how a batch holds ragged columns: "ragged" (`values` and `row_splits`), "pad" (with `x_mask`)
            or "nested".
        on_error, max_skips: "raise", "skip", or a callable that gets the error, for damaged records; each
            process counts for itself how many it skips.
        reshuffle_each_epoch: False gives every epoch the order of epoch 0.
        shuffle_queue_bytes: bound of a queue's payloads, for compressed files without an index. (Elsewhere a
            queue holds positions only.)
        drop_none: leave out what the transform returns None for.
        **reader_options: `record_type`, `verify`, `mmap`, `max_spool_bytes` of `TFRecordReader`.

    Each pass is the next epoch, also through a DataLoader. It pickles, and opens files only where they are
    read. Raises ValueError or TypeError for options that are not as said, FileNotFoundError where nothing is
    there.
    """

    def __init__(
        self,
        data_path: Any,
        index_path: Any = None,
        description: Any = None,
        shuffle_queue_size: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        sequence_description: Any = None,
        compression_type: str | None = None,
        *,
        features: Any = None,
        sequence_features: Any = None,
        shuffle: bool | str = False,
        seed: int | None = 0,
        rank: int | None = None,
        world_size: int | None = None,
        split: str = "exact",
        batch_size: int | None = None,
        drop_last: bool = False,
        ragged: str = "ragged",
        on_error: Any = "raise",
        max_skips: int | None = None,
        reshuffle_each_epoch: bool = True,
        shuffle_queue_bytes: int | None = None,
        drop_none: bool = False,
        **reader_options: Any,
    ) -> None:
        super().__init__(
            EpochOptions(seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch)
        )
        self.shuffle, self.shuffle_queue_size = check_shuffle(shuffle, shuffle_queue_size)
        self.shuffle_queue_bytes = (
            None if shuffle_queue_bytes is None else as_integer(shuffle_queue_bytes, "shuffle_queue_bytes", 1)
        )
        self.finish = make_finish(transform, drop_none, ragged, split)
        features = one_of(features, description)
        sequence_features = one_of(sequence_features, sequence_description, "sequence_")
        self._reader, self.source = open_source(
            data_path,
            index_path,
            features,
            sequence_features,
            compression_type,
            on_error=on_error,
            max_skips=max_skips,
            **reader_options,
        )
        check_split(split, [self.source], drop_none)
        if self.shuffle and self.shuffle_queue_size is not None and self.source.positioned:
            warn_caller(
                f"shuffle={self.shuffle!r} needs no queue here, so shuffle_queue_size is not used: "
                "give one of the two"
            )

    @property
    def reader(self) -> TFRecordReader:
        """The files, for random access."""
        return self._reader

    @property
    def positioned(self) -> bool:
        """False for compressed files without an index."""
        return self.source.positioned

    def num_units(self) -> int:
        """Items of one epoch, over all ranks: records, or batches with `batch_size`."""
        return count_units(len(self.source), self.batch_size, self.drop_last)

    def num_records(self) -> int:
        """Records of one epoch, over all ranks."""
        return len(self.source)

    def order(self, epoch: int, turn: int = 0) -> Any:
        """Which record each place of an epoch holds; a mix goes through it several times, in turns."""
        seed = self.seed if not turn or not self.reshuffle_each_epoch else derive_key("turn", self.seed, turn)
        return shuffled_order(
            len(self.source), self.shuffle, self.shuffle_queue_size, seed=seed, epoch=self.state_epoch(epoch)
        )

    def produce(self, epoch: int, turn: int = 0, finish: Finish | None = None) -> Any:
        """A function from places and padding flags to an iterator of their items, for one epoch."""
        return self._producer(self.source, self.order(epoch, turn), finish or self.finish)

    def _producer(self, source: Source, order: Any, finish: Finish) -> Any:
        if self.batch_size is None:
            return partial(produce_records, source, order, finish=finish)
        return partial(produce_batches, source, order, self.batch_size, finish=finish)

    def open_epoch(self, epoch: int) -> tuple[int, Any, TFRecordError | None]:
        """(items over all ranks, what `produce` gives, what is to be raised after the last of them)."""
        try:
            return super().open_epoch(epoch)
        except CorruptRecordError as error:
            if self.shuffle or self.shuffle_queue_size is not None or self.split != "exact":
                raise
            # In stored order the good records come first, then the damage that hides the others.
            source, count = self.source.before_damage()
            units = count_units(count, self.batch_size, self.drop_last)
            return units, self._producer(source, StoredOrder(count), self.finish), error

    def payloads(self, epoch: int, consumer: Consumer, turn: int = 0) -> Iterator[tuple[str, int, Any]]:
        """One consumer's payloads, for a stream: (path, record, payload)."""
        if self.positioned:
            return self._placed_payloads(epoch, consumer, turn)
        files = (derive_key("files", self.seed, turn), self.state_epoch(epoch)) if self.shuffle else None
        return self.source.stream(consumer.number, consumer.count, files)

    def _placed_payloads(self, epoch: int, consumer: Consumer, turn: int) -> Iterator[tuple[str, int, Any]]:
        order = self.order(epoch, turn)
        place = (consumer.rank, consumer.world_size, consumer.worker, consumer.num_workers)
        share = Share(len(order), *place)
        for begin in range(0, len(share), _CHUNK):
            for rows in self.source.fetch_good(order.positions(share.places(begin, begin + _CHUNK))):
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
        return item if item is DROPPED else (finish or self.finish).record(item, False, path, record)

    def shuffled(self, payloads: Iterator[Any], key: int) -> Iterator[Any]:
        """Payloads through the queue, where one was asked for."""
        if not self.shuffle and self.shuffle_queue_size is None and self.shuffle_queue_bytes is None:
            return payloads
        size, most = self.shuffle_queue_size, self.shuffle_queue_bytes
        if size is None:
            size, most = _DEFAULT_QUEUE, most or _DEFAULT_QUEUE_BYTES
        return shuffle_payloads(payloads, size, most, random.Random(key))

    def say_what_streams_cost(self, consumer: Consumer) -> None:
        """Warn, once, of a queue in place of a permutation and of files that several workers decompress."""
        if consumer.number:
            return
        if self.shuffle and self.shuffle_queue_size is None:
            self._say_once(
                0,
                f"{self.source.paths[0]}: compressed files without an index are shuffled by a queue of "
                f"{_DEFAULT_QUEUE:,} records, not as a whole; build an index (python -m indexer build PATH)",
            )
        if not self.source.deals_files(consumer.count):
            self._say_once(
                1,
                f"{self.source.paths[0]}: {consumer.count} workers share {len(self.source.paths)} compressed "
                "file(s) without an index, so each decompresses all; build an index, or write more files",
            )

    def describe(self) -> dict[str, Any]:
        """What a state must agree with, JSON-able."""
        return {
            "seed": self.seed,
            "num_records": len(self.source) if self.positioned else None,
            "data": self.source.fingerprint(),
            "shuffle": self.shuffle,
            "shuffle_queue_size": self.shuffle_queue_size,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "reshuffle_each_epoch": self.reshuffle_each_epoch,
        } | ({} if self.positioned else {"shuffle_queue_bytes": self.shuffle_queue_bytes})
