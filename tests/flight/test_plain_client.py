"""A client that knows only Arrow Flight and JSON, as one in another language would be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from local_server import TOKEN, LocalServer
from recorded import example, sequence, write

import tfrecord
from tfrecord import features
from tfrecord._columns import decoding
from tfrecord.sampling.permutation import Permutation

COUNT = 50


class Plain:
    """pyarrow's own client, with a token and JSON tickets."""

    def __init__(self, location: str, token: str | None = TOKEN) -> None:
        self.client = flight.connect(location)
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(headers=headers, timeout=60)

    def get(self, **ticket: Any) -> Any:
        data = json.dumps({"v": 1, **ticket}).encode()
        return self.client.do_get(flight.Ticket(data), self.options)

    def table(self, **ticket: Any) -> Any:
        return self.get(**ticket).read_all()

    def ids(self, **ticket: Any) -> list[int]:
        column = self.table(features={"id": "int"}, **ticket).column("id")
        return [one[0] for one in column.to_pylist()]

    def exchange(self, **ticket: Any) -> tuple[Any, Any, Callable[..., tuple[list[int], dict[str, Any]]]]:
        """A stream of ids, and what asks it: the ids, and what the last message said."""
        command = json.dumps({"v": 1, "features": {"id": "int"}, **ticket}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, reader = self.client.do_exchange(descriptor, self.options)

        def ask(number: int, **ticket: Any) -> tuple[list[int], dict[str, Any]]:
            writer.write_metadata(json.dumps({"id": number, "ticket": ticket}).encode())
            found: list[int] = []
            while True:
                chunk = reader.read_chunk()
                told = json.loads(chunk.app_metadata.to_pybytes())
                assert told["id"] == number
                if chunk.data is not None:
                    found += [one[0] for one in chunk.data.column("id").to_pylist()]
                if told["last"]:
                    return found, told

        return writer, reader, ask

    def action(self, kind: str, body: bytes = b"") -> Any:
        (found,) = self.client.do_action(flight.Action(kind, body), self.options)
        return json.loads(found.body.to_pybytes())

    def failure(self, **ticket: Any) -> dict[str, Any]:
        with pytest.raises(flight.FlightServerError) as caught:
            self.table(**ticket)
        return self.told(caught.value)

    def told(self, error: Any) -> dict[str, Any]:
        """The machine-readable part of an error, whose text holds no traceback."""
        assert "Traceback" not in str(error) and ".py" not in str(error)
        words: dict[str, Any] = msgpack.unpackb(error.extra_info)
        return words


@pytest.fixture
def plain(server: LocalServer) -> Any:
    client = Plain(server.location)
    yield client
    client.client.close()


@pytest.fixture
def data(server: LocalServer, tmp_path: Path) -> str:
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(COUNT)])
    tfrecord.build_index(path, columns=["id", "name"])
    return server.add(path).rpartition("/")[2]


def test_a_scan_gives_the_columns_of_the_reader(plain: Plain, data: str, tmp_path: Path) -> None:
    with tfrecord.TFRecordReader(tmp_path / "a.tfrecord") as reader:
        assert plain.table(data=data).equals(reader.to_arrow())
        assert plain.table(data=data, columns=["name"]).column_names == ["name"]
        raw = plain.table(data=data, raw=True)
        assert raw.schema == pa.schema([("record", pa.large_binary())])
        assert raw.column("record").to_pylist() == [example(number) for number in range(COUNT)]
    batches = [chunk.data.num_rows for chunk in plain.get(data=data, batch_size=20)]
    assert batches == [20, 20, 10]


def test_flights_are_listed_with_schema_and_counts(plain: Plain, data: str) -> None:
    described = plain.action("describe", json.dumps({"v": 1, "data": data}).encode())
    assert (described["num_records"], described["record_type"]) == (COUNT, "example")
    assert described["files"] == [["a.tfrecord", COUNT, ""]]
    listed = [
        one for one in plain.client.list_flights(b"", plain.options) if one.descriptor.path == [data.encode()]
    ]
    named = plain.client.get_flight_info(flight.FlightDescriptor.for_path(data), plain.options)
    for info in (*listed, named):
        assert (info.total_records, info.schema.names) == (COUNT, ["id", "list", "name"])
        table = plain.client.do_get(info.endpoints[0].ticket, plain.options).read_all()
        assert table.num_rows == COUNT and table.schema == info.schema
    assert len(listed) == 1


