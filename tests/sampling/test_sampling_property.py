"""Laws of orders and shares, for any counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecord.sampling import SPLITS, BlockOrder, Permutation, QueueOrder, Share
from tfrecord.sampling.mixing import MixOrder

pytestmark = pytest.mark.one_run

counts = st.one_of(st.integers(0, 60), st.integers(16_000, 17_000))
keys = st.integers(-(2**80), 2**80)


@settings(max_examples=30, deadline=None)
@given(counts, keys, st.integers(0, 2**40), st.data())
def test_every_order_is_a_permutation_that_can_be_entered_anywhere(
    count: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    block = data.draw(st.integers(1, 50)) if count < 100 else 200
    group = data.draw(st.integers(1, 9))
    orders = [
        Permutation(count, seed=seed, epoch=epoch),
        BlockOrder(count, seed=seed, epoch=epoch, block=block, group=group),
        QueueOrder(count, data.draw(st.integers(1, 100)), seed=seed, epoch=epoch),
    ]
    places = np.array(
        data.draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=20)) if count else [], np.int64
    )
    for order in orders:
        whole = order.positions(np.arange(count))
        assert np.array_equal(np.sort(whole), np.arange(count))
        assert np.array_equal(order.positions(places), whole[places])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 2**62), keys, st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_permutations_of_any_size_are_bijections(count: int, seed: int, raw: list[int]) -> None:
    order = Permutation(count, seed=seed)
    places = np.array([value % count for value in raw], np.int64)
    positions = order.positions(places)
    assert 0 <= positions.min() and int(positions.max()) < count
    assert np.array_equal(order.places(positions), places)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 60),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(SPLITS),
    st.integers(0, 70),
    st.integers(0, 9),
)
def test_shares_deal_every_place_once(
    total: int, world_size: int, num_workers: int, split: str, start: int, taken: int
) -> None:
    """Over ranks and workers, from any start, and again from where each rank has taken some."""

    def deal(start: int, world_size: int, num_workers: int) -> list[list[int]]:
        ranks = []
        for rank in range(world_size):
            shares = [
                Share(total, rank, world_size, w, num_workers, split, start) for w in range(num_workers)
            ]
            lists = [share.places(0, len(share)).tolist() for share in shares]
            # A loader asks the workers in turn.
            turns = max(map(len, lists))
            merged = [one[i] for i in range(turns) for one in lists if i < len(one)]
            assert merged == sorted(merged) and len(merged) == shares[0].rank_length
            assert all(place % world_size == rank for place in merged)
            ranks.append(merged)
        return ranks

    start = min(start, total)
    ranks = deal(start, world_size, num_workers)
    dealt = sorted(place for rank in ranks for place in rank)
    if split == "exact":
        assert dealt == list(range(start, total))
    else:
        assert len({len(rank) for rank in ranks}) == 1
        assert dealt == list(range(start, start + len(dealt)))
        short = total - start - len(dealt)
        assert 0 <= short < world_size if split == "drop" else -world_size < short <= 0
    share = Share(total, 0, world_size, split=split, start=start)
    at = share.resume_at(min(taken, share.rank_length))
    again = sorted(place for rank in deal(at, world_size, 1) for place in rank)
    before = sorted(place for rank in ranks for place in rank[:taken])
    if all(len(rank) >= taken for rank in ranks):
        assert before + again == dealt
    wrapped, padding = share.wrap(np.array(dealt, np.int64))
    assert ((wrapped < max(total, 1)) & (padding == (np.array(dealt) >= total))).all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.floats(0, 1e6)), min_size=1, max_size=5),
    keys,
    st.booleans(),
    st.data(),
)
def test_mixes_take_sources_in_their_order(
    sources: list[tuple[int, float]], seed: int, infinite: bool, data: st.DataObject
) -> None:
    sizes, weights = zip(*sources, strict=True)
    if not any(weights):
        return
    mix = MixOrder(sizes, weights, infinite=infinite, seed=seed)
    length = min(len(mix), 500)
    drawn, numbers = mix.draws(np.arange(length))
    for source in range(len(sizes)):
        own = numbers[drawn == source]
        assert np.array_equal(own, np.arange(len(own)))
        if not sizes[source] or not weights[source]:
            assert not len(own)
    if not infinite and length == len(mix):
        expected = [size if weight else 0 for size, weight in sources]
        assert np.bincount(drawn, minlength=len(sizes)).tolist() == expected
    if length:
        place = data.draw(st.integers(0, length - 1))
        fresh = MixOrder(sizes, weights, infinite=infinite, seed=seed).draws(np.array([place]))
        assert (int(fresh[0][0]), int(fresh[1][0])) == (int(drawn[place]), int(numbers[place]))
