"""`num_threads`: what is no number of threads is an error everywhere, and none changes a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import indexer
from indexer.framing import check_frames, scan
from indexer.scanning import scan_index
from indexer.streams import iter_chunks
from tfrecord._kernels.engine import engine
from tfrecord.encode import encode_example
from tfrecord.parse import parse_example, parse_sequence_example
from tfrecord.reader import TFRecordReader, build_index

CALLS: dict[str, Callable[[Any, Any], object]] = {
    "parse_example": lambda path, threads: parse_example([b""], num_threads=threads),
    "parse_sequence_example": lambda path, threads: parse_sequence_example([b""], num_threads=threads),
    "read": lambda path, threads: TFRecordReader(path).read([0], num_threads=threads),
    "batches": lambda path, threads: list(TFRecordReader(path).batches(1, num_threads=threads)),
    "TFRecordReader": lambda path, threads: list(TFRecordReader(path, num_threads=threads).batches(2)),
    "tfrecord.build_index": lambda path, threads: build_index(path, num_threads=threads),
    "indexer.build_index": lambda path, threads: indexer.build_index(path, num_threads=threads),
    "build_indexes": lambda path, threads: indexer.build_indexes(path, jobs=threads),
    "check_index": lambda path, threads: indexer.check_index(path, num_threads=threads),
    "scan_index": lambda path, threads: scan_index(path, num_threads=threads),
    "iter_chunks": lambda path, threads: [len(c.offsets) for c in iter_chunks(path, num_threads=threads)],
    "scan": lambda path, threads: scan(b"", num_threads=threads),
    "check_frames": lambda path, threads: check_frames(
        b"", np.zeros(0, np.uint64), np.zeros(0, np.uint64), num_threads=threads
    ),
}


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, None, "2"], ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_number_of_threads(name: str, threads: Any, make_file: Any) -> None:
    path = make_file([encode_example({"x": (1, "int")})])
    indexer.build_index(path)
    if threads is None and name in ("read", "batches"):
        assert CALLS[name](path, None)  # as many as the reader has
        return
    with pytest.raises(ValueError, match=r"(num_threads|jobs) is .*; it must be an integer of at least 1"):
        CALLS[name](path, threads)


@pytest.mark.parametrize("name", CALLS)
def test_very_many_threads(name: str, make_file: Any) -> None:
    path = make_file([encode_example({"x": (1, "int")})] * 3)
    indexer.build_index(path)
    assert str(CALLS[name](path, np.int64(2**40))) == str(CALLS[name](path, 1))


@pytest.mark.skipif(engine != "native", reason="the reference holds one record at a time")
@pytest.mark.parametrize("damaged", [False, True])
def test_too_many_keys_are_too_many_on_any_number_of_threads(damaged: bool) -> None:
    rows = [encode_example({f"k{number}": (number, "int")}) for number in range(5000)]
    if damaged:
        rows[-1] = b"\xff"  # on one thread of several this is met first
    found = []
    for threads in (1, 2, 4):
        with pytest.raises(ValueError, match="too many different features") as caught:
            parse_example(rows, num_threads=threads)
        found.append(str(caught.value))
    assert len(set(found)) == 1


def test_many_keys_on_any_number_of_threads() -> None:
    rows = [encode_example({f"k{number % 500}": (number, "int")}) for number in range(600)]
    one, two = (parse_example(rows, num_threads=threads) for threads in (1, 2))
    assert list(one) == list(two) and sorted(one) == sorted(f"k{number}" for number in range(500))
    assert all(one[key].to_list() == two[key].to_list() for key in one)


def test_datasets_take_the_option(make_file: Any) -> None:
    pytest.importorskip("torch")
    from tfrecord.torch import TFRecordDataset

    path = make_file([encode_example({"x": (number, "int")}) for number in range(50)])
    one, two = (list(TFRecordDataset(path, batch_size=8, num_threads=threads)) for threads in (1, 2))
    assert str(one) == str(two)
    with pytest.raises(ValueError, match="num_threads is 0"):
        TFRecordDataset(path, num_threads=0)
