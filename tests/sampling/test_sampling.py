"""Orders, shares and mixes: that they are what they say, and as random as they should be."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from tfrecord.iterator_utils import check_weights
from tfrecord.sampling import BlockOrder, Permutation, QueueOrder, Share, StoredOrder, shuffled_order
from tfrecord.sampling.mixing import ENDLESS, MixOrder

# Beyond the sizes of the sorted table, so that the network is what is tested.
LARGE = 20_000
KNOWN_SMALL = [1, 5, 9, 8, 6, 2, 4, 0, 7, 3]
KNOWN_LARGE = [4594248924, 5577794038, 4630388416, 5038021180, 6734213805]


def chi_square(counts: np.ndarray, expected: float) -> float:
    """Distance from uniform in standard deviations (normal approximation of chi square)."""
    freedom = counts.size - 1
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - freedom) / np.sqrt(2 * freedom)


class TestPermutation:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 1000, 16_384, 16_385, LARGE, 1 << 15, (1 << 15) + 1])
    def test_is_a_permutation(self, count: int) -> None:
        order = Permutation(count, seed=3, epoch=1)[:]
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(count))

    def test_known_values(self) -> None:
        """The order of (seed, epoch) is a promise: states saved by one release are read by the next."""
        assert Permutation(10, seed=0, epoch=0)[:].tolist() == KNOWN_SMALL
        assert Permutation(10**10, seed=1, epoch=2)[:5].tolist() == KNOWN_LARGE

    def test_seeds_and_epochs_differ(self) -> None:
        orders = [Permutation(LARGE, seed=s, epoch=e)[:] for s in (0, 1, -1, 2**70) for e in (0, 1, 2)]
        for a, b in itertools.combinations(orders, 2):
            assert (a == b).mean() < 0.001

    @pytest.mark.parametrize("count", [10, LARGE])
    def test_is_a_sequence(self, count: int) -> None:
        order = Permutation(count, seed=5)
        values = list(order)
        assert len(order) == len(values) == count
        assert [order[i] for i in (0, 1, -1, count - 1)] == [values[i] for i in (0, 1, -1, count - 1)]
        assert order[[3, -1]].tolist() == [values[3], values[-1]]
        assert order[2:9:3].tolist() == values[2:9:3]
        assert order[np.array([], np.int64)].tolist() == []
        assert list(reversed(order[:5].tolist())) == values[:5][::-1]
        assert list(itertools.islice(reversed(order), 5)) == values[:-6:-1]
        assert [order.index(values[i]) for i in (0, 7, count - 1)] == [0, 7, count - 1]
        assert 0 in order and count not in order and -1 not in order and "0" not in order
        assert order.count(3) == 1 and order.count(count) == 0
        assert pickle.loads(pickle.dumps(order))[:].tolist() == values
        assert np.array_equal(order.places(order[:]), np.arange(count))

    def test_refuses_what_is_outside(self) -> None:
        order = Permutation(10)
        for place in (10, -11):
            with pytest.raises(IndexError, match=f"place {place} is out of range: there are 10"):
                order[place]
            with pytest.raises(IndexError, match="there are 10"):
                order[[0, place]]
        with pytest.raises(ValueError, match="10 is not in the permutation"):
            order.index(10)
        with pytest.raises(TypeError, match="float"):
            order[np.array([1.5])]
        with pytest.raises(ValueError, match="got -1"):
            Permutation(-1)
        with pytest.raises(TypeError):
            Permutation(1.5)  # type: ignore[arg-type]

    def test_ten_thousand_million_in_constant_memory(self) -> None:
        count = 10**10
        tracemalloc.start()
        order = Permutation(count, seed=4)
        places = np.random.default_rng(0).integers(0, count, 10_000)
        positions = order.positions(places)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 << 20
        assert len(order) == count
        assert 0 <= positions.min() and positions.max() < count
        assert len(np.unique(positions)) == len(np.unique(places))
        assert np.array_equal(order.places(positions), places)
        assert order[count - 1] == order[-1]
        # Neighbours go far apart, and everywhere.
        spread = np.bincount(order[:100_000] * 100 // count, minlength=100)
        assert abs(chi_square(spread, 1000)) < 5

    @pytest.mark.parametrize("count", [2, 3, 4, 5])
    def test_all_orders_of_few_are_equally_likely(self, count: int) -> None:
        every = list(itertools.permutations(range(count)))
        runs = 60 * len(every)
        seen = Counter(tuple(Permutation(count, seed=seed)[:].tolist()) for seed in range(runs))
        assert set(seen) == set(every)
        assert abs(chi_square(np.array([seen[order] for order in every]), 60)) < 5

    @pytest.mark.parametrize("count", [100, LARGE, 40_000])
    def test_any_record_may_come_at_any_place(self, count: int) -> None:
        """Where a record comes, over many seeds: uniform, and independent of its neighbour's place."""
        runs, cells = 2000, 10
        places = np.array(
            [Permutation(count, seed=s).places(np.array([0, 1, count // 2])) for s in range(runs)]
        )
        cell = places * cells // count
        for column in range(3):
            assert abs(chi_square(np.bincount(cell[:, column], minlength=cells), runs / cells)) < 5
        pairs = np.bincount(cell[:, 0] * cells + cell[:, 1], minlength=cells * cells)
        assert abs(chi_square(pairs, runs / cells**2)) < 5

    @pytest.mark.parametrize("count", [LARGE, 1 << 16, 100_003])
    def test_one_order_shows_no_pattern(self, count: int) -> None:
        order = Permutation(count, seed=1)[:].astype(np.float64)
        steps = np.diff(order)
        runs_up = int((steps > 0).sum())
        assert abs(runs_up - (count - 1) / 2) < 5 * np.sqrt(count / 12)
        for lag in (1, 2, 3, 16, 128):
            assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(count)
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 5 / np.sqrt(count)
        assert (order == np.arange(count)).sum() < 12  # fixed points: about one
        low_bits = np.bincount((order.astype(np.int64) % 16) * 16 + np.arange(count) % 16, minlength=256)
        assert abs(chi_square(low_bits, count / 256)) < 5

    def test_other_processes_agree(self) -> None:
        code = "from tfrecord.sampling import Permutation as P; print(P(30000, seed=7, epoch=2)[:3].tolist())"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == str(Permutation(30000, seed=7, epoch=2)[:3].tolist())


class TestBlockOrder:
    def test_keeps_to_blocks(self) -> None:
        order = BlockOrder(100_000, seed=1, block=100, group=4).positions(np.arange(100_000))
        assert np.array_equal(np.sort(order), np.arange(100_000))
        for start in range(0, 100_000 - 400, 400):  # a group's places come from at most 4 (or 5) blocks
            assert len(np.unique(order[start : start + 400] // 100)) <= 5
        assert not np.array_equal(order[:400], np.sort(order[:400]))

    def test_what_is_smaller_than_a_block_is_shuffled(self) -> None:
        orders = [BlockOrder(20, seed=0, epoch=e).positions(np.arange(20)).tolist() for e in range(3)]
        assert len({tuple(order) for order in orders}) == 3
        assert all(sorted(order) == list(range(20)) != order for order in orders)


class TestQueueOrder:
    def test_is_local_and_mixed(self) -> None:
        order = QueueOrder(100_000, 500, seed=1).positions(np.arange(100_000))
        assert np.array_equal(np.sort(order), np.arange(100_000))
        moved = order - np.arange(100_000)
        assert 200 < np.abs(moved).mean() < 400
        assert np.abs(moved).max() <= 3 * 500

    def test_a_queue_of_all_is_a_full_shuffle(self) -> None:
        first = [int(QueueOrder(10, 10, seed=s).positions(np.array([0]))[0]) for s in range(2000)]
        assert abs(chi_square(np.bincount(first, minlength=10), 200)) < 5

    def test_a_queue_of_one_hardly_moves(self) -> None:
        order = QueueOrder(1000, 1).positions(np.arange(1000))
        assert np.abs(order - np.arange(1000)).max() <= 3

    def test_refuses_no_size(self) -> None:
        with pytest.raises(ValueError, match="queue size is 0"):
            QueueOrder(10, 0)


def test_shuffled_order_picks() -> None:
    kinds = [
        shuffled_order(9, *options, seed=0, epoch=0)
        for options in [(False, None), (True, 5), ("block", None)]
    ]
    assert [type(kind) for kind in kinds] == [StoredOrder, Permutation, BlockOrder]
    assert isinstance(shuffled_order(9, False, 5, seed=0, epoch=0), QueueOrder)
    assert kinds[0].positions(np.array([3, 1])).tolist() == [3, 1]


class TestShare:
    def test_place_p_goes_to_rank_p_mod_r_then_worker(self) -> None:
        shares = [
            Share(10, rank, 2, worker, 2).places(0, 99).tolist() for rank in (0, 1) for worker in (0, 1)
        ]
        assert shares == [[0, 4, 8], [2, 6], [1, 5, 9], [3, 7]]

    def test_drop_and_pad_are_equal(self) -> None:
        dropped = [Share(10, rank, 4, split="drop").places(0, 99).tolist() for rank in range(4)]
        assert dropped == [[0, 4], [1, 5], [2, 6], [3, 7]]
        padded = [Share(10, rank, 4, split="pad") for rank in range(4)]
        assert [len(share) for share in padded] == [3, 3, 3, 3]
        places, padding = padded[3].wrap(padded[3].places(0, 99))
        assert places.tolist() == [3, 7, 1] and padding.tolist() == [False, False, True]

    def test_pads_more_ranks_than_places(self) -> None:
        share = Share(2, 6, 7, split="pad")
        assert share.wrap(share.places(0, 9))[0].tolist() == [0] and len(Share(0, 6, 7, split="pad")) == 0

    def test_resumes(self) -> None:
        share = Share(10, 1, 2)
        assert [share.resume_at(taken) for taken in range(6)] == [0, 2, 4, 6, 8, 10]
        assert Share(9, 1, 2, split="drop").resume_at(4) == Share(9, 1, 2, split="drop").end == 8
        rest = [Share(10, rank, 3, start=4).places(0, 9).tolist() for rank in range(3)]
        assert rest == [[6, 9], [4, 7], [5, 8]]


class TestMix:
    def test_infinite_draws_by_the_weights(self) -> None:
        mix = MixOrder((5, 0, 7, 9), (3, 9, 1, 0), infinite=True, seed=2)
        assert len(mix) == ENDLESS
        sources, numbers = mix.draws(np.arange(80_000))
        counts = np.bincount(sources, minlength=4)
        assert counts[1] == counts[3] == 0
        assert abs(counts[0] - 60_000) < 5 * np.sqrt(80_000 * 0.25 * 0.75)
        for source in (0, 2):
            assert np.array_equal(numbers[sources == source], np.arange(counts[source]))

    def test_finite_gives_each_once_and_thins_out(self) -> None:
        counts = (3000, 1000, 0, 500)
        sources, numbers = MixOrder(counts, (3, 1, 5, 0.5), infinite=False, seed=1).draws(np.arange(4500))
        for source, count in enumerate(counts):
            assert np.array_equal(numbers[sources == source], np.arange(count))
        # Weights in proportion to the sizes: even to the end.
        for part in np.array_split(sources, 5):
            assert abs((part == 0).mean() - 2 / 3) < 0.1
            assert abs((part == 3).mean() - 1 / 9) < 0.08

    def test_finite_follows_weight_times_share_remaining(self) -> None:
        """The first draw of sources weighted 3:1, and every draw against what is left at that time."""
        firsts = [
            int(MixOrder((100, 100), (3, 1), infinite=False, seed=s).draws(np.array([0]))[0][0])
            for s in range(2000)
        ]
        assert abs(np.mean(firsts) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 2000)
        later = []
        for seed in range(300):
            sources, numbers = MixOrder((40, 40), (1, 1), infinite=False, seed=seed).draws(np.arange(80))
            left = 40 - np.array([np.cumsum(sources == s) - (sources == s) for s in (0, 1)])
            chance = left[1] / left.sum(axis=0)
            later.append((sources - chance).sum())
        assert abs(np.mean(later)) < 5 * np.std(later) / np.sqrt(len(later))

    def test_any_place_at_any_time(self) -> None:
        for infinite in (True, False):
            mix = MixOrder((20_000, 9000), (1, 2), infinite=infinite)
            whole = mix.draws(np.arange(29_000))
            places = np.random.default_rng(1).permutation(29_000)
            for found, expected in zip(mix.draws(places), whole, strict=True):
                assert np.array_equal(found, expected[places])
            assert [int(part[0]) for part in mix.draws(np.array([11]))] == [int(part[11]) for part in whole]

    def test_a_mix_of_nothing_is_empty(self) -> None:
        assert len(MixOrder((0, 0), (1, 1), infinite=True)) == len(MixOrder((), (), infinite=False)) == 0

    @pytest.mark.parametrize(
        "weights", [[-1.0, 1.0], [float("nan"), 1], [float("inf"), 1], [0, 0], ["x", 1], []]
    )
    def test_refuses_weights(self, weights: list[float]) -> None:
        with pytest.raises(ValueError, match="weight"):
            check_weights(weights, range(len(weights)))


def test_neutral_core_imports_no_torch() -> None:
    code = "import sys, tfrecord.sampling, tfrecord.sampling.mixing; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 2, "world_size": 2}, "got rank 2 of 2"),
        ({"rank": -1}, "got rank -1 of 1"),
        ({"worker": 3, "num_workers": 3}, "got worker 3 of 3"),
        ({"split": "even"}, "'exact', 'drop', 'pad'"),
        ({"start": -1}, "at least 0, got 5 and -1"),
    ],
)
def test_shares_that_nobody_has(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Share(5, **options)


def test_blocks_and_mixes_that_cannot_be() -> None:
    for options in ({"block": 0}, {"group": 0}):
        with pytest.raises(ValueError, match="block and group must be at least 1"):
            BlockOrder(5, **options)
    for counts, weights, message in (
        ([1, 2], [1], "2 sources but 1 weights"),
        ([1], [-1], "source 0.*not negative"),
        ([1], [float("nan")], "source 0.*finite"),
        ([-1], [1], "count must be from 0"),
    ):
        with pytest.raises(ValueError, match=message):
            MixOrder(counts, weights, infinite=True)
