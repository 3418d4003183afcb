"""Commands on URLs: what they say is what they say of local files, and the options reach the store."""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import Run

import tfrecord
from indexer.formats import write_index

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "stores"))
from range_server import RangeServer, serve  # noqa: E402

pytest.importorskip("obstore")

pytestmark = pytest.mark.one_run

KEYS = ("access_key_id=testing", "secret_access_key=canary-secret", "region=us-east-1")


def write(path: Path, start: int, count: int) -> None:
    with tfrecord.TFRecordWriter(path) as writer:
        for i in range(start, start + count):
            writer.write({"id": (i, "int"), "text": (b"word %d" % i, "byte")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    for number in range(2):
        write(made / f"t-0000{number}-of-00002.tfrecord", 100 * number, 100)
    return made


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with serve(files={path.name: path.read_bytes() for path in folder.iterdir()}) as served:
        yield served


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(endpoint: str, folder: Path, request: pytest.FixtureRequest) -> tuple[Any, str, list[Any]]:
    """A client, the bucket's name, and the options with which a command reaches it."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="canary-secret",
    )
    name = request.node.name[5:60].replace("_", "-").lower().replace("[", "-").replace("]", "")
    client.create_bucket(Bucket=name)
    for path in folder.iterdir():
        client.put_object(Bucket=name, Key=f"data/{path.name}", Body=path.read_bytes())
    options: list[Any] = []
    for item in (*KEYS, f"endpoint={endpoint}"):
        options += ["--storage-option", item]
    return client, name, options


def keys(bucket: tuple[Any, str, Any]) -> list[str]:
    found = bucket[0].list_objects_v2(Bucket=bucket[1])
    return [entry["Key"] for entry in found.get("Contents", ())]


COMMANDS = [
    ("info", "--json"),
    ("verify", "--json"),
    ("stats", "--json"),
    ("head", "--json", "-n", 3),
    ("show", "--json", 7),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
@pytest.mark.parametrize("cached", [False, True])
def test_the_same_is_said_of_urls(
    run: Run, server: RangeServer, folder: Path, tmp_path: Path, command: Any, cached: bool
) -> None:
    names = sorted(path.name for path in folder.iterdir())
    options = ["--cache", tmp_path / "cache"] if cached else []
    name, *rest = command
    here = run(name, *(folder / one for one in names), *rest)
    there = run(name, *map(server.url, names), *rest, *options)
    assert (here.code, there.code) == (0, 0)
    # Positions are looked up in an index: without one, all is read.
    assert ("have no index" in there.err) if name == "show" and not cached else not there.err
    assert there.out.replace(server.url(""), f"{folder}/") == here.out


@pytest.mark.parametrize("command", ["info", "stats", "verify", "head"])
def test_a_folder_in_a_bucket(run: Run, bucket: tuple[Any, str, list[Any]], command: str) -> None:
    outcome = run(command, f"s3://{bucket[1]}/data", *bucket[2])
    assert (outcome.code, outcome.err) == (0, "") and outcome.out


def test_index_writes_and_keeps_the_index_beside_the_object(
    run: Run, bucket: tuple[Any, str, list[Any]]
) -> None:
    url = f"s3://{bucket[1]}/data"
    outcome = run("index", url, "--columns", "id", *bucket[2])
    assert (outcome.code, outcome.err) == (0, "") and outcome.out.count("built") == 2
    assert sum(key.endswith(".tfindex") for key in keys(bucket)) == 2
    assert run("index", url, *bucket[2]).out.count("fresh") == 2
    assert run("index", "--check", url, *bucket[2]).out.count("good") == 2
    info = run("info", "--json", url, *bucket[2]).json()
    assert [file["index"] for file in info["files"]] == ["extended"] * 2
    assert info["bytes"] > 0 and info["files"][0]["index_columns"] == ["id"]


def test_index_of_a_damaged_object_leaves_none(run: Run, bucket: tuple[Any, str, list[Any]]) -> None:
    bucket[0].put_object(Bucket=bucket[1], Key="bad.tfrecord", Body=b"x" * 100)
    outcome = run("index", f"s3://{bucket[1]}/bad.tfrecord", *bucket[2])
    assert outcome.code == 1 and "failed" in outcome.out
    assert "bad.tfrecord.tfindex" not in keys(bucket)


def test_convert_and_salvage_to_a_bucket(
    run: Run, bucket: tuple[Any, str, list[Any]], tmp_path: Path
) -> None:
    source, out = f"s3://{bucket[1]}/data", f"s3://{bucket[1]}/out"
    assert run("convert", source, f"{out}/all.jsonl", *bucket[2]).code == 0
    assert run("convert", source, tmp_path / "all.jsonl", *bucket[2]).code == 0
    body = bucket[0].get_object(Bucket=bucket[1], Key="out/all.jsonl")["Body"].read()
    assert body == (tmp_path / "all.jsonl").read_bytes()
    outcome = run("convert", source, f"{out}/all.tfrecord", "--shards", 3, "--index", *bucket[2])
    assert (outcome.code, outcome.err) == (0, "") and sum(".tfrecord" in key for key in keys(bucket)) == 8
    assert run("info", "--json", f"{out}/", *bucket[2]).json()["records"] == 200
    first = f"{source}/t-00000-of-00002.tfrecord"
    assert run("salvage", first, f"{out}/whole.tfrecord", *bucket[2]).code == 0
    assert run("merge", source, f"{out}/merged.tfrecord", *bucket[2]).code == 0
    assert run("select", source, f"{out}/few.tfrecord", "--positions", ":5", *bucket[2]).code == 0
    assert run("info", "--json", f"{out}/few.tfrecord", *bucket[2]).json()["records"] == 5


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="one format only")
def test_parquet_goes_to_a_bucket(run: Run, bucket: tuple[Any, str, list[Any]]) -> None:
    import pyarrow.parquet

    out = f"s3://{bucket[1]}/all.parquet"
    assert run("convert", f"s3://{bucket[1]}/data", out, *bucket[2]).code == 0
    body = bucket[0].get_object(Bucket=bucket[1], Key="all.parquet")["Body"].read()
    assert pyarrow.parquet.read_table(io.BytesIO(body)).num_rows == 200


def test_a_failed_conversion_makes_no_object(run: Run, bucket: tuple[Any, str, list[Any]]) -> None:
    data = b"x" * 100
    bucket[0].put_object(Bucket=bucket[1], Key="bad.tfrecord", Body=data)
    before = keys(bucket)
    source = f"s3://{bucket[1]}"
    outcome = run("convert", f"{source}/data", f"{source}/bad.tfrecord", f"{source}/out.jsonl", *bucket[2])
    assert outcome.code == 1 and keys(bucket) == before
    assert "Uploads" not in bucket[0].list_multipart_uploads(Bucket=bucket[1])
    same = f"{source}/bad.tfrecord"
    assert run("convert", same, same, *bucket[2]).code == 2 and keys(bucket) == before


@pytest.mark.parametrize("length", [False, True])
def test_damage_behind_a_url_is_what_it_is_locally(
    run: Run, server: RangeServer, folder: Path, tmp_path: Path, length: bool
) -> None:
    path = folder / "t-00000-of-00002.tfrecord"
    data = bytearray(path.read_bytes())
    size = len(data) // 100  # records are of nearly one size
    data[9 if length else size // 2] ^= 1
    path.write_bytes(data)
    server.files[path.name] = bytes(data)
    here, there = (run("verify", place) for place in (path, server.url(path.name)))
    assert here.code == there.code == 1
    assert there.out.replace(server.url(""), f"{folder}/") == here.out
    outcome = run("salvage", server.url(path.name), tmp_path / "whole.tfrecord")
    assert outcome.code == 1 and len(tfrecord.TFRecordReader(tmp_path / "whole.tfrecord")) == 99


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "https://127.0.0.1:9/folder/"], "cannot list"),
        (["index", "https://127.0.0.1:9/folder/"], "cannot list"),
        (["info", "s3://b/x", "--storage-option", "canary"], "KEY=VALUE"),
        (["info", "s3://b/x", "--storage-option", "nonsense=canary"], "nonsense"),
    ],
)
def test_wrong_use_is_said(run: Run, arguments: list[str], words: str) -> None:
    outcome = run(*arguments)
    assert outcome.code == 2 and words in outcome.err and "canary" not in outcome.err
    assert "Traceback" not in outcome.err


def test_what_is_not_there(run: Run, server: RangeServer) -> None:
    outcome = run("head", server.url("missing.tfrecord"))
    assert outcome.code == 2 and "no such object" in outcome.err


def test_no_secret_is_shown(run: Run, bucket: tuple[Any, str, list[Any]]) -> None:
    for arguments in (("head", "missing.tfrecord"), ("info", "data"), ("index", "data")):
        outcome = run(arguments[0], f"s3://{bucket[1]}/{arguments[1]}", *bucket[2])
        assert "canary" not in outcome.out + outcome.err
    for key in keys(bucket):
        body = bucket[0].get_object(Bucket=bucket[1], Key=key)["Body"].read()
        assert b"canary" not in body


def test_build_index_and_build_indexes(bucket: tuple[Any, str, list[Any]], endpoint: str) -> None:
    options = dict(item.split("=", 1) for item in (*KEYS, f"endpoint={endpoint}"))
    url = f"s3://{bucket[1]}/data"
    one = tfrecord.build_index(f"{url}/t-00000-of-00002.tfrecord", storage_options=options)
    assert len(one) == 100
    assert [len(index) for index in tfrecord.build_index(url, storage_options=options)] == [100, 100]
    results = tfrecord.build_indexes(url, storage_options=options)
    assert [result.status for result in results] == ["fresh", "fresh"]
    reader = tfrecord.TFRecordReader(url, storage_options=options)
    assert reader.has_index and len(reader) == 200


def test_an_object_and_its_index_are_opened_in_three_requests(server: RangeServer, folder: Path) -> None:
    path = folder / "t-00000-of-00002.tfrecord"
    etag = server.etag(path.name)
    index = tfrecord.build_index(path).replace(etag=etag)
    buffer = io.BytesIO()
    write_index(buffer, index)
    server.files[f"{path.name}.tfindex"] = buffer.getvalue()
    assert len(tfrecord.TFRecordReader(server.url(path.name))) == 100 and len(server.requests) == 3


def test_nothing_is_written_by_http(run: Run, server: RangeServer, tmp_path: Path) -> None:
    url = server.url("t-00000-of-00002.tfrecord")
    with pytest.raises(ValueError, match=r"read only; give index_path=.*local file"):
        tfrecord.build_index(url)
    outcome = run("index", url)
    assert outcome.code == 1 and "read only" in outcome.out and "Traceback" not in outcome.err
    assert {method for method, _, _ in server.requests} <= {"GET", "HEAD"}
    assert len(tfrecord.build_index(url, tmp_path / "here.tfindex")) == 100
    reader = tfrecord.TFRecordReader(url, index=tmp_path / "here.tfindex")
    server.requests.clear()
    assert reader.has_index and reader[99]["id"][0] == 99


def test_the_page_of_a_url(run: Run, server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from tfrecord._cli.viewer.server import ViewServer

    monkeypatch.setattr(ViewServer, "serve_forever", lambda self: None)
    outcome = run("view", server.url("t-00000-of-00002.tfrecord"), "--no-browser", "--json")
    assert outcome.code == 0 and "has no index" in outcome.err and outcome.json()["records"] == 100


def test_one_shard_by_http_is_that_file(run: Run, server: RangeServer, folder: Path) -> None:
    name = "t-00001-of-00002.tfrecord"
    outcome = run("info", server.url(name))
    assert (outcome.code, outcome.err) == (0, "") and "shard" not in outcome.out
    both = run("info", *map(server.url, sorted(server.files)))
    assert "complete, 2 shards" in both.out


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "npz", "tar", "parquet", "arrow"])
def test_other_formats_are_read_from_urls(
    run: Run, server: RangeServer, bucket: Any, folder: Path, tmp_path: Path, suffix: str
) -> None:
    if suffix in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    given = tmp_path / f"given.{suffix}"
    assert run("convert", *sorted(folder.iterdir()), given).code == 0
    server.files[given.name] = given.read_bytes()
    bucket[0].put_object(Bucket=bucket[1], Key=given.name, Body=given.read_bytes())
    expected = [bytes(payload) for payload in tfrecord.TFRecordReader(folder, record_type="bytes")]
    places = (server.url(given.name), []), (f"s3://{bucket[1]}/{given.name}", bucket[2])
    for number, (url, options) in enumerate(places):
        out = tmp_path / f"out{number}.tfrecord"
        outcome = run("convert", url, out, *options)
        assert (outcome.code, outcome.err) == (0, "")
        assert [bytes(payload) for payload in tfrecord.TFRecordReader(out, record_type="bytes")] == expected


def test_a_damaged_file_of_another_format_is_named_by_its_url(run: Run, server: RangeServer) -> None:
    server.files["bad.jsonl"] = b'{"a": 1}\n{"a": '
    outcome = run("convert", server.url("bad.jsonl"), "-")
    assert outcome.code != 0 and f"{server.url('bad.jsonl')}: line 2" in outcome.err
    outcome = run("convert", server.url("none.jsonl"), "-")
    assert outcome.code == 2 and "no such object" in outcome.err


@pytest.fixture
def prepared(bucket: Any, tmp_path: Path) -> tuple[Path, str]:
    """A folder that TFDS prepared, and the same in a bucket."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tfds"))
    from prepared import dict_of, tensor, write_folder

    rows = [[{"x": (3 * shard + i, "int")} for i in range(3)] for shard in range(2)]
    made = write_folder(tmp_path / "things" / "1.0.0", dict_of(x=tensor("int64")), {"train": rows})
    for path in made.iterdir():
        bucket[0].put_object(Bucket=bucket[1], Key=f"things/1.0.0/{path.name}", Body=path.read_bytes())
    return made, f"s3://{bucket[1]}/things/1.0.0"


