"""What the iterable datasets share: epochs, ranks and workers, length, state."""

from __future__ import annotations

import copy
import operator
import secrets
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from torch.utils.data import IterableDataset, get_worker_info

from indexer.errors import TFRecordError
from indexer.options import warn_caller
from tfrecord.sampling.mixing import ENDLESS
from tfrecord.sampling.orders import Order
from tfrecord.sampling.plans import BatchPlan, Plan, RecordPlan
from tfrecord.sampling.share import Share
from tfrecord.torch._operations import Bucket, Operation, Repeat, Skip, Take, make_plan
from tfrecord.torch._options import DatasetOptions, as_integer
from tfrecord.torch._pass import Pass, PassIterator
from tfrecord.torch._producer import WINDOW
from tfrecord.torch._source import Source
from tfrecord.torch._state import MOST, Restored, check_state, full_state, start_of, worker_fields
from tfrecord.torch._tf_data import TFDataHints
from tfrecord.torch._workers.epochs import EpochCounter, PassKey, Start
from tfrecord.torch._workers.ranks import Consumer, RankResolver
from tfrecord.torch._workers.restored import LoaderState

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["EpochDataset"]


class EpochDataset(TFDataHints, IterableDataset[Any]):
    """An iterable dataset whose passes are numbered epochs, split over ranks and workers, and resumable."""

    def __init__(self, options: DatasetOptions) -> None:
        super().__init__()
        self._ranks = RankResolver(options.rank, options.world_size)
        self._drew_seed = options.seed is None
        self.seed = secrets.randbits(62) if options.seed is None else int(options.seed)
        self._check_seed(options.world_size or 1)
        self.split = options.split
        self.batch_size = None if options.batch_size is None else int(options.batch_size)
        self.drop_last = bool(options.drop_last)
        self.reshuffle_each_epoch = bool(options.reshuffle_each_epoch)
        self._prefetch = int(options.prefetch)
        self.operations: tuple[Operation, ...] = ()
        self._call = type(self).__name__
        self._counter = EpochCounter()
        self._loader_state = LoaderState()
        self._fresh()

    def _fresh(self) -> None:
        """Set the state that belongs to one process and is never pickled."""
        self._current: Pass | None = None
        self._passes = 0
        self._restored: Restored | None = None
        self._plan: tuple[tuple[int, int], Plan] | None = None

    def _check_seed(self, world_size: int) -> None:
        if self._drew_seed and world_size > 1:
            raise ValueError("seed=None gives each rank a different order: give all ranks the same seed")

    # ---- what subclasses define ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def positioned(self) -> bool:
        """Whether any position of an epoch can be reached directly."""

    @abstractmethod
    def sources(self) -> list[Source]:
        """Where the records come from."""

    @abstractmethod
    def order(self, epoch: int, source_pass: int = 0) -> Order:
        """The records of an epoch before any operation; `source_pass` counts the passes of a mix."""

    @abstractmethod
    def produce(self, epoch: int) -> Callable[..., Iterator[Any]]:
        """A function that takes items of an epoch and padding flags, and returns an iterator of outputs."""

    @abstractmethod
    def stream(self, epoch: int, consumer: Consumer, skip: int) -> Iterator[tuple[Any, bool]]:
        """For datasets without positions: one consumer's items after the first `skip`, and which is last."""

    @abstractmethod
    def reads_all(self, epoch: int) -> bool:
        """Whether an epoch reads every record of the files; False if finding out would cost much."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The JSON-able description that a state must match."""

    def _described_operations(self) -> dict[str, Any]:
        """The operations' part of `describe`; absent from states of datasets without operations."""
        return {"operations": [one.describe() for one in self.operations]} if self.operations else {}

    @property
    def gives_batches(self) -> bool:
        """Whether items are batches, not records."""
        return self.batch_size is not None or any(isinstance(one, Bucket) for one in self.operations)

    def batched(self, order: Order) -> Plan:
        """The records of an order as items."""
        if self.batch_size is None:
            return RecordPlan(order)
        return BatchPlan(order, self.batch_size, self.drop_last)

    def plan(self, epoch: int, source_pass: int = 0) -> Plan:
        """The items of an epoch, over all ranks."""
        key = (epoch, source_pass)
        if self._plan is None or self._plan[0] != key:
            order = partial(self.order, source_pass=source_pass)
            self._plan = key, make_plan(self.operations, epoch, order, self.batched)
        return self._plan[1]

    def num_units(self, epoch: int | None = None) -> int:
        """Items of an epoch (None: the next one), over all ranks: records, or batches with `batch_size`."""
        return len(self.plan(self._counter.peek().epoch if epoch is None else epoch))

    def open_epoch(self, epoch: int) -> tuple[int, Callable[..., Iterator[Any]], TFRecordError | None]:
        """(number of items over all ranks, result of `produce`, error to raise after the last item)."""
        return self.num_units(epoch), self.produce(epoch), None

    def window(self) -> int:
        """How many items are computed at a time."""
        sizes = [size for one in self.operations if isinstance(one, Bucket) for size in one.batch_sizes]
        return max(1, WINDOW // max([self.batch_size or 1, *sizes]))

    def state_epoch(self, epoch: int) -> int:
        """The epoch that decides the order."""
        return epoch if self.reshuffle_each_epoch else 0

    # ---- epochs --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch being read in this process; before the first item, the next one."""
        if get_worker_info() is None and self._counter.read_by_workers():
            return self._counter.peek().epoch - 1
        if self._current is not None and self._current.start is not None:
            return self._current.start.epoch
        return self._counter.peek().epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass epoch `epoch`, also in running workers.

        It starts from its beginning. The exception is the epoch of a state just loaded, which starts where
        the state says.
        """
        self._counter.set_epoch(as_integer(epoch, "an epoch", 0, MOST - 2))
        self._current = None

    def __iter__(self) -> Iterator[Any]:
        """The next epoch's items for this rank and worker; the epoch begins (and counts) at the first
        item."""
        self._current = Pass(self, self._passes)
        self._passes += 1
        return PassIterator(self._current)

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} gives its items in the order of an epoch, not by position: use "
            "TFRecordMapDataset or TFRecordReader"
        )

    def __len__(self) -> int:
        """Number of items that one pass yields on this rank, over all its workers (an upper bound if records
        may be dropped). Raises TypeError if only a pass over the data could tell."""
        if not self.positioned:
            raise TypeError(
                f"{type(self).__name__} over compressed files without an index has no length: build an index "
                "(tfrecord index PATH)"
            )
        rank, world_size = self._ranks()
        total = self.num_units()
        if total >= ENDLESS:
            raise TypeError(f"{type(self).__name__} has no length: it repeats forever")
        return Share(total, rank, world_size, split=self.split).rank_length

    @property
    def num_skipped(self) -> int:
        """How many distinct damaged records this process and its loaders' workers have skipped."""
        return self._counter.num_skipped()

    def count_skips(self) -> None:
        """Count records skipped by this process from now on in `num_skipped`."""
        for source in self.sources():
            source.view.store.policy.on_skip = self._counter.record_skip

    def __repr__(self) -> str:
        return self._call

    def _say_once(self, bit: int, message: str) -> None:
        """Give a warning only in the first pass, over all worker processes."""
        if self._counter.first(bit):
            warn_caller(message)

    # ---- operations ----------------------------------------------------------------------------------------

    def take(self, count: int) -> Self:
        """A dataset of the first `count` items of each epoch's order: records, or batches with `batch_size`.

        With a shuffle each epoch takes different ones; use `TFRecordReader.select` for a fixed choice.
        """
        return self._with(Take(as_integer(count, "count", 0)), f".take({count})")

    def skip(self, count: int) -> Self:
        """A dataset of each epoch's items except the first `count`; see `take`."""
        return self._with(Skip(as_integer(count, "count", 0)), f".skip({count})")

    def repeat(self, count: int | None = None) -> Self:
        """A dataset in which each epoch is `count` epochs of this one, one after another; None: forever.

        Its epoch e consists of the epochs e x `count`, e x `count` + 1, ... of this one.
        """
        times = None if count is None else as_integer(count, "count", 0)
        return self._with(Repeat(times), f".repeat({'' if count is None else count})")

    def _with(self, operation: Operation, text: str) -> Self:
        """This dataset with one more operation, and its own epoch counter."""
        if not self.positioned:
            name, path = text[1:].partition("(")[0], self.sources()[0].paths[0]
            raise ValueError(
                f"{name} needs positions, and {path} is compressed and has no index: build an index "
                "(tfrecord index PATH)"
            )
        made = self._copy(text)
        made.operations = (*self.operations, operation)
        return made

    def _copy(self, text: str) -> Self:
        made = copy.copy(self)
        made._call = self._call + text
        made._counter = EpochCounter()
        return made

    # ---- state ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """How far this dataset was read, as a small JSON-able dict for `load_state_dict`.

        It holds `epoch` and `position`: the number of items (records, or batches with `batch_size`) that all
        ranks together have taken, if each took as many as this one. The state at the end of an epoch equals
        that at the start of the next one. One rank's state works for all ranks, and for another number of
        ranks.

        While plain DataLoader workers read, this process cannot know what the loop has consumed, so this
        raises RuntimeError. Use `state_at`, or torchdata's StatefulDataLoader, which asks the workers.
        """
        rank, world_size = self._ranks()
        options = self.describe()
        info = get_worker_info()
        current = self._current
        if info is not None:
            return self._worker_state(info, options, rank, world_size)
        if self._counter.read_by_workers():
            raise RuntimeError(
                "DataLoader workers read this dataset, so only the loop knows what it has consumed: use "
                "dataset.state_at(epoch, position), or torchdata's StatefulDataLoader"
            )
        if current is None or current.start is None:
            start = self._counter.peek()
            return full_state(start, options, rank, world_size, **({"layout": 1} if start.layout else {}))
        if current.share is None:
            return self._stream_state(current, options, rank, world_size)
        share = current.share
        at = share.resume_at(current.items_consumed)
        done = current.at_end
        if done and at >= share.end:
            return full_state(Start(current.start.epoch + 1), options, rank, world_size)
        more = {"rank_done": True} if done else {}
        return full_state(Start(current.start.epoch, at), options, rank, world_size, **more)

    def _stream_state(
        self, current: Pass, options: dict[str, Any], rank: int, world_size: int
    ) -> dict[str, Any]:
        assert current.start is not None
        if current.at_end:
            return full_state(Start(current.start.epoch + 1), options, rank, world_size)
        start = Start(current.start.epoch, current.items_consumed)
        return full_state(start, options, rank, world_size, layout=1)

    def _worker_state(self, info: Any, options: dict[str, Any], rank: int, world_size: int) -> dict[str, Any]:
        current = self._current
        more = {"worker": info.id, "num_workers": info.num_workers}
        if current is not None and current.start is not None:
            at = Restored(current.start, current.items_consumed, current.at_end, current.worker_offset)
        elif self._restored is not None:
            at = self._restored
        else:
            number = current.number if current is not None else self._passes
            at = Restored(self._counter.peek(PassKey.of_worker(info, number)))
        more |= {"taken": at.items_consumed, "done": at.done, "shift": at.worker_offset}
        return full_state(at.start, options, rank, world_size, **more)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state in the next pass; it may come from another process or number of ranks.

        Raises ValueError for a state with another seed, data or option, naming what differs, and for a state
        that this number of ranks or workers cannot resume from, with the reason.
        """
        check_state(state, self.describe())
        rank, world_size = self._ranks()
        if self.positioned:
            total, ranks = self.num_units(state["epoch"]), state["world_size"]
            if state["position"] > total + -total % ranks:  # a padded epoch has as many for each rank
                raise ValueError(f"the state is at item {state['position']} of an epoch that has {total}")
        self._check_world(state, world_size)
        fields = worker_fields(state)
        info = get_worker_info()
        self._current = None
        if fields is not None:
            worker, num_workers = fields
            if info is None or (info.id, info.num_workers) != (worker, num_workers):
                raise ValueError(
                    f"this is the state of worker {worker} of {num_workers}, for a StatefulDataLoader with "
                    "as many workers; for another number, make a state from what the loop has consumed: "
                    "dataset.state_at(epoch, position)"
                )
            start = Start(int(state["epoch"]), int(state["position"]), int(state.get("layout", 0)))
            done = bool(state.get("done"))
            self._restored = Restored(start, int(state["taken"]), done, int(state["shift"]))
            self._counter.restore(PassKey.of_worker(info, self._passes), start, done=done)
            return
        start = start_of(state, rank, world_size)
        if info is not None:
            self._restored = Restored(start)
            self._counter.restore(PassKey.of_worker(info, self._passes), start, done=False)
        else:
            self._counter.set(start, loaded=True)

    def _check_world(self, state: dict[str, Any], world_size: int) -> None:
        """Raise ValueError if a state needs the number of ranks that it was made with."""
        if not self.positioned and state["world_size"] != world_size and state["position"]:
            raise ValueError(
                f"the state was made with {state['world_size']} ranks, but there are {world_size} here: "
                "compressed files without an index are split by rank and worker and cannot be resumed on "
                "another number; build an index"
            )

    def state_at(self, epoch: int, position: int) -> dict[str, Any]:
        """The state after `position` items of `epoch` were taken, as the training loop counts them.

        Items are what the dataset yields (records, or batches with `batch_size`), counted over all ranks: if
        each of R ranks has taken k items, `position` is `k * R`. Use this for loops over a DataLoader with
        workers, which read ahead of the loop. Raises ValueError if there are fewer items than that.
        """
        number, place = operator.index(epoch), operator.index(position)
        if not self.positioned:
            raise ValueError(
                "compressed files without an index have no positions to resume at: build an index "
                "(tfrecord index PATH)"
            )
        rank, world_size = self._ranks()
        total = self.num_units(max(number, 0))
        if number < 0 or not 0 <= place <= max(total, Share(total, split=self.split).end):
            raise ValueError(
                f"an epoch has {total} items, and epochs count from 0: got epoch {number}, position {place}"
            )
        end = Share(total, rank, world_size, split=self.split).end
        start = Start(number + 1) if place >= end else Start(number, place)
        return full_state(start, self.describe(), rank, world_size)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_current", "_passes", "_restored", "_plan"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()
