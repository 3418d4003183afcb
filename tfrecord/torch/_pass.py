"""One pass over a dataset, and its progress."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from indexer.errors import TFRecordError
from indexer.options import warn_caller
from tfrecord.sampling.permutation import Int64Array
from tfrecord.sampling.share import Share
from tfrecord.torch._prefetch import Prefetched
from tfrecord.torch._source import DROPPED
from tfrecord.torch._state import Restored
from tfrecord.torch._workers.epochs import PassKey, Start
from tfrecord.torch._workers.errors import for_loader
from tfrecord.torch._workers.ranks import Consumer, worker_place

__all__ = ["Pass", "PassIterator"]


class _Step(NamedTuple):
    """An item, and where the pass stands once it is handed out."""

    item: Any
    items_consumed: int
    at_end: bool


class Pass:
    """One pass over a dataset by this process.

    The first item decides which epoch it is, because a loader may create iterators that it never uses.
    """

    def __init__(self, dataset: Any, number: int) -> None:
        self.dataset = dataset  # an `EpochDataset`, which makes passes
        self.number = number
        self.start: Start | None = None
        self.share: Share | None = None
        self.items_consumed = 0
        self.worker_offset = 0
        self.at_end = False  # nothing is left
        self._reads_whole_share = False
        self._steps: Iterator[_Step] | None = None

    def next_item(self) -> Any:
        """The next item; StopIteration at the end."""
        try:
            if self._steps is None:
                self._steps = self._begin()
            while True:
                item, self.items_consumed, self.at_end = next(self._steps)
                if item is not DROPPED:
                    return item
        except StopIteration:
            self.at_end = True
            if self._reads_whole_share:
                self._reads_whole_share = False
                self._warn_of_absent_features()
            raise
        except TFRecordError as error:
            carried = for_loader(error)
            if carried is error:
                raise
            raise carried from error

    def _warn_of_absent_features(self) -> None:
        """Once this process and its fellow workers have read every record, warn of features that none had.

        Other ranks may have seen the features, so nobody speaks for several ranks.
        """
        dataset, start = self.dataset, self.start
        assert start is not None
        views = [source.view for source in dataset.sources()]
        if not any(view.decoder.seen.is_open for view in views):
            return
        if dataset._ranks()[1] > 1 or not dataset.reads_all(start.epoch):
            return
        worker, num_workers = worker_place()
        if num_workers > 1:
            share = (worker - self.worker_offset) % num_workers
            flags = [flag for view in views for flag in view.decoder.seen.flags()]
            joined = dataset._counter.end_share(start.epoch, share, num_workers, flags)
            if joined is None or dataset.num_skipped:
                return
            for view in views:
                count = len(view.decoder.seen.flags())
                view.decoder.seen.join(joined[:count])
                joined = joined[count:]
        absent = [view.absent() for view in views]
        if any(absent) and dataset._counter.first(3):
            for view, names in zip(views, absent, strict=True):
                view.warn_of_absent(names)

    def close(self, *, wait: bool) -> None:
        """Stop reading; the state stays. `wait`: wait until the `prefetch` thread has ended."""
        if isinstance(self._steps, Prefetched) and not wait:
            self._steps.stop()
        elif isinstance(self._steps, Generator | Prefetched):
            self._steps.close()

    def _begin(self) -> Iterator[_Step]:
        dataset = self.dataset
        rank, world_size = dataset._ranks()
        dataset._check_seed(world_size)
        worker, num_workers = worker_place()
        over = self._bind()
        assert self.start is not None
        dataset._current = self
        if over is not None and dataset._loader_state.finished:
            return iter(())  # the loader discards this pass and asks for the next one
        dataset.count_skips()
        self._reads_whole_share = not self.start.position and not self.items_consumed
        if dataset.positioned:
            steps = self._of_places(over, (rank, world_size, worker, num_workers))
        else:
            steps = self._of_stream(Consumer(rank, world_size, worker, num_workers))
        if dataset._prefetch and get_worker_info() is None:
            return Prefetched(steps, dataset._prefetch)
        return steps

    def _bind(self) -> Restored | None:
        """Start the next epoch, or resume the restored one; returns a restored pass that was already over."""
        dataset = self.dataset
        info = get_worker_info()
        key = None if info is None else PassKey.of_worker(info, self.number)
        restored: Restored | None = dataset._restored
        dataset._restored = None
        if restored is None or key is None:
            self.start = dataset._counter.begin(key)
            return None
        if restored.done and dataset._counter.all_done(key):
            # All workers had finished their shares: that epoch is over, and this pass is the next one.
            self.start = Start(restored.start.epoch + 1)
            if not dataset._loader_state.finished:
                dataset._counter.begin_next(self.start.epoch)
            return restored
        self.start, self.items_consumed = restored.start, restored.items_consumed
        self.worker_offset = restored.worker_offset
        return None

    def _of_places(self, over: Restored | None, place: tuple[int, int, int, int]) -> Iterator[_Step]:
        assert self.start is not None
        dataset = self.dataset
        rank, world_size, worker, num_workers = place
        total, produce, failure = dataset.open_epoch(self.start.epoch)
        if over is not None:
            # The loader asks the worker after the one that gave the last item, so the shares begin there.
            before = Share(
                total, rank, world_size, split=dataset.split, start=over.start.position
            ).rank_length
            self.worker_offset = (before + over.worker_offset) % num_workers
        worker = (worker - self.worker_offset) % num_workers
        self.share = Share(total, rank, world_size, worker, num_workers, dataset.split, self.start.position)
        self._warn_of_unequal_ranks(total)
        return _steps_of_places(self.share, produce, dataset.window(), self.items_consumed, failure)

    def _warn_of_unequal_ranks(self, total: int) -> None:
        """Warn once that some ranks get one more batch: a training step then waits for the others forever."""
        share = self.share
        assert share is not None
        more = (total - share.start) % share.world_size
        if share.split != "exact" or not self.dataset.gives_batches or not more:
            return
        if self.dataset._counter.first(2):
            warn_caller(
                f"{more} of {share.world_size} ranks get one more batch than the others; with DDP their last "
                "step waits forever. split='drop' or 'pad' gives every rank the same number of batches "
                "(split='exact' is for loops that can handle this, for example with DDP's Join)"
            )

    def _of_stream(self, consumer: Consumer) -> Iterator[_Step]:
        start = self.start
        assert start is not None
        if start.layout and start.layout != consumer.num_workers:
            raise ValueError(
                f"the state was made without workers, but there are {consumer.num_workers} here: "
                "compressed files without an index are split by worker and cannot be resumed on another "
                "number; build an index"
            )
        self.items_consumed = max(self.items_consumed, start.position)
        items = self.dataset.stream(start.epoch, consumer, self.items_consumed)
        return (
            _Step(item, number, last) for number, (item, last) in enumerate(items, self.items_consumed + 1)
        )


def _steps_of_places(
    share: Share,
    produce: Callable[..., Iterator[Any]],
    window: int,
    items_consumed: int,
    failure: TFRecordError | None,
) -> Iterator[_Step]:
    count = len(share)
    while items_consumed < count:

        def later(number: int, begin: int = items_consumed) -> Int64Array:
            """The items of the `number`-th window after this one."""
            begin += number * window
            return share.wrap(share.places(begin, begin + window))[0]

        places = share.places(items_consumed, items_consumed + window)
        for item in produce(*share.wrap(places), later):
            items_consumed += 1
            yield _Step(item, items_consumed, items_consumed >= count and failure is None)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # as in `Prefetched`


class PassIterator:
    """The iterator that a loop holds. When it is deleted, the pass stops reading; its state stays."""

    def __init__(self, of: Pass) -> None:
        self._pass = of

    def __iter__(self) -> PassIterator:
        return self

    def __next__(self) -> Any:
        return self._pass.next_item()

    def close(self) -> None:
        """Stop reading, and end the `prefetch` thread; the dataset's state stays where it is."""
        self._pass.close(wait=True)

    def __del__(self) -> None:
        self._pass.close(wait=False)  # waiting here could wait for a lock that this thread holds
