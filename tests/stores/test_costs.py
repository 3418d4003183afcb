"""How far apart ranges may lie to share a request: in a model of a network, adapting that never hurts."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import Any

import numpy as np
import pytest

from indexer.stores import StoreOptions
from indexer.stores.costs import RequestCosts
from indexer.stores.pieces import NEAR, join_ranges
from indexer.stores.ranges import Store


class Nowhere(Store):
    """A store whose costs a test gives."""

    def _get(self, *args: Any) -> Any: ...
    def _stat(self, *args: Any) -> Any: ...
    def _list(self, *args: Any) -> Any: ...
    def _folders(self, *args: Any) -> Any: ...
    def _put(self, *args: Any) -> Any: ...
    def delete(self, *args: Any) -> Any: ...
    def _upload(self, *args: Any) -> Any: ...


def simulate(
    sizes: list[int], latency: float, link: float, connection: float, slots: int
) -> tuple[float, list[tuple[int, float]]]:
    """Seconds for these requests, and (size, seconds) of each. All share a link, each has a slot and a
    connection; rates are in bytes per second."""
    waiting, now, served = deque(sizes), 0.0, 0.0
    starting: list[tuple[float, float, int]] = []  # (when its first byte comes, when it began, size)
    moving: list[tuple[float, float, int]] = []  # (what each connection has got when it ends, ...)
    done = []
    while waiting or starting or moving:
        while waiting and len(starting) + len(moving) < slots:
            heapq.heappush(starting, (now + latency, now, waiting.popleft()))
        rate = min(connection, link / max(len(moving), 1))
        ends = now + max(moving[0][0] - served, 0) / rate if moving else np.inf
        begins = starting[0][0] if starting else np.inf
        served += (min(ends, begins) - now) * rate if moving else 0
        now = min(ends, begins)
        if ends <= begins:
            _, began, size = heapq.heappop(moving)
            done.append((size, now - began))
        else:
            _, began, size = heapq.heappop(starting)
            heapq.heappush(moving, (served + size, began, size))
    return now, done


NETWORKS = list(itertools.product((0.0005, 0.015, 0.06), (2e7, 1.25e8, 1.25e9), (3e7, 2e8)))


@pytest.mark.parametrize("distance", [50_000, 300_000])
@pytest.mark.parametrize("size", [600, 20_000, 200_000])
@pytest.mark.parametrize("count", [64, 512])
def test_a_gap_that_adapts_does_not_hurt(count: int, size: int, distance: int) -> None:
    for network in NETWORKS:
        assert compared(network, count, size, distance) <= 1.03, network


def test_a_gap_that_adapts_reads_less_where_bytes_are_dear() -> None:
    assert compared((0.015, 2e7, 2e8), 256, 20_000, 300_000) < 0.9


def compared(network: tuple[float, float, float], count: int, size: int, distance: int) -> float:
    """How long eight batches of random records take, against those with a gap that stays as it is."""
    store = Nowhere("s3://bucket", StoreOptions())
    rng = np.random.default_rng(0)
    adapted = fixed = 0.0
    for _ in range(8):
        starts = np.unique(rng.integers(0, count * (size + distance), count)).astype(np.uint64)
        ends = starts + np.uint64(size)
        begins, stops, _ = join_ranges(starts, ends, store.gap)
        seconds, done = simulate((stops - begins).tolist(), *network, slots=64)
        adapted += seconds
        for request in done:
            store._costs.add(*request)
        begins, stops, _ = join_ranges(starts, ends, NEAR)
        fixed += simulate((stops - begins).tolist(), *network, slots=64)[0]
    return adapted / fixed


def test_unknown_costs_mean_128_kib() -> None:
    costs = RequestCosts()
    for _ in range(20):
        costs.add(600, 0.015)
    assert costs.gap == 128 << 10


@pytest.mark.parametrize(
    ("rate", "expected"), [(1e9, 128 << 10), (4e6, 60_000), (1e5, 16 << 10)], ids=["fast", "middling", "slow"]
)
def test_the_gap_is_what_a_request_costs(rate: float, expected: int) -> None:
    costs = RequestCosts()
    for size in (600, 400_000) * 20:
        costs.add(size, 0.015 + size / rate)
    assert costs.gap == pytest.approx(expected, rel=0.01)
