"""Large arrays lie in memory that is used again: never while somebody still has an array of it."""

from __future__ import annotations

import gc
import os
import random
import threading

import numpy as np
import pytest

from tfrecord._kernels.engine import engine
from tfrecord._writing.encoder import encode_example
from tfrecord.features import FixedLenFeature
from tfrecord.parse import parse_example

SPEC = {"a": FixedLenFeature((), "int64"), "b": "float", "v": FixedLenFeature((64,), "int64")}


def rows_of(start: int, count: int) -> list[bytes]:
    return [
        encode_example({"a": (n, "int"), "b": ([n, 0.5], "float"), "v": ([n] * 64, "int")})
        for n in range(start, start + count)
    ]


def test_arrays_that_are_held_keep_their_values() -> None:
    draw = random.Random(7)
    sizes = (3000, 4500, 6000) if engine == "native" else (50, 60, 70)
    parts = [
        (start, size, rows_of(start, size)) for start, size in zip((0, 10**4, 10**6), sizes, strict=True)
    ]
    held = []
    for turn in range(60):
        start, size, rows = draw.choice(parts)
        batch = parse_example(rows, SPEC, num_threads=1 + turn % 2)
        held.append((start, size, batch))
        if len(held) > 4:
            held.pop(draw.randrange(len(held)))
        for first, count, kept in held:
            expected = np.arange(first, first + count)
            assert (kept["a"] == expected).all() and (kept["v"] == expected[:, None]).all()
            assert (kept["b"].values[::2] == expected.astype(np.float32)).all()
            assert kept["a"].flags.writeable and kept["v"].flags.c_contiguous


def test_a_part_of_an_array_keeps_its_memory() -> None:
    rows = rows_of(0, 5000 if engine == "native" else 50)
    part = parse_example(rows, SPEC)["v"][10:20]
    gc.collect()
    for _ in range(3):
        parse_example(rows[::-1], SPEC)
    assert (part == np.arange(10, 20)[:, None]).all()


def test_threads_that_take_and_give_blocks() -> None:
    parts = [rows_of(start, 2000 if engine == "native" else 20) for start in (0, 5000, 9000)]
    wrong = []

    def run(rows: list[bytes], start: int) -> None:
        for _ in range(20):
            found = parse_example(rows, SPEC, num_threads=2)["v"]
            if not (found[:, 3] == np.arange(start, start + len(rows))).all():
                wrong.append(start)

    threads = [
        threading.Thread(target=run, args=(rows, start))
        for rows, start in zip(parts, (0, 5000, 9000), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_decodes_on_threads_of_its_own() -> None:
    rows = rows_of(0, 4000 if engine == "native" else 20)
    expected = parse_example(rows, SPEC, num_threads=2)
    child = os.fork()
    if not child:
        os._exit(0 if parse_example(rows, SPEC, num_threads=3).equals(expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
