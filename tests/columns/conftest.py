"""Columns that the tests of this folder share."""

from __future__ import annotations

import pytest

from tfrecord.columns import BytesColumn, Ragged


@pytest.fixture
def scattered() -> BytesColumn:
    """Five words in two buffers, out of order, with bytes around them that belong to nobody."""
    first, second = b"..a..tail\0\0..", b"b\n--" + b"x" * 100
    return BytesColumn((first, second), [2, 7, 5, 4, 0], [1, 0, 6, 100, 2], [0, 0, 0, 1, 1])


@pytest.fixture
def nested() -> Ragged:
    return Ragged(Ragged([1, 2, 3, 4, 5], [0, 2, 2, 5]), [0, 1, 1, 3])