def test_a_set_without_one_schema_is_listed_with_payloads(
    plain: Plain, server: LocalServer, tmp_path: Path
) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write({"x": (1, "int")})
        writer.write({"x": (1.5, "float")})
    name = server.add(tmp_path / "a.tfrecord").rpartition("/")[2]
    info = plain.client.get_flight_info(flight.FlightDescriptor.for_path(name), plain.options)
    assert info.schema.names == ["record"]
    assert plain.client.do_get(info.endpoints[0].ticket, plain.options).read_all().num_rows == 2
    assert plain.failure(data=name)["type"] == "FeatureKindError"
    del server.service.sets[name]


def test_positions_and_slices(plain: Plain, data: str) -> None:
    assert plain.ids(data=data, positions=[7, 3, -1, 7]) == [7, 3, 49, 7]
    assert plain.ids(data=data, slice=[40, None, -7]) == list(range(40, -1, -7))
    packed = {"v": 1, "data": data, "raw": True, "positions": np.array([9, 1], "<i8").tobytes()}
    found = plain.client.do_get(flight.Ticket(msgpack.packb(packed)), plain.options).read_all()
    assert found.column("record").to_pylist() == [example(9), example(1)]
    assert plain.ids(data=data, positions=[]) == []
    assert plain.failure(data=data, positions=[COUNT])["type"] == "IndexError"


def test_orders_are_those_of_the_datasets(plain: Plain, data: str) -> None:
    whole = plain.ids(data=data, order={"shuffle": True, "seed": 3, "epoch": 2})
    assert whole == Permutation(COUNT, seed=3, epoch=2).positions(np.arange(COUNT)).tolist()
    order = {"shuffle": "block", "seed": 3, "world_size": 4}
    shares = [plain.ids(data=data, order={**order, "rank": rank}) for rank in range(4)]
    assert sorted(sum(shares, [])) == list(range(COUNT))
    assert plain.ids(data=data, order={**order, "rank": 1, "start": 5}) == shares[1][5:]
    padded = [
        plain.ids(data=data, order={"world_size": 4, "rank": rank, "split": "pad"}) for rank in range(4)
    ]
    assert [len(share) for share in padded] == [13] * 4
    told = [
        json.loads(chunk.app_metadata.to_pybytes())
        for chunk in plain.get(data=data, order={"world_size": 4, "rank": 3, "split": "pad"})
    ]
    assert told == [{"rows": 13, "padding": 1}]
    dropped = plain.ids(data=data, batch_size=20, order={"drop_last": True})
    assert dropped == list(range(40))


def test_conditions_on_index_columns(plain: Plain, data: str) -> None:
    assert plain.ids(data=data, where=[["id", ">=", 10], ["id", "<", 13]]) == [10, 11, 12]
    assert plain.ids(data=data, where=[["name", "in", ["n4", "n2", "x"]]]) == [2, 4]
    assert plain.ids(data=data, where=[["id", "!=", 0]], positions=[0, -1]) == [1, 49]
    assert plain.failure(data=data, where=[["od", "==", 1]])["type"] == "KeyError"
    assert "cannot be compared with 'x'" in plain.failure(data=data, where=[["id", "==", "x"]])["reason"]
    assert "64 bits" in plain.failure(data=data, where=[["id", "in", [1, 2**63]]])["reason"]
    kept = plain.table(data=data, index=["id", "len()", "offset()"])
    assert kept.column("id").to_pylist() == list(range(COUNT))
    assert kept.column("len()").to_pylist()[:2] == [len(example(0)), len(example(1))]
    assert kept.column("offset()").to_pylist()[:2] == [0, len(example(0)) + 16]


def test_sequence_examples_are_two_structs(plain: Plain, server: LocalServer, tmp_path: Path) -> None:
    path = write(tmp_path / "s.tfrecord", [sequence(number) for number in range(4)])
    name = server.add(path).rpartition("/")[2]
    table = plain.table(data=name)
    assert table.column_names == ["context", "feature_lists"]
    with tfrecord.TFRecordReader(path) as reader:
        local = reader.to_arrow()
    flat = table.flatten()
    assert [one.replace(".", "/", 1) for one in flat.column_names] == local.column_names
    assert [column.to_pylist() for column in flat.columns] == [column.to_pylist() for column in local.columns]


