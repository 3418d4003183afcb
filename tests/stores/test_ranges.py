"""Ranges, streams and faults of stores, over a server of our own."""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from range_server import FAULTS, TOO_MUCH, RangeServer, serve

from indexer.errors import RemoteError, StaleIndexError
from indexer.stores import StoreOptions, Url, open_store
from indexer.stores.objects import ObstoreStore
from indexer.stores.pieces import join_ranges
from indexer.stores.ranges import Store
from indexer.stores.settings import for_fsspec
from indexer.stores.urls import FsspecStore

pytestmark = pytest.mark.one_run

DATA = np.random.default_rng(0).bytes(3_000_000)
QUICK = {"request_timeout": 0.5, "max_retries": 3}
KINDS = [ObstoreStore, FsspecStore]
AZURE = {"account_name": "n", "sas_token": "s"}
KEYS = {"access_key_id": "testing", "secret_access_key": "testing", "region": "us-east-1"}


@pytest.fixture(params=KINDS, ids=["obstore", "fsspec"])
def kind(request: pytest.FixtureRequest) -> type[Store]:
    pytest.importorskip("obstore")
    pytest.importorskip("aiohttp")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.stores.ranges._FIRST_PAUSE", 0.001)


def made(kind: type[Store], server: RangeServer, **options: object) -> Store:
    return kind(f"http://127.0.0.1:{server.port}", StoreOptions(**{**QUICK, **options}))  # type: ignore[arg-type]


def ranges(*pairs: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.uint64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def fetched(store: Store, *pairs: tuple[int, int], etag: str | None = None) -> list[bytes]:
    buffer, places = store.fetch_ranges("a", *ranges(*pairs), etag)
    sizes = [end - start for start, end in pairs]
    return [bytes(buffer[p : p + n]) for p, n in zip(places.tolist(), sizes, strict=True)]


def test_size_and_etag(kind: type[Store]) -> None:
    with serve(files={"a": DATA}) as server:
        info = made(kind, server).stat("a")
        assert (info.size, info.etag) == (len(DATA), server.etag("a"))
        assert len(server.requests) == 1


def test_ranges_in_any_order_come_once(kind: type[Store]) -> None:
    pairs = [(500_000, 500_100), (0, 10), (5, 20), (2_999_990, 3_000_000), (0, 10), (7, 7)]
    with serve(files={"a": DATA}) as server:
        assert fetched(made(kind, server), *pairs) == [DATA[a:b] for a, b in pairs]
        asked = [wanted for _, _, wanted in server.requests if wanted]
        assert sum(end - start for start, end in asked) <= len({i for a, b in pairs for i in range(a, b)})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 3000)), max_size=40), st.integers(0, 1 << 20))
def test_joined_ranges_hold_all_and_waste_little(wanted: list[tuple[int, int]], gap: int) -> None:
    starts, ends = ranges(*((start, start + size) for start, size in wanted))
    begins, stops, which = join_ranges(starts, ends, gap)
    assert (begins[which] <= starts).all() and (ends <= stops[which]).all()
    assert (begins[1:] >= stops[:-1]).all()
    covered = np.zeros(10**7 + 3001, np.bool_)
    for start, size in wanted:
        covered[start : start + size] = True
    assert int((stops - begins).sum()) <= 8 * int(covered.sum()) + (128 << 10)


def test_requests_run_side_by_side_within_the_budget(kind: type[Store]) -> None:
    pairs = [(i * 200_000, i * 200_000 + 10) for i in range(15)]
    with serve(files={"a": DATA}, delay=0.05) as server:
        assert fetched(made(kind, server), *pairs) == [DATA[a:b] for a, b in pairs]
        assert 4 <= server.most_at_once <= 64


