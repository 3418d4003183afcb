"""Batches that are decoded on several threads, ahead of what is taken, are those of one thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import indexer
from indexer.errors import CorruptRecordError, DecodeError
from tfrecord._reading import ahead
from tfrecord._reading.ahead import in_turn
from tfrecord._writing.encoder import encode_example
from tfrecord.reader import TFRecordReader


@pytest.fixture(autouse=True)
def small_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST_BYTES", 1)


def example(number: int) -> bytes:
    return encode_example({"a": (number, "int"), "b": ([float(number)] * (number % 4), "float")})


def calls(count: int, work: Callable[[int], int]) -> Iterator[tuple[int, Callable[[], int]]]:
    return ((10, lambda number=number: work(number)) for number in range(count))  # type: ignore[misc]


def test_results_come_in_order_from_several_threads() -> None:
    seen = set()

    def work(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        seen.add(threading.current_thread().name)
        return number

    assert list(in_turn(calls(60, work), 4)) == list(range(60))
    assert len(seen) > 1


def test_small_work_stays_in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LEAST_BYTES", 11)
    names = list(in_turn(calls(9, lambda number: threading.get_ident()), 3))
    assert set(names) == {threading.get_ident()}


def test_errors_come_in_their_place() -> None:
    def work(number: int) -> int:
        if number == 7:
            raise KeyError(number)
        return number

    found = []
    with pytest.raises(KeyError, match="7"):
        for number in in_turn(calls(20, work), 3):
            found.append(number)
    assert found == list(range(7))


def test_what_the_source_raises_comes_behind_the_results_before_it() -> None:
    def source() -> Iterator[tuple[int, Callable[[], int]]]:
        yield from calls(5, lambda number: number)
        raise OSError("gone")

    found = []
    with pytest.raises(OSError, match="gone"):
        for number in in_turn(source(), 3):
            found.append(number)
    assert found == list(range(5))


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3}, {"drop_last": True}], ids=str)
def test_batches_are_those_of_one_thread(options: Any, make_file: Any) -> None:
    path = make_file([example(number) for number in range(103)])
    indexer.build_index(path)
    expected = [batch.to_list() for batch in TFRecordReader(path).batches(10, **options)]
    assert [
        batch.to_list() for batch in TFRecordReader(path, num_threads=3).batches(10, **options)
    ] == expected
    assert [
        batch.to_list() for batch in TFRecordReader(path).batches(10, num_threads=2, **options)
    ] == expected


def test_good_records_come_before_damage(make_file: Any) -> None:
    path = make_file([example(number) if number != 57 else b"\xff" for number in range(100)])
    found: list[int] = []
    with pytest.raises(DecodeError) as caught:
        for batch in TFRecordReader(path, record_type="example").batches(10, num_threads=3):
            found += batch["a"].values.tolist()
    assert found == list(range(57)) and caught.value.record == 57


def test_a_damaged_frame(make_file: Any) -> None:
    path = Path(make_file([example(number) for number in range(100)]))
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)
    results = []
    for threads in (1, 3):
        found: list[int] = []
        with pytest.raises(CorruptRecordError) as caught:
            for batch in TFRecordReader(path, record_type="example").batches(10, num_threads=threads):
                found += batch["a"].values.tolist()
        results.append((found, caught.value.record))
    assert results[0] == results[1] and len(results[0][0]) > 20


def test_a_pass_that_is_dropped(make_file: Any) -> None:
    path = make_file([example(number) for number in range(100)])
    reader = TFRecordReader(path, num_threads=4)
    for _ in range(20):
        batches = reader.batches(5)
        assert next(batches)["a"].values.tolist() == list(range(5))
        batches.close()  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_pass_goes_on_in_a_forked_child(make_file: Any) -> None:
    path = make_file([example(number) for number in range(100)])
    batches = TFRecordReader(path, num_threads=3).batches(5)
    next(batches), next(batches)
    child = os.fork()
    if not child:
        rest = [number for batch in batches for number in batch["a"].values.tolist()]
        again = sum(batch.num_rows for batch in TFRecordReader(path, num_threads=3).batches(5))
        os._exit(0 if rest == list(range(10, 100)) and again == 100 else 1)
    assert os.waitpid(child, 0)[1] == 0