def test_an_exchange_answers_many_small_reads(plain: Plain, data: str) -> None:
    writer, reader, ask = plain.exchange(data=data)
    for number in range(20):
        assert ask(number, positions=[number, 2 * number])[0] == [number, 2 * number]
    assert "error" not in ask(20, slice=[0, 5, 1])[1]
    assert ask(21, positions=[COUNT])[1]["error"]["type"] == "IndexError"
    assert "same columns" in ask(22, features=["name"])[1]["error"]["reason"]
    assert ask(23, positions=[3])[0] == [3]  # an error ends nothing
    writer.write_metadata(b"no message")
    assert "error" in json.loads(reader.read_chunk().app_metadata.to_pybytes())
    writer.done_writing()
    with pytest.raises(StopIteration):
        reader.read_chunk()
    writer.close()


def test_an_exchange_sees_files_that_are_added(plain: Plain, server: LocalServer, tmp_path: Path) -> None:
    write(tmp_path / "a-1.tfrecord", [example(number) for number in range(10)])
    name = server.add(tmp_path).rpartition("/")[2]
    then = server.service.sets[name].current.fingerprint
    writer, _, ask = plain.exchange(data=name)
    assert ask(0)[0] == list(range(10))
    write(tmp_path / "a-2.tfrecord", [example(number) for number in range(10, 15)])
    server.service.refresh()
    assert ask(1)[0] == ask(2)[0] == list(range(15))
    assert ask(3, fingerprint=then)[0] == list(range(10)) and ask(4, positions=[-1])[0] == [14]
    writer.close()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"colums": ["id"]}, "did you mean 'columns'"),
    ({"v": 2}, "version"),
    ({"data": 5}, "name of a data set"),
    ({"positions": [1], "slice": [0, 1, 1]}, "at most one of"),
    ({"positions": [1.5]}, "integers"),
    ({"positions": [True]}, "integers"),
    ({"positions": "abc"}, "integers"),
    ({"slice": [0, 1]}, "start, stop, step"),
    ({"slice": [0, 1, 0]}, "not 0"),
    ({"order": {"shuffle": "all"}}, "shuffle"),
    ({"order": {"rank": 4, "world_size": 4}}, "rank"),
    ({"order": {"speed": 1}}, "order has no key"),
    ({"where": [["id", "~", 1]]}, "operator"),
    ({"where": [["id", "in", 1]]}, "list"),
    ({"batch_size": 0}, "batch_size"),
    ({"raw": True, "columns": ["id"]}, "exclude"),
    ({"raw": 1}, "true or false"),
    ({"features": {"id": {"spec": "odd"}}}, "spec"),
    ({"features": {"id": "int63"}}, "unknown type"),
    ({"features": {"id": {"spec": "fixed", "dtype": "int64", "shape": [-2]}}}, "shape"),
    ({"features": {"id": {"spec": "fixed", "dtype": "int64", "shape": [1 << 27]}}}, "max_bytes"),
    (
        {
            "features": {
                n: {"spec": "fixed", "dtype": "int64", "shape": [1 << 20], "default": 0} for n in "abc"
            }
        },
        "defaults have 3,145,728 values",
    ),
]


