"""What S3 means by listing, conditional writes and errors, on a local S3 server."""

from __future__ import annotations

import functools
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from indexer.errors import RemoteError, StaleIndexError
from indexer.stores import StoreOptions, Url, open_store, split_url
from indexer.stores.objects import ObstoreStore
from indexer.stores.ranges import Store
from indexer.stores.urls import FsspecStore

pytestmark = pytest.mark.one_run

KEYS = {"access_key_id": "testing", "secret_access_key": "testing-secret", "region": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("obstore")
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=[ObstoreStore, FsspecStore], ids=["obstore", "fsspec"])
def store(request: pytest.FixtureRequest, endpoint: str) -> Store:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing-secret",
    )
    bucket = f"bucket-{request.node.name[:30].lower().replace('[', '-').replace(']', '').replace('_', '-')}"
    client.create_bucket(Bucket=bucket)
    made: Store = request.param(f"s3://{bucket}", StoreOptions({**KEYS, "endpoint": endpoint}, max_retries=1))
    return made


def test_put_stat_and_read(store: Store) -> None:
    data = np.random.default_rng(1).bytes(50_000)
    store.put("folder/ü x", data)
    info = store.stat("folder/ü x")
    assert info.size == len(data) and info.etag
    starts = np.array([10, 40_000], np.uint64)
    buffer, places = store.fetch_ranges("folder/ü x", starts, starts + np.uint64(5), info.etag)
    assert bytes(buffer[int(places[1]) :][:5]) == data[40_000:40_005]
    with store.stream("folder/ü x") as stream:
        assert stream.read() == data


def test_listing_goes_no_deeper(store: Store) -> None:
    for key in ("f/b", "f/a", "f/deep/c", "other"):
        store.put(key, b"1")
    assert [info.key for info in store.list("f/")] == ["f/a", "f/b"]
    assert [info.key for info in store.list("f/[b-z]*")] == ["f/b"]
    assert store.list("nothing/") == []


def test_conditional_writes(store: Store) -> None:
    store.put("k", b"one", if_absent=True)
    with pytest.raises(FileExistsError):
        store.put("k", b"two", if_absent=True)
    etag = store.stat("k").etag
    store.put("k", b"three", if_match=etag)
    with pytest.raises(StaleIndexError):
        store.put("k", b"four", if_match=etag)
    store.delete("k")
    store.delete("k")
    with pytest.raises(FileNotFoundError):
        store.stat("k")


def test_an_object_that_changes_while_it_is_read(store: Store) -> None:
    store.put("k", b"0123456789")
    etag = store.stat("k").etag
    starts = np.array([3], np.uint64)
    buffer, _ = store.fetch_ranges("k", starts, starts + np.uint64(4), etag)
    assert bytes(buffer) == b"3456"
    store.put("k", b"abcdefghij")
    with pytest.raises(StaleIndexError, match="changed while it was read"):
        store.fetch_ranges("k", starts, starts + np.uint64(4), etag)


def test_a_bucket_that_is_not_there(endpoint: str) -> None:
    store = ObstoreStore("s3://no-such-bucket", StoreOptions({**KEYS, "endpoint": endpoint}, max_retries=0))
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        store.list("folder/")
    with pytest.raises(FileNotFoundError):
        store.stat("key")


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    import obstore
    from obstore.exceptions import GenericError

    def head(*args: Any) -> None:
        raise GenericError("Error performing PUT http://169.254.169.254/latest/api/token")

    monkeypatch.setattr(obstore, "head", head)
    with pytest.raises(RemoteError, match="no credentials were found: .*AWS_ACCESS_KEY_ID.*skip_signature"):
        ObstoreStore("s3://bucket", StoreOptions(KEYS, max_retries=0)).stat("key")


def test_an_upload_is_whole(store: Store) -> None:
    data = np.random.default_rng(2).bytes(20 << 20)
    store.upload("whole", io.BytesIO(data))
    with store.stream("whole") as stream:
        assert stream.read() == data


def test_whole_files_take_storage_options(store: Store, endpoint: str, tmp_path: Path) -> None:
    options = {**KEYS, "endpoint": endpoint}
    url = f"{store.root}/whole.tfrecord"
    assert tfrecord.write(url, {"id": [1, 2, 3]}, storage_options=options) == 3
    report = tfrecord.verify(url, storage_options=options)
    assert report.ok and report.records == 3
    assert tfrecord.salvage(url, tmp_path / "salvaged", storage_options=options).records == 3
    again = f"{store.root}/again.tfrecord"
    tfrecord.salvage(tmp_path / "salvaged", again, storage_options=options)
    assert tfrecord.verify(again, storage_options=options).records == 3


def test_threads_share_a_store(store: Store) -> None:
    store.put("k", b"0123456789" * 1000)
    wrong = []

    def read() -> None:
        starts = np.arange(0, 9000, 1000, dtype=np.uint64)
        buffer, places = store.fetch_ranges("k", starts, starts + np.uint64(10))
        wrong.extend(p for p in places.tolist() if bytes(buffer[p : p + 10]) != b"0123456789")

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_unknown_option_is_named() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(TypeError, match="storage_options.*s3.*did you mean 'access_key_id'.*endpoint"):
        open_store(Url("s3://bucket/key", StoreOptions({"acess_key_id": "x"})))


def test_the_url_of_a_reader_server_is_not_of_a_store() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match=r"grpc\+tls:// URLs; tfrecord\.connect"):
        open_store("grpc+tls://host:1/name")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://bucket/a/b", ("s3://bucket", "a/b", "")),
        ("s3://bucket", ("s3://bucket", "", "")),
        ("s3://bucket/a#b?c", ("s3://bucket", "a#b?c", "")),
        ("http://host:1/a%20b", ("http://host:1", "a b", "")),
        ("simplecache::s3://bucket/a", ("simplecache::s3://bucket", "a", "")),
        ("zip://a::s3://bucket/b.zip", ("zip:/", "a", "::s3://bucket/b.zip")),
    ],
)
def test_urls_are_split(url: str, expected: tuple[str, str, str]) -> None:
    assert split_url(url) == expected


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
def test_a_plain_http_endpoint_of_the_environment(
    endpoint: str, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store.put("data", b"12345")
    monkeypatch.setenv(name, endpoint)
    assert ObstoreStore(store.root, StoreOptions(KEYS, max_retries=0)).stat("data").size == 5


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url", "aws_endpoint"])
def test_every_name_of_a_plain_http_endpoint(endpoint: str, store: Store, name: str) -> None:
    store.put("data", b"12345")
    options = StoreOptions({**KEYS, name: endpoint}, max_retries=0)
    assert ObstoreStore(store.root, options).stat("data").size == 5


def test_a_web_server_without_ranges_is_named(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "data").write_bytes(b"12345")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = ObstoreStore(f"http://127.0.0.1:{server.server_address[1]}", StoreOptions(max_retries=0))
        with pytest.raises(RemoteError, match="does not answer range requests"):
            store.fetch_ranges("data", np.array([1], np.uint64), np.array([3], np.uint64))
        server.shutdown()