def test_a_stream_asks_ahead(kind: type[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.stores.ranges._PART", 400_000)
    with serve(files={"a": DATA}) as server:
        with made(kind, server).stream("a", 10) as stream:
            assert stream.read(5) == DATA[10:15]
            assert stream.read() == DATA[15:] and stream.read(1) == b""
        with pytest.raises(ValueError, match="closed"):
            stream.read(1)
        assert [m for m, _, _ in server.requests].count("GET") == 8


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_is_tried_again(kind: type[Store], fault: str) -> None:
    with serve(files={"a": DATA}, faults={0: fault}, hang=0.7) as server:
        assert fetched(made(kind, server), (10, 500)) == [DATA[10:500]]
        assert len(server.requests) == 2 and server.too_much <= TOO_MUCH // 4


@pytest.mark.parametrize("fault", ["503", "reset", "timeout"])
def test_a_fault_that_stays_is_an_error_with_url_and_range(kind: type[Store], fault: str) -> None:
    with serve(files={"a": DATA}, faults=dict.fromkeys(range(50), fault), hang=0.7) as server:
        with pytest.raises(
            RemoteError, match=r"http://127.0.0.1:\d+/a: reading bytes 10 to 500 failed 4 times"
        ):
            fetched(made(kind, server), (10, 500))
        assert len(server.requests) in (4, 8)  # aiohttp itself asks again after a reset


@pytest.mark.parametrize(
    ("status", "error"), [(403, PermissionError), (404, FileNotFoundError), (400, RemoteError)]
)
def test_what_will_not_pass_is_not_tried_again(
    kind: type[Store], status: int, error: type[Exception]
) -> None:
    if kind is FsspecStore and status == 403:
        error = RemoteError
    with serve(files={"a": DATA}, statuses={"a": status}) as server:
        with pytest.raises(error):
            fetched(made(kind, server), (10, 500))
        assert len(server.requests) == 1


def test_a_changed_object_is_stale(kind: type[Store]) -> None:
    with serve(files={"a": DATA}) as server:
        store = made(kind, server)
        etag = store.stat("a").etag
        assert fetched(store, (0, 5), etag=etag) == [DATA[:5]]
        server.etags["a"] = '"another"'
        with pytest.raises(StaleIndexError, match="changed while it was read"):
            fetched(store, (0, 5), etag=etag)


def test_the_first_failure_ends_a_batch(kind: type[Store]) -> None:
    pairs = [(i * 200_000, i * 200_000 + 10) for i in range(15)]
    with serve(files={"a": DATA}, faults=dict.fromkeys(range(200), "503")) as server:
        began = time.monotonic()
        with pytest.raises(RemoteError):
            fetched(made(kind, server, max_retries=0), *pairs)
        assert time.monotonic() - began < 60


def test_http_cannot_list(kind: type[Store]) -> None:
    with serve(files={"a": DATA}) as server:
        for call in (made(kind, server).list, made(kind, server).folders):
            with pytest.raises(ValueError, match="http and https cannot list"):
                call("folder/")
        assert not server.requests


@pytest.mark.parametrize("fault", [*FAULTS, "changed"])
def test_s3_through_fsspec_checks_answers_too(fault: str) -> None:
    pytest.importorskip("s3fs")
    with serve(files={"bucket/a": DATA}, faults={1: fault}, hang=0.7) as server:
        settings = {**KEYS, "endpoint": server.url("")}
        store = FsspecStore("s3://bucket", StoreOptions(settings, **QUICK))  # type: ignore[arg-type]
        etag = server.etag("bucket/a")
        assert fetched(store, (0, 5), etag=etag) == [DATA[:5]]
        if fault == "changed":
            with pytest.raises(StaleIndexError, match="changed while it was read"):
                fetched(store, (10, 500), etag=etag)
        else:
            assert fetched(store, (10, 500), etag=etag) == [DATA[10:500]]
            assert len(server.requests) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_through_a_store_of_its_own() -> None:
    pytest.importorskip("obstore")
    pytest.importorskip("aiohttp")
    options = StoreOptions(**QUICK)  # type: ignore[arg-type]
    with serve(files={"a": DATA}) as server:
        store, key = open_store(Url(server.url("a"), options))
        assert isinstance(store, ObstoreStore) and store.stat(key).size == len(DATA)
        child = os.fork()
        if not child:
            import signal

            signal.alarm(20)
            mine, key = open_store(Url(server.url("a"), options))
            buffer, _ = mine.fetch_ranges(key, *ranges((3, 9)))
            os._exit(0 if isinstance(mine, FsspecStore) and bytes(buffer) == DATA[3:9] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert fetched(store, (3, 9)) == [DATA[3:9]]


class TestOptions:
    def test_an_option_that_http_does_not_have(self, kind: type[Store]) -> None:
        with pytest.raises(TypeError, match="'acess_key_id' is not an option of http URLs"):
            kind("http://127.0.0.1:9", StoreOptions({"acess_key_id": "x"}))

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"aws_access_key_id": "a", "SECRET_ACCESS_KEY": "b"}, {"key": "a", "secret": "b"}),
            ({"skip_signature": "false"}, {"anon": False}),
            ({"skip_signature": "true", "allow_http": True}, {"anon": True}),
            ({"endpoint": "http://h", "use_ssl": False}, {"endpoint_url": "http://h", "use_ssl": False}),
            ({"aws_region": "r"}, {"client_kwargs": {"region_name": "r"}}),
        ],
    )
    def test_settings_of_s3_for_fsspec(self, given: dict[str, Any], expected: dict[str, Any]) -> None:
        pytest.importorskip("s3fs")
        found = for_fsspec("s3://bucket", given, 3)
        waits = {"connect_timeout": 3, "read_timeout": 3, "retries": {"max_attempts": 0}}
        assert found == {**expected, "config_kwargs": waits}

    def test_settings_that_fsspec_does_not_have(self) -> None:
        pytest.importorskip("s3fs")
        with pytest.raises(TypeError, match="'acess_key_id'"):
            for_fsspec("s3://bucket", {"acess_key_id": "x"}, 3)
        assert for_fsspec("sftp://host", {"username": "x"}, 3) == {"username": "x"}

    @pytest.mark.parametrize(
        ("scheme", "given", "expected"),
        [
            ("gs", {"google_service_account": "key.json"}, {"token": "key.json"}),
            ("gs", {"skip_signature": True}, {"token": "anon"}),
            (
                "abfs",
                {"azure_storage_account_name": "n", "sas_key": "s"},
                {"account_name": "n", "sas_token": "s"},
            ),
        ],
    )
    def test_settings_of_other_stores_for_fsspec(
        self, monkeypatch: pytest.MonkeyPatch, scheme: str, given: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        fsspec = pytest.importorskip("fsspec")

        class Package:
            """The parameters of gcsfs and adlfs, which are not installed."""

            def __init__(
                self, token: Any = None, account_name: Any = None, sas_token: Any = None
            ) -> None: ...

        monkeypatch.setattr(fsspec, "get_filesystem_class", lambda name: Package)
        assert for_fsspec(f"{scheme}://bucket", given, 3) == expected
        with pytest.raises(TypeError, match="'nonsense'"):
            for_fsspec(f"{scheme}://bucket", {"nonsense": 1}, 3)

    @pytest.mark.parametrize(
        ("given", "expected"), [("20GB", 20 * 10**9), ("1.5 KiB", 1536), (7, 7), ("5b", 5)]
    )
    def test_bytes(self, given: int | str, expected: int) -> None:
        assert StoreOptions(cache_bytes=given).cache_bytes == expected

    @pytest.mark.parametrize(
        "wrong",
        [{"cache_bytes": "20 XB"}, {"cache_bytes": True}, {"io_concurrency": 0}, {"max_retries": -1}]
        + [{"request_timeout": 0}, {"request_timeout": "3"}],
    )
    def test_wrong_values_are_named(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            StoreOptions(**wrong)  # type: ignore[arg-type]

    def test_credentials_are_nowhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "environment-canary")
        options = StoreOptions({"secret_access_key": "canary-5f1c", "region": "r"})
        assert "canary" not in repr(options) and b"canary" not in pickle.dumps(options)
        assert pickle.loads(pickle.dumps(options)).storage_options is None
        text = options.redact("https://user:pw@host/a?sig=canary-2 canary-5f1c environment-canary")
        assert text == "https://host/a *** ***"

    def test_a_function_is_asked_and_pickled_by_name(self) -> None:
        options = pickle.loads(pickle.dumps(StoreOptions(settings_of_this_test)))
        assert options.settings() == {"region": "here"}


def settings_of_this_test() -> dict[str, str]:
    return {"region": "here"}