@pytest.mark.parametrize(("ticket", "words"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_wrong_tickets_are_refused_in_words(
    plain: Plain, data: str, ticket: dict[str, Any], words: str
) -> None:
    told = plain.failure(**{"data": data, **ticket})
    assert told["type"] == "ValueError" and words in told["reason"]


def test_nothing_is_kept_of_features_that_take_much_memory(plain: Plain, data: str) -> None:
    compiled = features._compile.cache_info().currsize
    wide = {"spec": "fixed", "dtype": "int64", "shape": [1 << 16], "default": 0}
    for number in range(3):
        table = plain.table(data=data, features={f"x{number}": wide}, positions=[number])
        assert table.num_rows == 1
        assert (
            plain.failure(data=data, features={f"x{number}": wide}, positions=[COUNT])["type"] == "IndexError"
        )
    many = plain.failure(data=data, features={str(number): "int" for number in range(2000)})
    assert many["type"] == "MissingFeatureError"
    assert decoding._decoder.cache_info().currsize == 0
    assert features._compile.cache_info().currsize == compiled


def test_what_is_not_there(plain: Plain, data: str) -> None:
    assert "did you mean" in plain.failure(data=data + "x")["reason"]
    assert plain.failure(data=data, columns=["nam"])["type"] == "KeyError"
    assert plain.failure(data=data, features={"nam": "bytes"})["type"] == "MissingFeatureError"
    assert plain.failure(data=data, fingerprint="0" * 32)["type"] == "StaleIndexError"
    for outside in ("../" + data, "/etc/passwd", data + "/../" + data, ""):
        assert plain.failure(data=outside)["type"] == "KeyError"
    with pytest.raises(flight.FlightServerError):
        plain.action("shutdown")


def test_no_server_path_leaves_the_server(plain: Plain, server: LocalServer, tmp_path: Path) -> None:
    good = write(tmp_path / "a.tfrecord", [example(number) for number in range(5)])
    bad = bytearray(good.read_bytes())
    tfrecord.build_index(good)
    bad[-6] ^= 1
    good.write_bytes(bad)
    name = server.add(good).rpartition("/")[2]
    with pytest.raises(flight.FlightServerError) as caught:
        plain.table(data=name)
    told = plain.told(caught.value)
    assert told | {"offset": 0} == {
        "type": "ChecksumError",
        "file": "a.tfrecord",
        "record": 4,
        "offset": 0,
        "reason": "bad_payload_crc",
    }
    assert str(tmp_path) not in str(caught.value) and "a.tfrecord: record 4" in str(caught.value)
    assert plain.ids(data=name, slice=[0, 4, 1]) == [0, 1, 2, 3]
    good.unlink()
    missing = server.service.sets[name].current
    missing.reader._view.store._files._open.clear()  # as if many other files had been read since then
    with pytest.raises(flight.FlightServerError, match="its log says why") as caught:
        plain.table(data=name)
    assert str(tmp_path) not in str(caught.value)
    assert any(str(tmp_path) in str(fields) for event, fields in server.logged if event == "failure")


def test_tokens_are_required(server: LocalServer, data: str) -> None:
    for token in (None, "", TOKEN + "x", TOKEN[:-1]):
        client = Plain(server.location, token)
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.table(data=data)
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.client.list_flights(b"", client.options))
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.action("health")
        client.client.close()
    assert server.service.counters.read()["unauthenticated"] >= 12


def test_limits(start: Callable[..., LocalServer], tmp_path: Path) -> None:
    small = start(max_rows=16, max_bytes=4096, max_calls=3)
    path = write(tmp_path / "a.tfrecord", [example(number) for number in range(40)] + [bytes(5000)])
    name = small.add(path, record_type="bytes").rpartition("/")[2]
    client = Plain(small.location)
    assert [chunk.data.num_rows for chunk in client.get(data=name, raw=True, slice=[0, 40, 1])] == [16, 16, 8]
    told = client.failure(data=name, raw=True, positions=[40])
    assert "a.tfrecord: record 40 has 5,000 bytes" in told["reason"] and "max_bytes" in told["reason"]
    reader = tfrecord.connect(f"{small.location}/{name}", token=TOKEN)
    assert len(reader.read_raw(range(40))) == 40  # the client splits its requests
    with pytest.raises(ValueError, match="record 40"):
        reader.raw(40)
    reader.close()
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"v": 1, "data": name, "raw": True}).encode())
    held = []
    for _ in range(3):
        held.append(client.client.do_exchange(descriptor, client.options))
        held[-1][0].write_metadata(json.dumps({"id": 1, "ticket": {"positions": [0]}}).encode())
        held[-1][1].read_chunk()
    with pytest.raises(flight.FlightUnavailableError, match="max_calls=3"):
        client.table(data=name, raw=True, positions=[1])
    for writer, _ in held:
        writer.close()
    assert client.table(data=name, raw=True, positions=[1]).num_rows == 1
    client.client.close()


def test_calls_end_in_time_and_readers_go_on(start: Callable[..., LocalServer], tmp_path: Path) -> None:
    hasty = start(timeout=1e-9)
    url = hasty.add(write(tmp_path / "a.tfrecord", [example(number) for number in range(9000)]))
    client = Plain(hasty.location)
    with pytest.raises(flight.FlightTimedOutError):
        client.table(data=url.rpartition("/")[2], raw=True)
    client.client.close()
    with tfrecord.connect(url, token=TOKEN) as reader:
        assert sum(1 for _ in reader.batches(1000)) == 9
        assert len(reader.read_raw(range(100))) == len(reader.read_raw(range(100, 200))) == 100
