"""What passes ask stores for before they need it."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from range_server import RangeServer, serve

import tfrecord
from indexer.stores import open_store
from indexer.stores.ahead import Ahead
from tfrecord.sampling.orders import BlockOrder

pytest.importorskip("obstore")

pytestmark = pytest.mark.one_run

DATA = np.random.default_rng(3).bytes(1_000_000)
COUNTS = (1000, 1500, 700)
BLOCK = 64


def ranges(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.uint64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def asked(server: RangeServer) -> list[tuple[str, int, int]]:
    """(name, start, end) of each request for bytes of data."""
    return [(name, *wanted) for _, name, wanted in server.requests if wanted and not name.endswith("index")]


def after(server: RangeServer, count: int) -> int:
    """How many were made, once there are ``count``: they are made in the background."""
    for _ in range(500):
        if len(asked(server)) >= count:
            break
        time.sleep(0.02)
    return len(asked(server))


def twice(server: RangeServer) -> int:
    """How many bytes were asked for more than once."""
    found = 0
    for name in {name for name, _, _ in asked(server)}:
        spans = sorted((start, end) for one, start, end in asked(server) if one == name)
        reach = 0
        for start, end in spans:
            found += max(0, min(reach, end) - start)
            reach = max(reach, end)
    return found


class TestAhead:
    @pytest.fixture
    def server(self) -> Iterator[RangeServer]:
        with serve(files={"a": DATA}) as server:
            yield server

    def test_what_is_held_is_not_fetched_again(
        self, server: RangeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, key = open_store(server.url("a"))
        monkeypatch.setattr("indexer.stores.ahead.NEAR", 100)
        ahead = Ahead()
        first = ahead.ask(store, key, *ranges((0, 100), (150, 200), (5000, 6000)), None)
        assert [piece.stop for piece in first.pieces] == [200, 6000] and first.num_bytes == 1200
        # The new ones lie on both sides of one that is held, and are not joined across it.
        second = ahead.ask(store, key, *ranges((4950, 5000), (5500, 5600), (6000, 6050)), None)
        assert second.num_requests == 2 and second.num_bytes == 100 and first.pieces[1] in second.pieces
        found, which = ahead.find(*ranges((150, 160), (4950, 4960), (300, 400), (5999, 6001)))
        assert which.tolist()[2:] == [-1, -1]
        assert bytes(found[which[0]].bytes()) == DATA[:200] and found[which[1]].begin == 4950
        assert [bytes(piece.bytes()) for piece in second.pieces] == [
            DATA[piece.begin : piece.stop] for piece in second.pieces
        ]
        assert twice(server) == 0 and len(asked(server)) == 4

    def test_what_nobody_holds_is_gone(self, server: RangeServer) -> None:
        store, key = open_store(server.url("a"))
        ahead = Ahead()
        held = ahead.ask(store, key, *ranges((0, 100)), None)
        assert ahead.find(*ranges((0, 100)))[1].tolist() == [0]
        del held
        gc.collect()
        assert ahead.find(*ranges((0, 100)))[1].tolist() == [-1]

    def test_nothing_is_asked_for_twice_while_it_waits(self, server: RangeServer) -> None:
        server.delay = 0.05
        store, key = open_store(server.url("a"))
        ahead = Ahead()
        held = [ahead.ask(store, key, *ranges((10, 500)), None) for _ in range(3)]
        assert {bytes(one.pieces[0].bytes()) for one in held} == {DATA[10:500]}
        assert len(asked(server)) == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards whose last blocks are short."""
    folder = tmp_path_factory.mktemp("shards")
    number = 0
    for shard, count in enumerate(COUNTS):
        with tfrecord.TFRecordWriter(folder / f"{shard}.tfrecord", index=True) as writer:
            for _ in range(count):
                writer.write({"id": (number, "int"), "pad": (bytes(100 + number % 300), "byte")})
                number += 1
    return folder


