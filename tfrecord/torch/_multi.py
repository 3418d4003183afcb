"""`MultiTFRecordDataset`: several sources mixed by weights."""

from __future__ import annotations

import inspect
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from indexer.compression import Compression
from indexer.options import check_options
from tfrecord._reading.call_text import call_text, function_text
from tfrecord._reading.damage import OnError
from tfrecord.iterator_utils import check_weights
from tfrecord.loaders import check_pattern
from tfrecord.sampling.mixing import ENDLESS, MixOrder
from tfrecord.sampling.orders import Order
from tfrecord.sampling.permutation import derive_key
from tfrecord.sampling.plans import Plan
from tfrecord.torch._base import EpochDataset
from tfrecord.torch._mixed import DrawOrder, MixedBatches, MixedItems, MixedPass, MixedRecords, mixed_payloads
from tfrecord.torch._operations import Filter, Repeat
from tfrecord.torch._options import (
    DatasetOptions,
    ReaderOptions,
    check_split,
    check_transform,
    known_options,
)
from tfrecord.torch._producer import BothTransforms, Finish, payload_batches
from tfrecord.torch._queue import with_last
from tfrecord.torch._ragged import RaggedOptions
from tfrecord.torch._single import TFRecordDataset
from tfrecord.torch._source import Source, joined
from tfrecord.torch._workers.ranks import Consumer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["MultiTFRecordDataset"]


