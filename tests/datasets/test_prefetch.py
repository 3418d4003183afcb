"""Batches prepared in a background thread."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from typing import Any

import numpy as np
import pytest
from simulation import SimulatedLoader, ids

import indexer
from indexer.errors import ChecksumError
from tfrecord import FixedLenFeature
from tfrecord.torch import MultiTFRecordDataset, TFRecordDataset
from tfrecord.torch._prefetch import Prefetched

FEATURES = {"id": FixedLenFeature((), "int")}


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "tfrecord-prefetch"]


def end_of(running: list[threading.Thread]) -> None:
    for thread in running:
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_same_batches_and_states(make: Any, depth: int) -> None:
    paths = make([23])
    plain = TFRecordDataset(paths, features=FEATURES, batch_size=4, shuffle=True)
    ahead = TFRecordDataset(paths, features=FEATURES, batch_size=4, shuffle=True, prefetch=depth)
    for _ in range(2):
        one, other = iter(plain), iter(ahead)
        for batch in one:
            assert batch["id"].tolist() == next(other)["id"].tolist()
            assert plain.state_dict() == ahead.state_dict()  # of what was delivered, not of what was prepared
        assert next(other, None) is None
        assert next(other, None) is None
    end_of(threads())


def test_resuming_and_mixing(make: Any) -> None:
    def mix(prefetch: int) -> MultiTFRecordDataset:
        parts = [make([9]), make([5], first=100)]
        return MultiTFRecordDataset.from_datasets(
            parts, [1, 1], infinite=False, features=FEATURES, batch_size=3, prefetch=prefetch
        )

    whole = [ids([batch]) for batch in mix(0)]
    dataset = mix(2)
    iterator = iter(dataset)
    assert [ids([next(iterator)]) for _ in range(2)] == whole[:2]
    resumed = mix(2)
    resumed.load_state_dict(dataset.state_dict())
    assert [ids([batch]) for batch in resumed] == whole[2:]


def test_an_error_comes_where_its_batch_would_have_come(make: Any) -> None:
    paths = make([12])
    index = indexer.build_index(paths[0])
    with open(paths[0], "r+b") as file:
        file.seek(int(index.offsets[7]) + 14)
        file.write(b"\xff")
    iterator = iter(TFRecordDataset(paths, features=FEATURES, batch_size=3, prefetch=4))
    assert [ids([next(iterator)]) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ChecksumError) as caught:
        next(iterator)
    assert caught.value.record == 7
    assert next(iterator, None) is None
    end_of(threads())


def test_close_and_a_dropped_iterator_end_the_thread(make: Any) -> None:
    dataset = TFRecordDataset(make([100]), features=FEATURES, batch_size=2, prefetch=3)
    assert not threads()
    closed = iter(dataset)
    next(closed)
    running = threads()
    assert len(running) == 1
    closed.close()  # type: ignore[attr-defined]
    assert not running[0].is_alive() and next(closed, None) is None
    for _ in dataset:
        running = threads()
        assert len(running) == 1
        break
    gc.collect()
    end_of(running)
    assert dataset.state_dict()["position"] == 1  # what was taken is known all the same


def test_no_more_is_prepared_than_asked(make: Any) -> None:
    made: list[int] = []

    def noted(batch: dict[str, Any]) -> dict[str, Any]:
        made.append(int(batch["id"][0]))
        return batch

    dataset = TFRecordDataset(make([40]), features=FEATURES, batch_size=1, prefetch=2, transform=noted)
    iterator = iter(dataset)
    for taken in range(1, 5):
        next(iterator)
        for _ in range(200):
            if len(made) == taken + 2:
                break
            threading.Event().wait(0.01)
        assert len(made) == taken + 2
    iterator.close()  # type: ignore[attr-defined]


def test_not_within_workers(make: Any) -> None:
    dataset = TFRecordDataset(make([20]), features=FEATURES, batch_size=2, prefetch=2)
    iterators = SimulatedLoader(dataset, 2).iterators()
    assert [ids([next(iterator)]) for iterator in iterators] == [[0, 1], [2, 3]]
    assert not threads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_after_a_fork(make: Any) -> None:
    """A pass begun in the child has a thread of its own; one begun before says why it does not go on."""
    dataset = TFRecordDataset(make([20]), features=FEATURES, batch_size=2, prefetch=2)
    begun = iter(dataset)
    next(begun)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads, which is the case here
        child = os.fork()
    if not child:
        code = 1
        try:
            dataset.set_epoch(0)
            if ids(dataset) == list(range(20)):
                next(begun)
        except RuntimeError as error:
            code = 0 if "before the process forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ids(begun) == list(range(2, 20))


def test_warnings_point_to_the_caller(make: Any) -> None:
    """Those of the thread too."""
    paths = make([5], gzip=True)
    dataset = TFRecordDataset(paths, features=FEATURES, batch_size=2, prefetch=2, shuffle=True)
    with pytest.warns(UserWarning, match="shuffled through a queue") as caught:
        list(dataset)
    assert {warning.filename for warning in caught} == {__file__}


def test_by_itself() -> None:
    assert list(Prefetched(iter(range(5)), 2)) == list(range(5))
    assert np.array_equal(list(Prefetched(iter(()), 1)), [])


@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_wrong_ones(make: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="prefetch must be an integer"):
        TFRecordDataset(make([1]), batch_size=1, prefetch=value)