@pytest.mark.filterwarnings("ignore:.*has no index")
class TestTFDS:
    def test_info_says_what_it_says_of_the_folder(
        self, run: Run, bucket: Any, prepared: tuple[Path, str]
    ) -> None:
        made, url = prepared
        for place in (url, f"{url}/"):
            outcome = run("info", place, *bucket[2])
            assert (outcome.code, outcome.err) == (0, "")
            here = run("info", made).out
            lines = [line.split() for line in outcome.out.splitlines() if not line.startswith("─")]
            wanted = here.replace(str(made), url).splitlines()
            assert lines == [line.split() for line in wanted if not line.startswith("─")]
        assert "TFDS things/1.0.0: train (6)" in here
        assert run("info", f"s3://{bucket[1]}/things", *bucket[2]).out.split() == [url]
        bucket[0].delete_object(Bucket=bucket[1], Key="things/1.0.0/things-train.tfrecord-00001-of-00002")
        outcome = run("info", url, *bucket[2])
        assert outcome.code == 1 and "00001-of-00002 of split 'train' is missing" in outcome.out

    def test_open_takes_the_options_of_the_store(
        self, bucket: Any, endpoint: str, prepared: tuple[Path, str], tmp_path: Path
    ) -> None:
        options = dict(item.split("=", 1) for item in (*KEYS, f"endpoint={endpoint}"))
        for more in ({}, {"cache": tmp_path / "cache"}):
            reader = tfrecord.tfds.open(prepared[1], storage_options=options, **more)
            assert [int(example["x"]) for example in reader] == list(range(6)) and len(reader) == 6
            assert int(reader[4]["x"]) == 4 and "canary" not in repr(reader) + repr(reader.info)

    def test_by_http_nothing_is_listed(self, prepared: tuple[Path, str]) -> None:
        files = {f"things/1.0.0/{path.name}": path.read_bytes() for path in prepared[0].iterdir()}
        with serve(files=files) as server:
            url = server.url("things/1.0.0")
            reader = tfrecord.tfds.open(url)
            assert [int(example["x"]) for example in reader] == list(range(6))
            del server.files["things/1.0.0/things-train.tfrecord-00001-of-00002"]
            with pytest.raises(FileNotFoundError, match="1 of 2 shards"):
                tfrecord.tfds.open(url)

    def test_view(
        self, run: Run, bucket: Any, prepared: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tfrecord._cli.viewer.server import ViewServer

        monkeypatch.setattr(ViewServer, "serve_forever", lambda self: None)
        outcome = run("view", prepared[1], "--no-browser", *bucket[2])
        assert outcome.code == 0 and "TFDS things/1.0.0: train (6)" in outcome.err


@pytest.mark.parametrize("command", ["verify", "stats", "index"])
def test_progress_reaches_the_size(
    run: Run, bucket: tuple[Any, str, list[Any]], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    import contextlib
    import importlib

    from tfrecord._cli import common

    reports: list[tuple[int, int]] = []
    shown = contextlib.contextmanager(lambda label: iter([lambda done, total: reports.append((done, total))]))
    monkeypatch.setattr(common, "bar", shown)
    monkeypatch.setattr(importlib.import_module("tfrecord._cli.verify"), "bar", shown)
    assert run(command, f"s3://{bucket[1]}/data", *bucket[2]).code == 0
    size = sum(
        entry["Size"]
        for entry in bucket[0].list_objects_v2(Bucket=bucket[1], Prefix="data/t")["Contents"]
        if not entry["Key"].endswith(".tfindex")
    )
    assert reports[-1] == (size, size)


def test_an_index_is_built_beside_the_object(bucket: tuple[Any, str, list[Any]], endpoint: str) -> None:
    options: Any = dict(item.split("=", 1) for item in (*KEYS, f"endpoint={endpoint}"))
    url = f"s3://{bucket[1]}/data"
    reader = tfrecord.TFRecordReader(url, index="build", storage_options=options)
    assert reader.has_index and sum(key.endswith(".tfindex") for key in keys(bucket)) == 2
    first = f"{url}/t-00000-of-00002.tfrecord"
    tfrecord.build_index(first, columns=["id"], storage_options=options)
    with tfrecord.TFRecordWriter(first, storage_options=options) as writer:
        writer.write({"id": (7, "int")})
    again = tfrecord.TFRecordReader(first, index="build", storage_options=options)
    assert again.index.columns["id"].tolist() == [7]


class TestWritersThatFail:
    """After an error there is no object and no upload that goes on."""

    def nothing(self, bucket: tuple[Any, str, Any]) -> None:
        assert not [key for key in keys(bucket) if key.startswith("out")]
        # The library ends an upload in the background.
        for _ in range(100):
            if "Uploads" not in bucket[0].list_multipart_uploads(Bucket=bucket[1]):
                return
            time.sleep(0.1)
        raise AssertionError("an upload goes on")

    def options(self, endpoint: str) -> Any:
        return dict(item.split("=", 1) for item in (*KEYS, f"endpoint={endpoint}"))

    @pytest.mark.parametrize("megabytes", [0, 1, 12, 40])
    @pytest.mark.parametrize("shards", [0, 2])
    def test_an_error_in_the_middle(
        self, bucket: tuple[Any, str, list[Any]], endpoint: str, megabytes: int, shards: int
    ) -> None:
        url, options = f"s3://{bucket[1]}/out", self.options(endpoint)
        made: Any = (
            tfrecord.ShardedTFRecordWriter(url, shards, index=True, storage_options=options)
            if shards
            else tfrecord.TFRecordWriter(f"{url}.tfrecord", index=True, storage_options=options)
        )
        with pytest.raises(KeyError, match="the caller's"), made as writer:
            for _ in range(megabytes):
                writer.write({"a": (bytes(1 << 20), "byte")})
            raise KeyError("the caller's")
        self.nothing(bucket)

    def test_a_store_that_refuses(self, bucket: tuple[Any, str, list[Any]], endpoint: str) -> None:
        options = self.options(endpoint)
        with pytest.raises(OSError) as caught:
            with tfrecord.TFRecordWriter(
                "s3://no-such-bucket/out.tfrecord", storage_options=options
            ) as writer:
                writer.write({"a": (bytes(9 << 20), "byte")})
        assert "canary" not in f"{caught.value!r} {caught.value}"
        self.nothing(bucket)


def test_no_secret_is_in_what_a_reader_shows_and_leaves(
    bucket: tuple[Any, str, list[Any]], endpoint: str, tmp_path: Path
) -> None:
    import pickle
    import traceback

    options = dict(item.split("=", 1) for item in (*KEYS, f"endpoint={endpoint}"))
    url = f"s3://{bucket[1]}/data"
    reader = tfrecord.TFRecordReader(url, index="build", storage_options=options, cache=tmp_path / "cache")
    seen = [repr(reader), str(reader.paths), repr(reader.index), repr(reader.paths[0])]
    seen += [repr(pickle.dumps(part)) for part in (reader, reader.paths, reader.index, reader.select([1]))]
    for wrong in (f"{url}/missing.tfrecord", "s3://no-such-bucket/x.tfrecord"):
        try:
            tfrecord.TFRecordReader(wrong, storage_options=options)[0]
        except OSError as error:
            seen += traceback.format_exception(error) + [repr(error), repr(pickle.dumps(error))]
    seen += [repr(path.read_bytes()) for path in (tmp_path / "cache").iterdir()]
    assert len(seen) > 12 and not [text for text in seen if "canary" in text]