class MultiTFRecordDataset(EpochDataset):
    """Several sources mixed by weights.

    Args:
        data_pattern: a path with `{}` where the name of a split belongs; it may name a file, glob or folder.
        index_pattern: the same for index files; None uses the index beside each file, if there is one.
        splits: names to weights: finite, not negative, at least one positive. A split with weight 0 is not
            opened.
        infinite: True: each draw follows the weights, and a source that ends starts again. False: every
            record comes exactly once; each draw follows weight x remaining share, so all sources run out
            together.

    The other arguments are those of `TFRecordDataset`. With `batch_size`, each batch mixes records too.

    An epoch's mix is one sequence, which all ranks and workers compute alike. Empty sources are left out; a
    mix of only empty sources ends at once. A mid-epoch state resumes with any number of workers, but the
    same number of ranks.
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
        compression_type: Compression | None = None,
        infinite: bool = True,
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
        on_error: OnError = "raise",
        max_skips: int | None = None,
        reshuffle_each_epoch: bool = True,
        shuffle_queue_bytes: int | None = None,
        drop_none: bool = False,
        **reader_options: Unpack[ReaderOptions],
    ) -> None:
        call = call_text(type(self).__name__, MultiTFRecordDataset.__init__, locals())
        known_options(MultiTFRecordDataset.__init__, reader_options)
        if not isinstance(splits, Mapping):
            raise TypeError(f"splits must be a dict of names to weights, got {type(splits).__name__}")
        pattern = os.fspath(data_pattern)
        weights = check_weights(splits.values(), list(splits))
        wanted = [(name, weight) for name, weight in zip(splits, weights, strict=True) if weight > 0]
        check_pattern(pattern, len(wanted))
        super().__init__(
            DatasetOptions(
                seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch, prefetch
            )
        )
        self._call = call
        check_transform(transform)
        padding = RaggedOptions(ragged, pad_value, max_length, pad_to_multiple_of)
        datasets = [
            TFRecordDataset(
                pattern.replace("{}", str(name)),
                None if index_pattern is None else os.fspath(index_pattern).replace("{}", str(name)),
                description,
                shuffle_queue_size,
                None,
                sequence_description,
                compression_type,
                features=features,
                sequence_features=sequence_features,
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
        finish = Finish(transform, bool(drop_none), padding, split == "pad")
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
        split: Literal["exact", "drop", "pad"] = "exact",
        batch_size: int | None = None,
        drop_last: bool = False,
        ragged: Literal["ragged", "pad", "nested"] = "ragged",
        pad_value: Any = None,
        max_length: int | Mapping[str, int] | None = None,
        pad_to_multiple_of: int | None = None,
        prefetch: int = 0,
        reshuffle_each_epoch: bool = True,
        drop_none: bool = False,
        **source_options: Any,
    ) -> MultiTFRecordDataset:
        """A mix of datasets, readers or paths.

        Args:
            datasets: `TFRecordDataset`s (each with its own features, shuffle and transform; with
                `batch_size` of their own, their batches are mixed), `TFRecordReader`s, or paths, globs and
                folders.
            weights: one per dataset. A dataset with weight 0 is not opened.
            transform: called with each item after its dataset's own.
            batch_size: gives batches that mix records of all datasets, which must then have the same features
                and no transform or batch size.
            **source_options: arguments of `TFRecordDataset` for sources given as readers or paths.
        """
        call = call_text(f"{cls.__name__}.from_datasets", MultiTFRecordDataset.from_datasets, locals())
        options_of_sources = list(inspect.signature(TFRecordDataset).parameters)
        check_options(
            MultiTFRecordDataset.from_datasets, source_options, options_of_sources, "source_options"
        )
        if isinstance(datasets, (str, Mapping)) or isinstance(weights, Mapping):
            raise TypeError("datasets and weights are lists, with one weight for each dataset")
        if len(datasets) != len(weights):
            raise ValueError(f"there are {len(datasets)} datasets but {len(weights)} weights")
        checked = check_weights(weights, range(len(datasets)))
        self = cls.__new__(cls)
        options = DatasetOptions(
            seed, rank, world_size, split, batch_size, drop_last, reshuffle_each_epoch, prefetch
        )
        EpochDataset.__init__(self, options)
        self._call = call
        if source_options and all(isinstance(given, TFRecordDataset) for given in datasets):
            raise TypeError(
                f"{', '.join(source_options)}: for readers and paths only; datasets have their own options"
            )
        check_transform(transform)
        padding = RaggedOptions(ragged, pad_value, max_length, pad_to_multiple_of)
        wanted = [i for i, weight in enumerate(checked) if weight > 0]
        made = [_as_dataset(datasets[i], derive_key("source", self.seed, i), source_options) for i in wanted]
        finish = Finish(transform, bool(drop_none), padding, split == "pad")
        self._set(made, [checked[i] for i in wanted], infinite, finish)
        return self

    def _set(
        self, datasets: list[TFRecordDataset], weights: list[float], infinite: bool, finish: Finish
    ) -> None:
        self.datasets, self.weights, self.infinite, self.finish = datasets, weights, bool(infinite), finish
        for dataset in datasets:
            if any(isinstance(operation, Filter) for operation in dataset.operations):
                raise ValueError(
                    "a mix needs the same number of items of a dataset in each epoch, but filter after "
                    "take or skip may give a different number each time: filter first"
                )
            if dataset.positioned and dataset.num_units(0) >= ENDLESS:
                raise ValueError("a dataset that repeats forever cannot be part of a mix: use infinite=True")
        self._finishes = [self._finish_of(dataset) for dataset in datasets]
        if self.batch_size is not None:
            self._decoding()
        drops = any(one.drop_none for one in (finish, *self._finishes))
        check_split(self.split, self.sources(), drops)

    def _finish_of(self, dataset: TFRecordDataset) -> Finish:
        """How a dataset's items are finished: its own options, then the mix's. ValueError if they
        conflict."""
        own, then = dataset.finish, self.finish
        if dataset.split != "exact":
            raise ValueError("the mix splits items over ranks: leave the datasets' own split at 'exact'")
        if self.batch_size is not None and (dataset.gives_batches or own.transform is not None):
            raise ValueError(
                "a mix with batch_size needs datasets without their own batch_size and transform"
            )
        transform = own.transform or then.transform
        if own.transform is not None and then.transform is not None:
            transform = BothTransforms(own.transform, then.transform, own.drop_none)
        drop_none = then.drop_none or own.drop_none
        return replace(own, transform=transform, mark_padding=then.mark_padding, drop_none=drop_none)

    @property
    def positioned(self) -> bool:
        """False if a source is compressed and has no index."""
        return all(dataset.positioned for dataset in self.datasets)

    def sources(self) -> list[Source]:
        """Where the records come from."""
        return [dataset.source for dataset in self.datasets]

    @property
    def gives_batches(self) -> bool:
        """Whether items are batches, not records."""
        return self.batch_size is not None or any(dataset.gives_batches for dataset in self.datasets)

    def _counts(self, epoch: int) -> list[int]:
        return [dataset.num_units(epoch) for dataset in self.datasets]

    def order(self, epoch: int, source_pass: int = 0) -> Order:
        """The draws of an epoch; with `repeat`, those of its passes one after another."""
        total = sum(self._counts(epoch))
        if not self.infinite or not total:
            return DrawOrder(total, (epoch - source_pass) * total)
        if any(isinstance(operation, Repeat) for operation in self.operations):
            raise ValueError(
                "an infinite mix never ends: there is nothing to repeat (infinite=False gives one)"
            )
        return DrawOrder(ENDLESS, 0)

    def plan(self, epoch: int, source_pass: int = 0) -> Plan:
        """The items of an epoch, over all ranks; the positions are draws."""
        return super().plan(epoch, self._first_pass(epoch))

    def _first_pass(self, epoch: int) -> int:
        """The epoch of the draws that an epoch begins with."""
        for operation in reversed(self.operations):
            if isinstance(operation, Repeat):
                epoch *= operation.stride
        return epoch

    def __len__(self) -> int:
        if self.num_units() >= ENDLESS:
            raise TypeError(
                "an infinite mix has no length; with infinite=False, or after take(n), it has one"
            )
        return super().__len__()

    def produce(self, epoch: int) -> Callable[..., Iterator[Any]]:
        """For one epoch: a function that takes items and padding flags and returns an iterator of outputs."""
        return MixedItems(self.plan(epoch), partial(self._mixed, self._first_pass(epoch)))

    def _mixed(self, first: int, number: int) -> MixedPass:
        """One pass of a mix, the `number`-th of an epoch that begins with the draws of epoch `first`."""
        epoch = self.state_epoch(first + number)
        counts = self._counts(epoch)
        mix = MixOrder(counts, self.weights, infinite=self.infinite, seed=self.seed, epoch=epoch)
        if self.batch_size is None:
            return MixedRecords(self.datasets, mix, counts, epoch, self._finishes)
        return MixedBatches(self.datasets, mix, counts, epoch, self.finish, self._decoding())

    def reads_all(self, epoch: int) -> bool:
        """Whether an epoch reads every record of the files; False if finding out would cost much."""
        if self.infinite or self.operations:
            return False
        own = self.state_epoch(epoch)
        if self.drop_last and self.batch_size is not None:
            if not self.positioned or sum(self._counts(own)) % self.batch_size:
                return False
        return all(dataset.reads_all(own) for dataset in self.datasets)

    # ---- operations ----------------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[Any], Any]) -> MultiTFRecordDataset:
        """The mix of the datasets' records for which `predicate` is true; see `TFRecordDataset.filter`.

        With `batch_size` it is called with batches, each from one dataset.
        """
        if self.operations:
            raise ValueError("filter a mix before take, skip and repeat")
        made = self._copy(f".filter({function_text(predicate)})")
        made._set(
            [dataset.filtered_as(predicate, self.gives_batches) for dataset in self.datasets],
            self.weights,
            self.infinite,
            self.finish,
        )
        return made

    def _decoding(self) -> Source:
        """What decodes mixed batches."""
        if self._joined is None:
            self._joined = joined(self.sources())
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
            if dataset.operations:
                raise ValueError(
                    "datasets with take, skip or repeat mix only if every source is plain or has an index"
                )
            if dataset.batch_size is not None:
                raise ValueError(
                    "batches of compressed files without an index cannot be mixed: build an index"
                )
            if not dataset.positioned:
                dataset.say_what_streams_cost(consumer)
        epoch = self.state_epoch(epoch)
        key = derive_key("stream", self.seed, epoch, consumer.number)
        queued = next((d for d in self.datasets if not d.positioned), self.datasets[0])
        mixed = mixed_payloads(
            self.datasets, self.weights, self.infinite, epoch, consumer, random.Random(key)
        )
        payloads = queued.shuffled(mixed, key)
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

    def describe(self) -> dict[str, Any]:
        """The JSON-able description that a state must match."""
        return {
            "seed": self.seed,
            "sources": [dataset.describe() for dataset in self.datasets],
            "weights": self.weights,
            "infinite": self.infinite,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "reshuffle_each_epoch": self.reshuffle_each_epoch,
        } | self._described_operations()

    def _check_world(self, state: dict[str, Any], world_size: int) -> None:
        if state["world_size"] != world_size and state["position"]:
            raise ValueError(
                f"the state of this mix was made with {state['world_size']} ranks, but there are "
                f"{world_size} here: a mix resumes only on the same number of ranks, "
                "because its weights hold for each rank"
            )


def _as_dataset(given: Any, seed: int, options: dict[str, Any]) -> TFRecordDataset:
    if isinstance(given, TFRecordDataset):
        return given
    if isinstance(given, EpochDataset):
        raise TypeError("a mix is made of TFRecordDatasets, readers or paths, not of mixes")
    return TFRecordDataset(given, **{"seed": seed, **options})
