"""A fault at every request of a pass in turn: the pass ends right, or raises with the URL. It never hangs."""

from __future__ import annotations

import faulthandler
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from range_server import FAULTS, RangeServer, serve

import tfrecord
from indexer.errors import RemoteError, StaleIndexError

pytest.importorskip("obstore")
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.one_run

COUNT = 60
# What one answer may be, and what a pass may then raise: nothing where it is tried again.
ANSWERS: dict[str, tuple[type[Exception], ...]] = {fault: () for fault in FAULTS}
ANSWERS |= {"403": (PermissionError,), "404": (FileNotFoundError,), "changed": (StaleIndexError,)}
# What a store may answer from some request on.
STAYING = {fault: (RemoteError,) for fault in FAULTS} | {
    fault: allowed for fault, allowed in ANSWERS.items() if allowed
}


@pytest.fixture(autouse=True)
def quick_and_watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("indexer.stores.ranges._FIRST_PAUSE", 0.001)
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    with tfrecord.ShardedTFRecordWriter(folder / "t", 2, index=True) as writer:
        for i in range(COUNT):
            writer.write({"id": (i, "int"), "pad": (bytes(50 + i), "byte")})
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RangeServer]:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with serve(files=files, hang=0.3) as served:
        yield served


def whole_pass(server: RangeServer, cache: Path | None = None) -> list[list[int]]:
    """Positions, a pass in stored order, and a shuffled dataset, of readers that were just opened."""
    from tfrecord.torch import TFRecordDataset

    urls = [server.url(f"t-{i:05d}-of-00002") for i in range(2)]
    # The times that the tests wait are those of a server that hangs.
    options: dict[str, Any] = {"request_timeout": 0.15, "max_retries": 2, "cache": cache}
    features = {"id": tfrecord.FixedLenFeature((), "int")}
    reader = tfrecord.TFRecordReader(urls, features=features, **options)
    found = [reader.read([3, 59, 3])["id"].tolist(), [int(record["id"]) for record in reader]]
    dataset = TFRecordDataset(urls, features=features, shuffle="block", batch_size=16, **options)
    return [*found, sorted(int(i) for batch in dataset for i in batch["id"])]


# The writer deals records to the shards in turn.
EXPECTED = [[6, 59, 6], [*range(0, COUNT, 2), *range(1, COUNT, 2)], list(range(COUNT))]


def check(server: RangeServer, allowed: tuple[type[Exception], ...], cache: Path | None) -> None:
    with warnings.catch_warnings():
        # A sidecar that is refused is one that is not there.
        warnings.filterwarnings("ignore", "(http.*|2 files, such as http.*) ha(s|ve) no index")
        try:
            assert whole_pass(server, cache) == EXPECTED
        except allowed as error:
            assert "http://127.0.0.1" in str(error)
            if isinstance(error, RemoteError):
                assert "reading bytes" in str(error) or "asking for its size" in str(error)


def fresh(server: RangeServer) -> None:
    server.requests.clear()
    server.faults.clear()
    server.etags.clear()


@pytest.mark.parametrize("cached", [False, True], ids=["ranges", "cache"])
@pytest.mark.parametrize("fault", ANSWERS)
def test_one_fault_at_each_request(server: RangeServer, tmp_path: Path, fault: str, cached: bool) -> None:
    fresh(server)
    check(server, (), tmp_path / "whole" if cached else None)
    requests = len(server.requests)
    assert 8 <= requests <= 40
    for place in range(requests):
        fresh(server)
        server.faults = {place: fault}
        check(server, ANSWERS[fault], tmp_path / str(place) if cached else None)


@pytest.mark.parametrize("fault", STAYING)
def test_faults_from_each_request_on(server: RangeServer, fault: str) -> None:
    places = (0, 1, 3, 7) if fault == "timeout" else range(0, 14)
    for place in places:
        fresh(server)
        server.faults = dict.fromkeys(range(place, 200), fault)
        check(server, STAYING[fault], None)
    fresh(server)
    check(server, (), None)  # the same process goes on
