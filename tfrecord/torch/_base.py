"""What the iterable datasets share: epochs, ranks and workers, length, state."""

from __future__ import annotations

import operator
import secrets
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from indexer.errors import TFRecordError
from indexer.options import warn_caller
from tfrecord.sampling.share import SPLITS, Share
from tfrecord.torch._options import EpochOptions, as_integer
from tfrecord.torch._producer import WINDOW
from tfrecord.torch._source import DROPPED
from tfrecord.torch._state import MOST, Restored, check_state, full_state, start_of, worker_fields
from tfrecord.torch._workers.epochs import EpochCounter, PassKey, Start
from tfrecord.torch._workers.errors import for_loader
from tfrecord.torch._workers.ranks import Consumer, RankResolver, worker_place
from tfrecord.torch._workers.restored import LoaderState

__all__ = ["EpochDataset"]


class EpochDataset(IterableDataset[Any]):
    """An iterable dataset whose passes are numbered epochs, dealt to ranks and workers, and resumable."""

    def __init__(self, options: EpochOptions) -> None:
        super().__init__()
        seed, world_size = options.seed, options.world_size
        split, batch_size = options.split, options.batch_size
        if split not in SPLITS:
            raise ValueError(f"split is one of {', '.join(map(repr, SPLITS))}, got {split!r}")
        if options.drop_last and batch_size is None:
            raise ValueError("drop_last needs a batch_size (the DataLoader has a drop_last of its own)")
        self._ranks = RankResolver(options.rank, world_size)
        self._drew_seed = seed is None
        self.seed = secrets.randbits(62) if seed is None else as_integer(seed, "seed")
        self._check_seed(1 if world_size is None else world_size)
        self.split = split
        self.batch_size = None if batch_size is None else as_integer(batch_size, "batch_size", 1)
        self.drop_last = bool(options.drop_last)
        self.reshuffle_each_epoch = bool(options.reshuffle_each_epoch)
        self._counter = EpochCounter()
        self._loader_state = LoaderState()
        self._fresh()

    def _fresh(self) -> None:
        """What belongs to one process and one time."""
        self._current: _Pass | None = None
        self._passes = 0
        self._restored: Restored | None = None

    def _check_seed(self, world_size: int) -> None:
        if self._drew_seed and world_size > 1:
            raise ValueError("seed=None gives every rank another order: give all ranks the same seed")

    # ---- what a dataset says of itself ---------------------------------------------------------------------

    @property
    @abstractmethod
    def positioned(self) -> bool:
        """Whether any place of an epoch can be reached at once."""

    @abstractmethod
    def num_units(self) -> int:
        """Items of one epoch, over all ranks: records, or batches with `batch_size`."""

    @abstractmethod
    def produce(self, epoch: int, turn: int = 0) -> Any:
        """A function from places and padding flags to an iterator of their items, for one epoch."""

    def open_epoch(self, epoch: int) -> tuple[int, Any, TFRecordError | None]:
        """(items over all ranks, what `produce` gives, what is to be raised after the last of them)."""
        return self.num_units(), self.produce(epoch), None

    @abstractmethod
    def stream(self, epoch: int, consumer: Consumer, skip: int) -> Iterator[tuple[Any, bool]]:
        """Where places cannot be reached: one consumer's items after the first `skip`, and which is last."""

    def window(self) -> int:
        """Places worked out at a time."""
        return max(1, WINDOW // (self.batch_size or 1))

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a state must agree with, JSON-able."""

    def state_epoch(self, epoch: int) -> int:
        """The epoch that decides the order."""
        return epoch if self.reshuffle_each_epoch else 0

    # ---- epochs --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that is being read here; before the first item, the one that comes next."""
        if get_worker_info() is None and self._counter.read_by_workers():
            return self._counter.peek().epoch - 1
        if self._current is not None and self._current.start is not None:
            return self._current.start.epoch
        return self._counter.peek().epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass epoch `epoch`, also in running workers.

        It starts from its beginning, unless it is the epoch of a state just loaded: then where that state
        says.
        """
        self._counter.set_epoch(as_integer(epoch, "an epoch", 0, MOST - 2))
        self._current = None

    def __iter__(self) -> Iterator[Any]:
        """The next epoch's items for this rank and worker; it begins (and counts) with the first item."""
        self._current = _Pass(self, self._passes)
        self._passes += 1
        return self._current

    def __len__(self) -> int:
        """What one whole pass of this rank yields, all its workers together (an upper bound where records may
        be dropped). TypeError where only a pass over the data could tell."""
        if not self.positioned:
            raise TypeError(
                f"{type(self).__name__} over compressed files without an index has no length: build an index "
                "(python -m indexer build PATH)"
            )
        rank, world_size = self._ranks()
        return Share(self.num_units(), rank, world_size, split=self.split).rank_length

    def _say_once(self, bit: int, message: str) -> None:
        """A warning that only the first pass gives, over all worker processes."""
        if self._counter.first(bit):
            warn_caller(message)

    # ---- state ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """How far this dataset was read, as a small JSON-able dict; `load_state_dict` goes on from there.

        It holds `epoch` and `position`, the number of items (records, or batches with `batch_size`) that all
        ranks together have taken, each as many as this one. A state at the end of an epoch is that of the
        next one's start. One rank's state serves all ranks, also another number of them.

        While plain DataLoader workers read, this process cannot know what the loop has consumed, and
        RuntimeError says so: use `state_at`, or torchdata's StatefulDataLoader, which asks the workers.
        """
        rank, world_size = self._ranks()
        options = self.describe()
        info = get_worker_info()
        current = self._current
        if info is not None:
            return self._worker_state(info, options, rank, world_size)
        if self._counter.read_by_workers():
            raise RuntimeError(
                "DataLoader workers read this dataset, and only the loop knows what it has consumed: use "
                "dataset.state_at(epoch, position), or torchdata's StatefulDataLoader"
            )
        if current is None or current.start is None:
            start = self._counter.peek()
            return full_state(start, options, rank, world_size, **({"layout": 1} if start.layout else {}))
        if current.share is None:
            return self._stream_state(current, options, rank, world_size)
        share = current.share
        at = share.resume_at(current.taken)
        done = current.at_end
        if done and at >= share.end:
            return full_state(Start(current.start.epoch + 1), options, rank, world_size)
        more = {"rank_done": True} if done else {}
        return full_state(Start(current.start.epoch, at), options, rank, world_size, **more)

    def _stream_state(
        self, current: _Pass, options: dict[str, Any], rank: int, world_size: int
    ) -> dict[str, Any]:
        assert current.start is not None
        if current.at_end:
            return full_state(Start(current.start.epoch + 1), options, rank, world_size)
        start = Start(current.start.epoch, current.taken)
        return full_state(start, options, rank, world_size, layout=1)

    def _worker_state(self, info: Any, options: dict[str, Any], rank: int, world_size: int) -> dict[str, Any]:
        current = self._current
        more = {"worker": info.id, "num_workers": info.num_workers}
        if current is not None and current.start is not None:
            at = Restored(current.start, current.taken, current.at_end, current.shift)
        elif self._restored is not None:
            at = self._restored
        else:
            number = current.number if current is not None else self._passes
            at = Restored(self._counter.peek(PassKey.of_worker(info, number)))
        more |= {"taken": at.taken, "done": at.done, "shift": at.shift}
        return full_state(at.start, options, rank, world_size, **more)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a state says, with the next pass; it may come from another process or rank count.

        Raises ValueError for a state of another seed, data or option, naming what differs, and for one that
        this number of ranks or workers cannot go on from, with the reason.
        """
        check_state(state, self.describe())
        rank, world_size = self._ranks()
        if self.positioned:
            total, ranks = self.num_units(), state["world_size"]
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
                    "as many workers; for another number make a state of what the loop has consumed: "
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
        """ValueError where a state needs the number of ranks that it was made with."""
        if not self.positioned and state["world_size"] != world_size and state["position"]:
            raise ValueError(
                f"the state was made with {state['world_size']} ranks, here are {world_size}: "
                "compressed files without an index are dealt by rank and worker and cannot be resumed on "
                "another number; build an index"
            )

    def state_at(self, epoch: int, position: int) -> dict[str, Any]:
        """The state after `position` items of `epoch` were taken, as the training loop counts them.

        Items are what the dataset yields (records, or batches with `batch_size`), over all ranks: on each of
        R ranks that have taken k items it is `k * R`. For loops over a DataLoader with workers, whose
        prefetched items were not consumed. Raises ValueError where there are not that many items.
        """
        number, place = operator.index(epoch), operator.index(position)
        if not self.positioned:
            raise ValueError(
                "compressed files without an index have no positions to resume at: build an index "
                "(python -m indexer build PATH)"
            )
        rank, world_size = self._ranks()
        total = self.num_units()
        if number < 0 or not 0 <= place <= max(total, Share(total, split=self.split).end):
            raise ValueError(f"an epoch has {total} items, and epochs count from 0: got ({number}, {place})")
        end = Share(total, rank, world_size, split=self.split).end
        start = Start(number + 1) if place >= end else Start(number, place)
        return full_state(start, self.describe(), rank, world_size)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_current", "_passes", "_restored"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fresh()


class _Pass:
    """One pass over a dataset by this process: an iterator that knows how far it is.

    Which epoch it is is settled at the first item, so that a loader may make iterators that it never uses.
    """

    def __init__(self, dataset: EpochDataset, number: int) -> None:
        self.dataset = dataset
        self.number = number
        self.start: Start | None = None
        self.share: Share | None = None
        self.taken = 0
        self.shift = 0
        self.at_end = False  # nothing is left
        self._items: Iterator[Any] | None = None

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        try:
            if self._items is None:
                self._items = self._begin()
            return next(self._items)
        except StopIteration:
            self.at_end = True
            raise
        except TFRecordError as error:
            carried = for_loader(error)
            if carried is error:
                raise
            raise carried from error

    def _begin(self) -> Iterator[Any]:
        dataset = self.dataset
        rank, world_size = dataset._ranks()
        dataset._check_seed(world_size)
        worker, num_workers = worker_place()
        over = self._bind()
        assert self.start is not None
        dataset._current = self
        if over is not None and dataset._loader_state.finished:
            return iter(())  # the loader throws this pass away, and asks for the next one
        if not dataset.positioned:
            return self._from_stream(Consumer(rank, world_size, worker, num_workers))
        total, produce, failure = dataset.open_epoch(dataset.state_epoch(self.start.epoch))
        if over is not None:
            # The loader goes on asking behind the worker that gave the last item: there the shares begin.
            before = Share(
                total, rank, world_size, split=dataset.split, start=over.start.position
            ).rank_length
            self.shift = (before + over.shift) % num_workers
        place = (rank, world_size, (worker - self.shift) % num_workers, num_workers)
        self.share = Share(total, *place, dataset.split, self.start.position)
        return self._from_places(self.share, produce, failure)

    def _bind(self) -> Restored | None:
        """Take the epoch that comes next, or go on with the restored one; gives back one that was over."""
        dataset = self.dataset
        info = get_worker_info()
        key = None if info is None else PassKey.of_worker(info, self.number)
        restored, dataset._restored = dataset._restored, None
        if restored is None or key is None:
            self.start = dataset._counter.begin(key)
            return None
        if restored.done and dataset._counter.all_done(key):
            # Every worker's share was done: that epoch is over, and this is the next one's pass.
            self.start = Start(restored.start.epoch + 1)
            if not dataset._loader_state.finished:
                dataset._counter.begin_next(self.start.epoch)
            return restored
        self.start, self.taken, self.shift = restored.start, restored.taken, restored.shift
        return None

    def _from_places(self, share: Share, produce: Any, failure: TFRecordError | None) -> Iterator[Any]:
        while self.taken < len(share):
            places = share.places(self.taken, self.taken + self.dataset.window())
            for item in produce(*share.wrap(places)):
                self.taken += 1
                self.at_end = self.taken >= len(share) and failure is None
                if item is not DROPPED:
                    yield item
        if failure is not None:
            raise failure

    def _from_stream(self, consumer: Consumer) -> Iterator[Any]:
        assert self.start is not None
        if self.start.layout and self.start.layout != consumer.num_workers:
            raise ValueError(
                f"the state was made without workers, here are {consumer.num_workers}: compressed files "
                "without an index are dealt by worker and cannot be resumed on another number; build an index"
            )
        self.taken = max(self.taken, self.start.position)
        for item, last in self.dataset.stream(
            self.dataset.state_epoch(self.start.epoch), consumer, self.taken
        ):
            self.taken += 1
            self.at_end = last
            if item is not DROPPED:
                yield item
