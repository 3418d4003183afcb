"""`MultiTFRecordDataset`: several sources mixed by weights."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tfrecord.iterator_utils import check_weights
from tfrecord.loaders import check_pattern
from tfrecord.sampling.mixing import ENDLESS, MixOrder
from tfrecord.sampling.permutation import derive_key
from tfrecord.torch._base import EpochDataset
from tfrecord.torch._mixed import MixedBatches, MixedRecords
from tfrecord.torch._options import EpochOptions, check_split, count_units, make_finish, one_of
from tfrecord.torch._producer import Finish, payload_batches
from tfrecord.torch._queue import with_last
from tfrecord.torch._single import TFRecordDataset
from tfrecord.torch._source import Source, joined
from tfrecord.torch._workers.ranks import Consumer

__all__ = ["MultiTFRecordDataset"]

Tagged = tuple[tuple[int, str], int, Any]


class MultiTFRecordDataset(EpochDataset):
    """Several sources mixed by weights.

    Args:
        data_pattern: a path with `{}` where the name of a split belongs; it may name a file, glob or folder.
        index_pattern: the same for index files; None is the sidecars, where there are such.
        splits: names to weights: finite, not negative, one positive. A split of weight 0 is not opened.
        infinite: True: each draw is by the weights, and a source begins again when it ends. False: every
            record comes exactly once; each draw is by weight x share remaining, so the mix thins out evenly.
        The other arguments: as in `TFRecordDataset`. With `batch_size` a batch is mixed too.

    An epoch's mix is one sequence, worked out alike by all ranks and workers; empty sources are left out,
    and a mix of nothing but such ends. A mid-epoch state goes on with any number of workers, but the same
    number of ranks.
    """

    _joined: Source | None

    def __init__(
        self,
        data_pattern: str,
        index_pattern: str | None,
        splits: Mapping[str, float],
        description: Any = None,
        shuffle_queue_size: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        sequence_description: Any = None,
        compression_type: str | None = None,
        infinite: bool = True,
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
        if not isinstance(splits, Mapping):
            raise TypeError(f"splits is a dict of names to weights, got {type(splits).__name__}")
        pattern = os.fspath(data_pattern)
        weights = check_weights(splits.values(), list(splits))
        wanted = [(name, weight) for name, weight in zip(splits, weights, strict=True) if weight > 0]
        check_pattern(pattern, len(wanted))
        super().__init__(
            EpochOptions(seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch)
        )
        finish = make_finish(transform, drop_none, ragged, split)
        datasets = [
            TFRecordDataset(
                pattern.replace("{}", str(name)),
                None if index_pattern is None else os.fspath(index_pattern).replace("{}", str(name)),
                one_of(features, description),
                shuffle_queue_size,
                None,
                one_of(sequence_features, sequence_description, "sequence_"),
                compression_type,
                shuffle=shuffle,
                seed=derive_key("source", self.seed, str(name)),
                on_error=on_error,
                max_skips=max_skips,
                reshuffle_each_epoch=reshuffle_each_epoch,
                shuffle_queue_bytes=shuffle_queue_bytes,
                ragged=ragged,
                **reader_options,
            )
            for name, _ in wanted
        ]
        self._set(datasets, [weight for _, weight in wanted], infinite, finish)

    @classmethod
    def from_datasets(
        cls,
        datasets: Sequence[Any],
        weights: Sequence[float],
        *,
        infinite: bool = True,
        transform: Callable[[Any], Any] | None = None,
        seed: int | None = 0,
        rank: int | None = None,
        world_size: int | None = None,
        split: str = "exact",
        batch_size: int | None = None,
        drop_last: bool = False,
        ragged: str = "ragged",
        reshuffle_each_epoch: bool = True,
        drop_none: bool = False,
        **source_options: Any,
    ) -> MultiTFRecordDataset:
        """A mix of datasets, readers or paths.

        Args:
            datasets: `TFRecordDataset`s (each with its own features, shuffle and transform; with
                `batch_size` of their own, their batches are mixed), `TFRecordReader`s, or paths, globs and
                folders.
            weights: one a dataset. One of weight 0 is not opened.
            transform: called with each item after its dataset's own.
            batch_size: batches mixed of all; the datasets then have the same features and no transform or
                batch size.
            **source_options: arguments of `TFRecordDataset` for those given as readers or paths.
        """
        if len(datasets) != len(weights):
            raise ValueError(f"there are {len(datasets)} datasets but {len(weights)} weights")
        checked = check_weights(weights, range(len(datasets)))
        self = cls.__new__(cls)
        EpochDataset.__init__(
            self, EpochOptions(seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch)
        )
        if source_options and all(isinstance(given, TFRecordDataset) for given in datasets):
            raise TypeError(
                f"{', '.join(source_options)}: for readers and paths only, datasets have options of their own"
            )
        wanted = [i for i, weight in enumerate(checked) if weight > 0]
        made = [_as_dataset(datasets[i], derive_key("source", self.seed, i), source_options) for i in wanted]
        finish = make_finish(transform, drop_none, ragged, split)
        self._set(made, [checked[i] for i in wanted], infinite, finish)
        return self

    def _set(
        self, datasets: list[TFRecordDataset], weights: list[float], infinite: bool, finish: Finish
    ) -> None:
        self.datasets, self.weights, self.infinite, self.finish = datasets, weights, bool(infinite), finish
        self._finishes = [self._finish_of(dataset) for dataset in datasets]
        if self.batch_size is not None:
            self._decoding()
        drops = any(one.drop_none for one in (finish, *self._finishes))
        check_split(self.split, [dataset.source for dataset in datasets], drops)

    def _finish_of(self, dataset: TFRecordDataset) -> Finish:
        """What is done with a dataset's items: its own, then the mix's. ValueError where both cannot be."""
        own, then = dataset.finish, self.finish
        if dataset.split != "exact":
            raise ValueError("the mix deals to the ranks: leave the datasets' own split at 'exact'")
        if self.batch_size is not None and (dataset.batch_size is not None or own.transform is not None):
            raise ValueError(
                "a mix with batch_size needs datasets without batch_size and transform of their own"
            )
        transform = own.transform or then.transform
        if own.transform is not None and then.transform is not None:
            transform = _Both(own.transform, then.transform, own.drop_none)
        drop_none = then.drop_none or own.drop_none
        return own._replace(transform=transform, mark_padding=then.mark_padding, drop_none=drop_none)

    @property
    def positioned(self) -> bool:
        """False where a source is compressed and has no index."""
        return all(dataset.positioned for dataset in self.datasets)

    def _counts(self) -> list[int]:
        return [dataset.num_units() for dataset in self.datasets]

    def num_units(self) -> int:
        """Items of one epoch, over all ranks; of an infinite mix more than any run takes."""
        total = sum(self._counts())
        if self.infinite and total:
            total = ENDLESS
        return count_units(total, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        if self.infinite:
            raise TypeError("an infinite mix has no length; with infinite=False it has one")
        return super().__len__()

    def produce(self, epoch: int, turn: int = 0) -> Any:
        """A function from places and padding flags to an iterator of their items, for one epoch."""
        counts = self._counts()
        mix = MixOrder(counts, self.weights, infinite=self.infinite, seed=self.seed, epoch=epoch)
        if self.batch_size is None:
            return MixedRecords(self.datasets, mix, counts, epoch, self._finishes)
        return MixedBatches(self.datasets, mix, counts, epoch, self.batch_size, self.finish, self._decoding())

    def _decoding(self) -> Source:
        """What decodes mixed batches."""
        if self._joined is None:
            self._joined = joined([dataset.source for dataset in self.datasets])
        return self._joined

    def _fresh(self) -> None:
        super()._fresh()
        self._joined = None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_joined"]
        return state

    def stream(self, epoch: int, consumer: Consumer, skip: int) -> Iterator[tuple[Any, bool]]:
        """One consumer's items after the first `skip`, and which is the last."""
        for dataset in self.datasets:
            if dataset.batch_size is not None:
                raise ValueError("batches of compressed files without an index do not mix: build an index")
            if not dataset.positioned:
                dataset.say_what_streams_cost(consumer)
        key = derive_key("stream", self.seed, epoch, consumer.number)
        queued = next((d for d in self.datasets if not d.positioned), self.datasets[0])
        payloads = queued.shuffled(self._mixed_payloads(epoch, consumer, random.Random(key)), key)
        if self.batch_size is None:
            for dataset in self.datasets:
                dataset.source.prepare()
            rest = with_last(itertools.islice(payloads, skip, None))
            return ((self._decoded(*payload), last) for payload, last in rest)
        untagged = ((where[1], record, payload) for where, record, payload in payloads)
        return payload_batches(
            self._decoding(),
            itertools.islice(untagged, skip * self.batch_size, None),
            self.batch_size,
            self.drop_last,
            self.finish,
        )

    def _decoded(self, where: tuple[int, str], record: int, payload: Any) -> Any:
        number, path = where
        return self.datasets[number].decode(path, record, payload, self._finishes[number])

    def _mixed_payloads(self, epoch: int, consumer: Consumer, rng: random.Random) -> Iterator[Tagged]:
        """Payloads drawn by the weights from this consumer's shares, while they last (or again and again)."""
        turns = [0] * len(self.datasets)
        running = [dataset.payloads(epoch, consumer) for dataset in self.datasets]
        fresh = set(range(len(running)))  # begun and without a payload yet
        alive = list(range(len(running)))
        while alive:
            number = rng.choices(alive, [self.weights[i] for i in alive])[0]
            found = next(running[number], None)
            if found is not None:
                fresh.discard(number)
                yield (number, found[0]), found[1], found[2]
            elif self.infinite and number not in fresh:
                turns[number] += 1
                running[number] = self.datasets[number].payloads(epoch, consumer, turns[number])
                fresh.add(number)
            else:
                alive.remove(number)

    def describe(self) -> dict[str, Any]:
        """What a state must agree with, JSON-able."""
        return {
            "seed": self.seed,
            "sources": [dataset.describe() for dataset in self.datasets],
            "weights": self.weights,
            "infinite": self.infinite,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "reshuffle_each_epoch": self.reshuffle_each_epoch,
        }

    def _check_world(self, state: dict[str, Any], world_size: int) -> None:
        if state["world_size"] != world_size and state["position"]:
            raise ValueError(
                f"the state of this mix was made with {state['world_size']} ranks, here are {world_size}: "
                "a mix goes on with the ranks it was begun with, among which its weights were kept"
            )


class _Both:
    """Two transforms, one after the other."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any], drop_none: bool) -> None:
        self.first, self.second, self.drop_none = first, second, drop_none

    def __call__(self, item: Any) -> Any:
        item = self.first(item)
        return item if item is None and self.drop_none else self.second(item)


def _as_dataset(given: Any, seed: int, options: dict[str, Any]) -> TFRecordDataset:
    if isinstance(given, TFRecordDataset):
        return given
    if isinstance(given, EpochDataset):
        raise TypeError("a mix is made of TFRecordDatasets, readers or paths, not of mixes")
    return TFRecordDataset(given, **{"seed": seed, **options})