class TestPasses:
    """Datasets whose windows end inside groups of blocks."""

    @pytest.fixture
    def server(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
        pytest.importorskip("torch")
        monkeypatch.setattr("tfrecord.torch._base.WINDOW", 500)
        monkeypatch.setattr(
            BlockOrder.__init__, "__kwdefaults__", {"seed": 0, "epoch": 0, "block": BLOCK, "group": 8}
        )
        monkeypatch.setattr("indexer.stores.ahead.NEAR", 4096)
        monkeypatch.setattr("tfrecord.torch._readahead.NEAR", 4096)
        monkeypatch.setattr("tfrecord.torch._source._MUCH", 1 << 60)
        with serve(files={path.name: path.read_bytes() for path in folder.iterdir()}) as served:
            yield served

    def dataset(self, server: RangeServer, **options: Any) -> Any:
        from tfrecord.torch import TFRecordDataset

        urls = [server.url(f"{shard}.tfrecord") for shard in range(len(COUNTS))]
        return TFRecordDataset(urls, features={"id": tfrecord.FixedLenFeature((), "int")}, **options)

    def ids(self, batches: Any) -> list[int]:
        return [int(i) for batch in batches for i in batch["id"].reshape(-1)]

    @pytest.mark.parametrize("batch_size", [16, 50, None])
    def test_an_epoch_in_blocks_reads_each_byte_about_once(
        self, server: RangeServer, batch_size: int | None
    ) -> None:
        dataset = self.dataset(server, shuffle="block", batch_size=batch_size)
        len(dataset)
        server.requests.clear()
        assert sorted(self.ids(dataset)) == list(range(sum(COUNTS)))
        size = sum(len(data) for name, data in server.files.items() if not name.endswith("index"))
        blocks = sum(COUNTS) // BLOCK
        # The fingerprint looks at few records. One range is a block, also where two windows share it.
        assert twice(server) < size // 50
        assert len(asked(server)) < 1.3 * blocks

    def test_blocks_are_asked_for_16_ahead(self, server: RangeServer) -> None:
        dataset = self.dataset(server, shuffle="block", batch_size=16)
        len(dataset)
        server.requests.clear()
        batches = iter(dataset)
        next(batches)
        gc.collect()
        assert after(server, 16 + 8) >= 16 + 8

    def test_the_next_batches_are_asked_for_in_random_order_too(
        self, server: RangeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("indexer.stores.ahead.NEAR", 0)
        monkeypatch.setattr("tfrecord.torch._readahead._PIECE", 8)
        dataset = self.dataset(server, shuffle=True, batch_size=8)
        len(dataset)
        server.requests.clear()
        batches = iter(dataset)
        next(batches)
        assert 32 <= after(server, 32) <= 48

    @pytest.mark.parametrize("readahead", [0, 3])
    def test_so_many_batches_are_asked_for(
        self, server: RangeServer, monkeypatch: pytest.MonkeyPatch, readahead: int
    ) -> None:
        monkeypatch.setattr("indexer.stores.ahead.NEAR", 0)
        dataset = self.dataset(server, shuffle=True, batch_size=10, readahead=readahead)
        len(dataset)
        server.requests.clear()
        batches = iter(dataset)
        for taken in range(1, 4):
            next(batches)
            wanted = 10 * (taken + readahead)
            assert wanted - 3 <= after(server, wanted - 3) <= wanted  # neighbours are one request

    def test_nothing_is_looked_up_ahead_in_cached_files(
        self, server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = self.dataset(server, shuffle="block", batch_size=16, cache=str(tmp_path / "cache"))
        assert len(self.ids(dataset)) == sum(COUNTS)

        def never(*frames: Any) -> None:
            raise AssertionError("records are looked up to be asked for")

        monkeypatch.setattr("tfrecord.torch._readahead._near", never)
        server.requests.clear()
        assert sorted(self.ids(dataset)) == list(range(sum(COUNTS)))
        assert not server.requests

    @pytest.mark.parametrize("batch_size", [None, 8])
    def test_a_mix_asks_ahead_of_its_window(
        self, server: RangeServer, folder: Path, monkeypatch: pytest.MonkeyPatch, batch_size: int | None
    ) -> None:
        from tfrecord.torch import MultiTFRecordDataset

        def mix(place: Callable[[str], Any]) -> Any:
            return MultiTFRecordDataset.from_datasets(
                [place("0.tfrecord"), place("1.tfrecord")],
                [1, 1],
                infinite=False,
                shuffle=True,
                features={"id": tfrecord.FixedLenFeature((), "int")},
                batch_size=batch_size,
            )

        monkeypatch.setattr("indexer.stores.ahead.NEAR", 0)
        monkeypatch.setattr("tfrecord.torch._readahead._PIECE", 8)
        monkeypatch.setattr("tfrecord.torch._base.WINDOW", 16)
        dataset = mix(server.url)
        len(dataset)
        server.requests.clear()
        items = iter(dataset)
        first = next(items)
        assert after(server, 32) >= 32
        assert self.ids([first, *items]) == self.ids(mix(folder.__truediv__))
        assert twice(server) == 0

    def test_a_pass_that_is_given_up_holds_nothing(self, server: RangeServer) -> None:
        dataset = self.dataset(server, shuffle="block", batch_size=16)
        batches = iter(dataset)
        next(batches)
        file = dataset.source.view.store.open(0)
        starts, ends = ranges((0, 10), (200_000, 200_010))
        assert file._ahead._asked
        batches.close()
        del batches
        dataset._current = None
        gc.collect()
        assert file._ahead.find(starts, ends)[1].tolist() == [-1, -1]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_child_forked_in_the_middle_of_a_pass(self, server: RangeServer) -> None:
        pytest.importorskip("aiohttp")
        dataset = self.dataset(server, shuffle="block", batch_size=16)
        batches = iter(dataset)
        next(batches)
        server.delay = 0.3
        next(batches)  # requests are under way, which the child will never see end
        child = os.fork()
        if not child:
            signal.alarm(60)
            os._exit(0 if sorted(self.ids(dataset)) == list(range(sum(COUNTS))) else 1)
        server.delay = 0
        assert os.waitpid(child, 0)[1] == 0
        assert len(self.ids(batches)) == sum(COUNTS) - 32

    def test_two_passes_at_once(self, server: RangeServer) -> None:
        dataset = self.dataset(server, shuffle="block", batch_size=16)
        both = list(zip(dataset, dataset, strict=True))
        for one in (0, 1):
            assert sorted(self.ids(pair[one] for pair in both)) == list(range(sum(COUNTS)))
