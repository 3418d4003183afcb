"""`shuffle` beside `shuffle_queue_size`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from simulation import ids

from tfrecord.torch import TFRecordDataset


@pytest.mark.parametrize("shuffle", [True, "block"])
@pytest.mark.parametrize("kind", [{}, {"gzip": True, "index": True}])
def test_shuffle_wins_with_a_warning(shuffle: Any, kind: dict[str, Any], make: Any) -> None:
    paths = make([40], **kind)
    with pytest.warns(UserWarning, match=f"shuffle={shuffle!r} needs no queue here.* is not used") as caught:
        both = TFRecordDataset(paths, shuffle=shuffle, shuffle_queue_size=1)
    assert caught[0].filename == __file__
    assert ids(both) == ids(TFRecordDataset(paths, shuffle=shuffle))


def test_a_size_counts_where_the_shuffle_is_a_queue(make: Any) -> None:
    paths = make([40], gzip=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = TFRecordDataset(paths, shuffle=True, shuffle_queue_size=1)
        assert ids(dataset) == list(range(40))  # a queue of one record keeps the order


@pytest.mark.parametrize("options", [{"shuffle": False}, {"shuffle": True, "shuffle_queue_size": 0}])
def test_one_of_the_two_is_silent(options: dict[str, Any], make: Any) -> None:
    assert sorted(ids(TFRecordDataset(make([9]), **{"shuffle_queue_size": 4} | options))) == list(range(9))
