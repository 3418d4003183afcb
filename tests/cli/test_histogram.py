"""Histograms: exact, whatever the order and the batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord._cli.histogram import Histogram, blocks

INTS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)
FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


def histogram_of(*parts: np.ndarray) -> Histogram:
    made = Histogram()
    for part in parts:
        made.add(part)
    return made


@given(
    INTS.map(lambda v: np.array(v, np.int64)) | FLOATS.map(lambda v: np.array(v, np.float32)),
    st.integers(0, 40),
)
def test_every_number_is_in_its_bar(values: np.ndarray, cut: int) -> None:
    found = histogram_of(values)
    bars = found.bars()
    assert 1 <= len(bars) <= 32 and bars[0].count and bars[-1].count
    for bar in bars:
        assert bar.count == sum(bar.low <= value < bar.high for value in values.tolist())
    assert all(a.high == b.low for a, b in zip(bars, bars[1:], strict=False))
    assert histogram_of(values[cut:], values[:cut]).bars() == bars
    other = histogram_of(values[:cut])
    other.merge(histogram_of(values[cut:]))
    assert other.bars() == bars


def test_small_numbers_have_a_bar_each() -> None:
    bars = histogram_of(np.array([3, 1, 3, 9])).bars()
    assert [(bar.low, bar.count) for bar in bars if bar.count] == [(1, 1), (3, 2), (9, 1)]
    assert Histogram().bars() == [] and histogram_of(np.zeros(0, np.int64)).bars() == []


@pytest.mark.parametrize(
    ("counts", "text"),
    [([], ""), ([5], ""), ([1, 0, 8], "▁ █"), ([1] * 32, "█" * 16), ([0, 10**9, 1], " █▁")],
)
def test_blocks(counts: list[int], text: str) -> None:
    assert blocks(counts) == text
