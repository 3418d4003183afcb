"""Readers, datasets and writers over URLs: the answers are those of local files, and requests are counted."""

from __future__ import annotations

import faulthandler
import itertools
import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from range_server import RangeServer, serve
from remote_shards import COUNT, local, urls

import tfrecord
from indexer.errors import RemoteError

pytest.importorskip("obstore")
pytest.importorskip("aiohttp")


@pytest.fixture
def watchdog() -> Iterator[None]:
    """Ends a test that hangs, with the stacks of its threads."""
    faulthandler.dump_traceback_later(240, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_the_same_answers_as_from_local_files(server: RangeServer, folder: Path) -> None:
    here, there = local(folder), tfrecord.TFRecordReader(urls(server))
    positions = np.random.default_rng(1).integers(0, COUNT, 256)
    assert len(there) == COUNT and there.has_index
    assert there.read(positions) == here.read(positions)
    assert there[-1]["id"] == here[-1]["id"]
    assert [bytes(r["id"]) for r in there] == [bytes(r["id"]) for r in here]
    assert [b["id"].tolist() for b in there.batches(100)] == [b["id"].tolist() for b in here.batches(100)]
    assert bytes(there.raw(7)) == bytes(here.raw(7))


def test_opening_takes_few_requests(server: RangeServer, folder: Path) -> None:
    url = urls(server)[0]
    len(tfrecord.TFRecordReader(url))
    # The size of the data, whether there is an index, that index; and what tells that it is of this data.
    assert len([r for r in server.requests if r[1].endswith(".tfindex")]) <= 2
    assert len(server.requests) <= 11


def test_a_batch_is_fetched_side_by_side_and_once(server: RangeServer) -> None:
    reader = tfrecord.TFRecordReader(urls(server))
    reader.read([0])
    server.requests.clear()
    server.delay, server.most_at_once = 0.01, 0
    reader.read(np.arange(0, COUNT, 12))
    assert server.most_at_once > 1
    for name in {request[1] for request in server.requests}:
        spans = sorted(wanted for _, one, wanted in server.requests if one == name and wanted)
        assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_network_errors_are_never_skipped(server: RangeServer) -> None:
    reader = tfrecord.TFRecordReader(urls(server), on_error="skip", max_retries=0)
    len(reader)
    server.faults = dict.fromkeys(range(100_000), "503")
    with pytest.raises(RemoteError, match=r"http://.*t-0000.-of-00003: reading bytes"):
        reader.read([1, 2, 3])


def dataset_of(reader: tfrecord.TFRecordReader) -> Any:
    pytest.importorskip("torch")
    from tfrecord.torch import TFRecordDataset

    return TFRecordDataset(reader, batch_size=64)


WAYS = {
    "read": lambda reader: reader.read([0]),
    "one": lambda reader: reader[0],
    "records": lambda reader: [dict(record) for record in reader],
    "batches": lambda reader: list(reader.batches(100)),
    "dataset": lambda reader: list(dataset_of(reader)),
    "without index": lambda reader: list(tfrecord.tfrecord_loader(reader.paths[0], None)),
}


@pytest.mark.parametrize("at", [3, 200], ids=["length", "payload"])
@pytest.mark.parametrize("bad_again", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_damage_on_the_way_is_fetched_once_more(folder: Path, way: str, bad_again: bool, at: int) -> None:
    name = "t-00000-of-00003"
    good = (folder / name).read_bytes()
    bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    with serve(files={name: good}, etags={name: '"1"'}) as server:
        reader = tfrecord.TFRecordReader(server.url(name), index=str(folder / (name + ".tfindex")))
        len(reader)
        bodies = itertools.count()

        def on_body(start: int, end: int) -> None:
            """The first time that this byte is sent, or each time, it is another."""
            if start <= at < end:
                server.files[name] = bad if bad_again or next(bodies) == 0 else good

        server.on_body = on_body
        if bad_again:
            with pytest.raises(tfrecord.CorruptRecordError, match="record 0"):
                WAYS[way](reader)
        else:
            assert WAYS[way](reader) is not None
            assert next(bodies) == 2


def test_a_changed_object_is_an_error(server: RangeServer) -> None:
    reader = tfrecord.TFRecordReader(urls(server))
    reader.read([0])
    server.etags = dict.fromkeys(server.files, '"another"')
    with pytest.raises(tfrecord.StaleIndexError, match="changed while it was read"):
        reader.read(range(0, COUNT, 3))


def test_a_cache_is_filled_once_and_mapped(server: RangeServer, folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        reader = tfrecord.TFRecordReader(urls(server), cache=tmp_path)
        assert reader.read(range(COUNT)) == local(folder).read(range(COUNT))
    data = [r for r in server.requests if r[0] == "GET" and not r[1].endswith(".tfindex")]
    assert len(data) == 3


def test_index_columns_of_an_object(server: RangeServer, folder: Path) -> None:
    reader = tfrecord.TFRecordReader(urls(server))
    assert reader.where(label=3).tolist() == local(folder).where(label=3).tolist()


def test_pickles_take_no_secrets_along(server: RangeServer) -> None:
    reader = tfrecord.TFRecordReader(urls(server), storage_options={"headers": {"authorization": "canary-7"}})
    assert "canary" not in repr(reader) and b"canary" not in pickle.dumps(reader)
    again = pickle.loads(pickle.dumps(reader))
    assert again[5]["id"] == reader[5]["id"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_goes_on(server: RangeServer, folder: Path) -> None:
    reader = tfrecord.TFRecordReader(urls(server))
    expected = local(folder).read([5, 6])
    assert reader.read([5, 6]) == expected
    child = os.fork()
    if not child:
        import signal

        signal.alarm(30)
        os._exit(0 if reader.read([5, 6]) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert reader.read([5, 6]) == expected


class TestDatasets:
    @pytest.mark.parametrize("shuffle", [False, True, "block"])
    def test_each_record_once_in_the_order_of_local_files(
        self, server: RangeServer, folder: Path, shuffle: Any
    ) -> None:
        pytest.importorskip("torch")
        from tfrecord.torch import TFRecordDataset

        def ids(source: Any) -> list[int]:
            features = {"id": tfrecord.FixedLenFeature((), "int")}
            options = {"features": features, "shuffle": shuffle, "batch_size": 64}
            return [int(i) for batch in TFRecordDataset(source, **options) for i in batch["id"]]

        found = ids(urls(server))
        assert sorted(found) == list(range(COUNT)) and found == ids(str(folder))

    @pytest.mark.parametrize("cached", [False, True])
    @pytest.mark.parametrize("shuffle", [False, True, "block"])
    @pytest.mark.filterwarnings("ignore:.*ranks get")
    def test_ranks_and_resumes(
        self, server: RangeServer, folder: Path, tmp_path: Path, shuffle: Any, cached: bool
    ) -> None:
        pytest.importorskip("torch")
        from tfrecord.torch import TFRecordDataset

        features = {"id": tfrecord.FixedLenFeature((), "int")}
        options: dict[str, Any] = {"features": features, "shuffle": shuffle, "batch_size": 64}

        def dataset(source: Any, rank: int, world_size: int, **more: Any) -> Any:
            return TFRecordDataset(source, rank=rank, world_size=world_size, **options, **more)

        def ids(batches: Any) -> list[int]:
            return [int(i) for batch in batches for i in batch["id"]]

        more: dict[str, Any] = {"cache": tmp_path} if cached else {}
        found: list[int] = []
        states: list[Any] = []
        for rank in range(2):
            there = dataset(urls(server), rank, 2, **more)
            part = iter(there)
            first = ids(itertools.islice(part, 5))
            states.append(there.state_dict())
            rest = ids(part)
            again = dataset(urls(server), rank, 2, **more)
            again.load_state_dict(states[rank])
            assert ids(again) == rest
            assert first + rest == ids(dataset(str(folder), rank, 2))
            found += first
        assert len(set(found)) == len(found)
        # Three ranks go on where two were.
        rests = []
        for rank in range(3):
            one = dataset(urls(server), rank, 3, **more)
            one.load_state_dict(states[0])
            rests += ids(one)
        assert sorted(found + rests) == list(range(COUNT))

    def test_small_records_in_random_order_are_warned_of(
        self, server: RangeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pytest.importorskip("torch")
        from tfrecord.torch import TFRecordDataset

        monkeypatch.setattr("tfrecord.torch._source._MUCH", 1000)
        with pytest.warns(UserWarning, match=r"shuffle='block'.*cache='auto'"):
            TFRecordDataset(urls(server), shuffle=True)
        TFRecordDataset(urls(server), shuffle="block")
        TFRecordDataset(urls(server), shuffle=True, cache=tmp_path)

    @pytest.mark.parametrize("cached", [False, True])
    @pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:This DataLoader will create")
    def test_workers(
        self, server: RangeServer, tmp_path: Path, method: str, cached: bool, watchdog: None
    ) -> None:
        torch = pytest.importorskip("torch")
        from tfrecord.torch import TFRecordDataset

        features = {"id": tfrecord.FixedLenFeature((), "int")}
        options: dict[str, Any] = {"cache": tmp_path} if cached else {}
        dataset = TFRecordDataset(urls(server), features=features, shuffle=True, batch_size=64, **options)
        assert len(dataset) == 47
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=None, num_workers=2, multiprocessing_context=method
        )
        assert sorted(int(i) for batch in loader for i in batch["id"]) == list(range(COUNT))


def test_secrets_in_a_url_are_not_shown(folder: Path) -> None:
    with serve(files={"t": (folder / "t-00000-of-00003").read_bytes()}) as server:
        url = server.url("t").replace("http://", "http://user:canary-1@") + "?sig=canary-2"
        reader = tfrecord.TFRecordReader(server.url("t"), index=False)
        assert "canary" not in repr(reader) + str(reader.paths)
        with pytest.raises(OSError) as caught:
            tfrecord.TFRecordReader(url.replace("/t?", "/missing?"), index=False, max_retries=0)[0]
        assert "canary" not in str(caught.value)


def test_a_pass_in_stored_order_asks_for_parts(
    server: RangeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexer.stores.ranges._PART", 100_000)
    reader = tfrecord.TFRecordReader(urls(server))
    len(reader)
    server.requests.clear()
    assert [int(r["id"][0]) for r in reader] == [int(r["id"][0]) for r in local(folder)]
    sizes = [len(data) for name, data in server.files.items() if not name.endswith(".tfindex")]
    assert len(server.requests) == sum(-(-size // 100_000) for size in sizes)


class TestSecrets:
    """Signed URLs, and URLs with a user and a password: what they hold is shown and kept nowhere."""

    @pytest.fixture
    def signed(self, server: RangeServer) -> Iterator[tuple[RangeServer, str]]:
        """A server that answers only those who have the signature."""
        name = "t-00000-of-00003"
        files = {f"{one}?sig=canary-1": data for one, data in server.files.items() if one.startswith(name)}
        with serve(files=files) as served:
            yield served, f"http://user:canary-2@127.0.0.1:{served.port}/{name}?sig=canary-1"

    def test_a_signed_url_is_read_and_not_shown(
        self,
        signed: tuple[RangeServer, str],
        folder: Path,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        caplog.set_level("DEBUG")
        served, url = signed
        expected = local(folder).read([5, 7])
        seen: list[str] = []
        for more in ({}, {"cache": tmp_path}):
            reader = tfrecord.TFRecordReader(url, max_retries=0, **more)
            assert reader.has_index and reader.read([5, 7]) == expected
            seen += [repr(reader), str(reader.paths), repr(reader.index), repr(pickle.dumps(reader))]
        reader = tfrecord.TFRecordReader(url, max_retries=0)
        for fault in ("503", "reset", "short", "200", "403", "404", "changed"):
            served.faults = dict.fromkeys(range(10_000), fault)
            with pytest.raises((OSError, tfrecord.TFRecordError)) as caught:
                reader.read([500])
            seen += traceback.format_exception(caught.value)
            seen += [repr(caught.value), repr(caught.value.args), repr(pickle.dumps(caught.value))]
            if fault == "changed":  # a reader that is opened now sees nothing of it
                continue
            with pytest.raises((OSError, tfrecord.TFRecordError)) as caught:
                tfrecord.TFRecordReader(url, max_retries=0, index=False)[0]
            seen += [*traceback.format_exception(caught.value), repr(pickle.dumps(caught.value))]
        seen += [repr(path.read_bytes()) + path.name for path in tmp_path.iterdir()]
        seen += [record.getMessage() for record in caplog.records if record.name.startswith("tfrecord")]
        assert len(seen) > 40 and not [text for text in seen if "canary" in text]


def test_a_scheme_that_nothing_reads() -> None:
    with pytest.raises(ValueError, match="no installed package reads memry:// URLs; did you mean 'memory'"):
        tfrecord.TFRecordReader("memry://bucket/a.tfrecord")
