"""The tests of `TFRecordReader`, with readers of a server in its place."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_reader
from local_server import TOKEN, LocalServer
from recorded import example, ids, sequence, write
from test_reader import *  # noqa: F403

import tfrecord
from tfrecord.features import FixedLenFeature
from tfrecord.flight import connect
from tfrecord.flight.answers import Answer


@pytest.fixture(autouse=True)
def remote(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_reader, "TFRecordReader", server.open)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("kind", ["example", "sequence"])
def test_columns_that_the_server_decodes(
    server: LocalServer, tmp_path: Path, kind: str, indexed: bool
) -> None:
    """They are those of the payloads, down to which records have a feature."""
    make = {"example": example, "sequence": sequence}[kind]
    payloads = [make(number) for number in range(30)] + [b""]
    path = write(tmp_path / "a.tfrecord", payloads)
    if indexed:
        tfrecord.build_index(path)
    specs: list[dict[str, Any]] = [
        {"features": {"id": FixedLenFeature((), "int64", -1)}},
        {"features": {"id": "int32", "list": "float64"}}
        if kind == "example"
        else {"features": {"id": "int"}},
        {"features": {"nothing": FixedLenFeature((2,), "bytes", [b"x", b""]), "id": "int"}},
        {},
    ]
    if kind == "sequence":
        specs = [{**spec, "sequence_features": {"tokens": tfrecord.RaggedFeature("int64")}} for spec in specs]
    url = server.add(path)
    for spec in specs:
        spec = {**spec, "record_type": {"example": "example", "sequence": "sequence_example"}[kind]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            there, here = connect(url, **spec), tfrecord.TFRecordReader(path, **spec)
            assert there.read([5, 30, 0, 5]) == here.read([5, 30, 0, 5])
            pairs = list(zip(there.batches(7), here.batches(7), strict=True))
        assert all(one == other for one, other in pairs) and len(pairs) == 5
        decodes = there._view._decoded_there(None) is not None
        assert decodes == (indexed or bool(spec.get("features")))
        if kind == "example" and "id" in (spec.get("features") or {"id"}):
            assert there.read([3, 30], columns=["id"]) == here.read([3, 30], columns=["id"])
        there.close()


def test_damage_is_met_as_in_files(server: LocalServer, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(20)])
    tfrecord.build_index(path)
    data = bytearray(path.read_bytes())
    places = tfrecord.load_index(str(path) + ".tfindex").offsets
    for record in (4, 11):
        data[int(places[record]) + 14] ^= 0xFF
    path.write_bytes(data)
    url = server.add(path)
    for features in (None, {"id": "int"}):
        with connect(url, features=features) as reader:
            got: list[int] = []
            with pytest.raises(tfrecord.ChecksumError) as caught:
                got.extend(int(one["id"][0]) for one in reader)
            assert got == [0, 1, 2, 3]
            error = caught.value
            assert (error.path, error.record, error.offset) == (reader.paths[0], 4, int(places[4]))
            for read in (reader.read, reader.read_raw):
                with pytest.raises(tfrecord.ChecksumError):
                    read([1, 11])
            with pytest.raises(tfrecord.ChecksumError):
                list(reader.batches(3))
            assert ids(reader.read([19, 5])) == [19, 5]
    seen: list[Any] = []
    with connect(url, on_error=seen.append) as reader:
        good = [number for number in range(20) if number not in (4, 11)]
        assert ids(reader) == good and ids(reader.read(range(20))) == good
        assert [one for batch in reader.batches(6) for one in ids(batch)] == good
        assert reader.num_skipped == 2 and [error.record for error in seen] == [4, 11]
        with pytest.raises(tfrecord.ChecksumError):
            reader.raw(4)
    with connect(url, on_error="skip", max_skips=1) as reader, pytest.raises(tfrecord.ChecksumError):
        list(reader)


@pytest.mark.parametrize(
    "change", [lambda asked: asked[:0], lambda asked: np.append(asked, 0)], ids=["fewer", "more"]
)
def test_other_records_than_were_asked_for_are_refused(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    good = Answer.batches
    monkeypatch.setattr(
        Answer,
        "batches",
        lambda self, ticket: good(self, replace(ticket, positions=change(ticket.positions))),
    )
    url = server.add(write(tmp_path / "a.tfrecord", [example(number) for number in range(9)]))
    with connect(url) as reader, pytest.raises(tfrecord.RemoteError, match="other records"):
        reader.read_raw([3, 4])


def test_index_columns_come_whole(server: LocalServer, tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{number}.tfrecord", [example(one) for one in range(number, 9)])
        for number in (0, 5)
    ]
    write(paths[1], [example(one) for one in range(5, 9)] + [b""])
    for path in paths:
        tfrecord.build_index(path, columns=["id", "name", "len(list)"])
    with connect(server.add(paths)) as there, tfrecord.TFRecordReader(paths) as here:
        for name, column in here.index.columns.items():
            found = there.index.columns[name]
            assert found.dtype == column.dtype and np.ma.allequal(found, column)
            assert np.array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(column))
        for condition in ({"id": 6}, {"name": ["n1", "n8"]}, {"id": lambda ids: ids > 6}):
            assert there.where(condition).tolist() == here.where(condition).tolist()
        assert there.schema == here.schema and there.file_starts.tolist() == [0, 9, 14]
        with pytest.raises(KeyError, match="where the files are, then connect again"):
            there.where(nothing=1)


def test_the_viewer_needs_files(server: LocalServer, tmp_path: Path) -> None:
    for package in ("click", "rich"):
        pytest.importorskip(package)
    url = server.add([write(tmp_path / "a", [example(1)])])
    with connect(url) as reader, pytest.raises(ValueError, match="run it where the files are"):
        reader.view(open_browser=False)


def test_a_set_that_grows_and_one_that_changes(server: LocalServer, tmp_path: Path) -> None:
    write(tmp_path / "a-1.tfrecord", [example(number) for number in range(10)])
    url = server.add(tmp_path)
    name = url.rpartition("/")[2]
    before = connect(url)
    write(tmp_path / "a-2.tfrecord", [example(number) for number in range(10, 15)])
    server.service.refresh()
    assert ("refreshed", {"data": name, "records": 15}) in server.logged
    after = connect(url)
    assert (len(before), len(after)) == (10, 15)
    assert ids(before) == ids(before.read(range(10))) == list(range(10)) and ids(after) == list(range(15))
    server.add(tmp_path, name)  # as a server that was started again
    assert ids(before) == list(range(10))
    write(tmp_path / "a-1.tfrecord", [example(number) for number in range(20, 31)])
    server.service.refresh()
    for old in (before, after):
        with pytest.raises(tfrecord.StaleIndexError, match="Open it again"):
            old.read([1])
    assert ids(connect(url))[:2] == [20, 21]


def test_addresses_and_servers_that_are_not_there(server: LocalServer) -> None:
    for wrong in (
        "http://a/b",
        "grpc://host/name",
        "grpc://host:1/a/b",
        "grpc+unix:///x",
        "grpc://h:99999/n",
    ):
        with pytest.raises(ValueError, match="URL|write"):
            connect(wrong)
    with pytest.raises(ValueError) as caught:
        connect("grpc://user:secret-word@host:1/name")
    assert "secret-word" not in str(caught.value)
    with pytest.raises(tfrecord.RemoteError, match="127.0.0.1:9"):
        connect("grpc://127.0.0.1:9/name", request_timeout=0.01)
    with pytest.raises(KeyError, match="no data set"):
        connect(f"{server.location}/nothing-of-this-name")
    with pytest.raises(PermissionError, match="refuses the token") as caught:
        connect(f"{server.location}/x", token="some-other-token-of-ours")
    assert "some-other" not in str(caught.value)


def test_tokens_stay_out_of_sight(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.add(write(tmp_path / "a.tfrecord", [example(1)]))
    reader = connect(url, token=TOKEN)
    assert TOKEN not in repr(reader) and TOKEN.encode() not in pickle.dumps(reader)
    monkeypatch.delenv("TFRECORD_TOKEN")
    monkeypatch.setattr("tfrecord.flight.connection._TOKEN_WAIT", 0.1)
    with pytest.raises(PermissionError):
        pickle.loads(pickle.dumps(reader)).read([0])
