from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tfrecord.iterator_utils import cycle, sample_iterators, shuffle_iterator


def test_cycle_repeats() -> None:
    assert list(itertools.islice(cycle(lambda: iter([1, 2])), 5)) == [1, 2, 1, 2, 1]


def test_cycle_over_nothing_ends() -> None:
    assert list(cycle(lambda: iter([]))) == []


def test_cycle_ends_when_its_source_runs_dry() -> None:
    passes = iter([[1], [2], [], [3]])
    assert list(cycle(lambda: next(passes))) == [1, 2]


def test_cycle_wants_a_function() -> None:
    with pytest.raises(TypeError, match="needs a function.*list"):
        cycle([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ([1.0], "2 sources but 1 weights"),
        ([1.0, -0.5], "weight of 'source 1' is -0.5"),
        ([float("nan"), 1], "weight of 'source 0' is nan"),
        ([1, float("inf")], "weight of 'source 1' is inf"),
        ([0, 0.0], "at least one weight must be positive"),
        (["a", 1], "weight of 'source 0' is 'a'"),
        ([None, 1], "weight of 'source 0' is None"),
    ],
)
def test_bad_weights_fail_at_the_call(ratios: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_iterators([lambda: iter([1]), lambda: iter([2])], ratios)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("1", "a weight must be a number"),
        (b"1", "a weight must be a number"),
        (None, "a weight must be a number"),
    ]
    + [(sign * 10**400, "it must be finite and not negative") for sign in (1, -1)],
    ids=range(5),
)
def test_what_is_no_weight(weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"the weight of 'source 1' is .*; {message}"):
        sample_iterators([["a"], ["b"]], [1, weight])


def test_the_least_weight_still_gives_all_records() -> None:
    assert list(sample_iterators([[1, 2], [3]], [5e-324, 1e308], False)) == [3, 1, 2]


def test_a_queue_beyond_all_data() -> None:
    assert sorted(shuffle_iterator(range(3), 2**70)) == [0, 1, 2]


def test_no_sources_at_all() -> None:
    with pytest.raises(ValueError, match="at least one weight"):
        sample_iterators([], [])


@pytest.mark.parametrize("infinite", [True, False])
def test_zero_weight_is_never_opened(infinite: bool) -> None:
    def forbidden() -> Iterator[int]:
        raise AssertionError("opened")

    mixed = sample_iterators([forbidden, lambda: iter([1, 2])], [0, 1], infinite)
    assert list(itertools.islice(mixed, 2)) == [1, 2]


def test_sources_are_opened_late() -> None:
    opened = []

    def source() -> Iterator[int]:
        opened.append(1)
        return iter([1])

    mixed = sample_iterators([source], [1], infinite=False)
    assert opened == []
    assert list(mixed) == [1]
    assert opened == [1]


def test_empty_sources_are_left_out() -> None:
    mixed = sample_iterators([lambda: iter([]), lambda: iter([7])], [0.9, 0.1])
    assert list(itertools.islice(mixed, 50)) == [7] * 50


def test_infinite_mix_of_empty_sources_ends() -> None:
    assert list(sample_iterators([lambda: iter([]), lambda: iter(())], [0.5, 0.5])) == []


def test_finite_mix_gives_each_element_once_in_order() -> None:
    mixed = list(
        sample_iterators([lambda: iter(range(100)), lambda: iter(range(1000, 1010))], [1, 5], False, seed=3)
    )
    assert [x for x in mixed if x < 1000] == list(range(100))
    assert [x for x in mixed if x >= 1000] == list(range(1000, 1010))


def test_iterables_and_iterators_are_sources_too() -> None:
    assert list(itertools.islice(sample_iterators([[1]], [1]), 3)) == [1, 1, 1]
    assert list(sample_iterators([iter([1, 2])], [1])) == [1, 2]  # an iterator cannot be started again


def test_proportions_follow_the_weights() -> None:
    names = [lambda: iter("a"), lambda: iter("b"), lambda: iter("c")]
    drawn = Counter(itertools.islice(sample_iterators(names, [0.6, 0.3, 0.1], seed=0), 20000))
    assert drawn["a"] / 20000 == pytest.approx(0.6, abs=0.02)
    assert drawn["c"] / 20000 == pytest.approx(0.1, abs=0.02)


def test_huge_weights_do_not_overflow() -> None:
    drawn = Counter(itertools.islice(sample_iterators([["a"], ["b"]], [1.7e308, 1.7e308], seed=0), 1000))
    assert 400 < drawn["a"] < 600


def test_a_seed_repeats_and_the_global_generators_are_left_alone() -> None:
    random.seed(5)
    np.random.seed(5)
    python_state, numpy_state = random.getstate(), np.random.get_state()[1].tolist()

    def draw(seed: int | None) -> list[int]:
        mixed = sample_iterators(
            [lambda: iter(range(50)), lambda: iter(range(50, 100))], [1, 2], False, seed=seed
        )
        return list(shuffle_iterator(mixed, 10, seed=seed))

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert draw(None) != draw(None)
    assert random.getstate() == python_state
    assert np.random.get_state()[1].tolist() == numpy_state


@pytest.mark.parametrize("queue_size", [1, 2, 10, 100, 1000])
def test_shuffle_gives_each_element_once(queue_size: int) -> None:
    shuffled = list(shuffle_iterator(iter(range(100)), queue_size, seed=1))
    assert sorted(shuffled) == list(range(100))
    assert (shuffled == list(range(100))) == (queue_size == 1)


def test_shuffle_holds_no_more_than_its_queue() -> None:
    taken = itertools.count()
    first = next(shuffle_iterator(taken, 10, seed=0))
    assert 0 <= first < 10
    assert next(taken) == 11


@pytest.mark.parametrize("queue_size", [0, -1, 1.5, "3", None, True])
def test_bad_queue_size_fails_at_the_call(queue_size: int) -> None:
    with pytest.raises(ValueError, match="the queue size is"):
        shuffle_iterator(iter([1]), queue_size)


def test_shuffle_of_nothing() -> None:
    assert list(shuffle_iterator(iter([]), 5)) == []
