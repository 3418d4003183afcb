"""The page of `tfrecord view`: what it answers, to whom, and what a browser makes of it."""

from __future__ import annotations

import gzip
import html
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from samples import HOSTILE, MakeFile, Run, examples, odd_sequences, png, wave

from indexer.framing import frame_record
from tfrecord._cli.viewer.data import NotFound, Place, ViewData
from tfrecord._cli.viewer.server import ViewServer
from tfrecord._cli.viewer.vocab import Vocabulary
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.reader import TFRecordReader

pytestmark = pytest.mark.one_run

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def records() -> list[bytes]:
    made = examples(30)
    made[1] = encode_example({"label": (3, "int"), HOSTILE: (HOSTILE, "bytes"), "sound": (wave(), "bytes")})
    made[2] = encode_example(
        {"label": (1, "int"), "svg": (b"<svg onload=alert(1)>", "bytes"), "many": (range(50), "int")}
    )
    return made


@pytest.fixture
def server(run: Run, make_file: MakeFile, records: list[bytes]) -> Iterator[ViewServer]:
    path = make_file(records, "a<b>.tfrecord")
    assert run("index", "--columns", "label", path).code == 0
    with TFRecordReader(str(path), record_type="bytes") as reader, ViewServer(ViewData(reader)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def ask(server: ViewServer) -> Ask:
    """`ask("page?start=0")`: status, headers, body. `path` replaces the whole path, `headers` add to it."""

    def call(place: str = "", *, path: str | None = None, method: str = "GET", **headers: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        try:
            target = f"/{server.token}/{place}" if path is None else path
            connection.request(method, target, headers=headers)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    return call


def words(body: bytes) -> str:
    """The text of a page, without its style and script."""
    text = re.sub(r"<(style|script)>.*?</\1>", "", body.decode(), flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", text))


def places(body: bytes) -> list[int]:
    """The positions of the records on a page."""
    text = re.sub(r"<(style|script)>.*?</\1>", "", body.decode(), flags=re.DOTALL)
    return [int(found.replace(",", "")) for found in re.findall(r"#([\d,]+)<", text)]


def test_pages_of_records(ask: Ask) -> None:
    status, headers, body = ask("records?view=list&start=28&size=5")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    assert places(body) == [28, 29] and "29 to 30 of 30" in words(body)
    assert "PNG 4x2" in words(body) and "picture number 28, größer" in words(body)
    assert places(ask("records?view=list&start=999")[2]) == list(range(20, 30))
    assert places(ask("records?view=grid&start=-5&size=1")[2]) == [0]
    assert len(places(ask("records?size=1000000")[2])) == 30
    assert places(ask()[2]) == places(ask("records")[2])


def test_one_record(ask: Ask) -> None:
    body = ask("record?at=-1")[2]
    assert "Record 29 30 of 30" in re.sub(r"\s+", " ", words(body)) and "at=28" in body.decode()
    for wrong in ("30", "-31", "x", "1e3", ""):
        status, _, body = ask(f"record?at={wrong}")
        assert status == (200 if wrong == "" else 404) and b"<main" in body, wrong


def test_search(ask: Ask) -> None:
    body = ask("records?view=list&q=" + quote("label=3"))[2]
    assert len(places(body)) == 8 and {place % 4 for place in places(body)[1:]} == {3}
    assert "No record matches." in words(ask("records?q=" + quote("label=3 and label=1"))[2])
    assert places(ask("records?view=list&q=" + quote("label=2 and caption!=x"))[2]) == [6, 10, 14, 18, 22, 26]
    assert places(ask("records?view=list&q=" + quote("number 17, gr"))[2]) == [17]
    assert places(ask("records?view=list&q=" + quote('"number 17, gr"'))[2]) == [17]
    assert places(ask("records?view=list&q=" + quote("box>=6 and label=1"))[2]) == [25, 29]
    body = ask("records?q=nothing%3D1")[2]
    assert "No record has a feature 'nothing'" in words(body)
    status, _, body = ask("records?q=label%3Dx")
    assert status == 404 and "'x' is not a number" in words(body)
    assert "'x' is not a number" in words(ask("records?q=box%3Dx")[2])


def test_order(ask: Ask) -> None:
    labels = [3 if i == 1 else 1 if i == 2 else i % 4 for i in range(30)]
    for sort, order in (
        ("label", sorted(range(30), key=lambda i: labels[i])),
        ("-label", sorted(range(30), key=lambda i: -labels[i])),
    ):
        assert places(ask(f"records?view=grid&sort={sort}")[2]) == order
    assert places(ask("records?view=grid&sort=-label&q=label%3C2")[2])[:2] == [2, 5]
    assert ask("records?sort=nothing")[0] == 404


def test_overview(ask: Ask) -> None:
    text = words(ask("overview")[2])
    assert "Features of 30 records" in text and "a<b>.tfrecord" in text and "extended (label)" in text
    text = words(ask("overview?q=label%3D2")[2])
    assert "Features of 6 records found" in text


def test_media(ask: Ask) -> None:
    query = "media?position=0&name=image%2Fencoded"
    status, headers, body = ask(query)
    assert (status, headers["content-type"], body) == (200, "image/png", png(3, 2))
    assert headers["x-content-type-options"] == "nosniff" and "sandbox" in headers["content-security-policy"]
    assert "content-disposition" not in headers
    assert ask(query + "&save=1")[1]["content-disposition"] == "attachment; filename=record-0.png"
    assert ask("media?position=1&name=sound&index=0")[1]["content-type"] == "audio/wav"
    assert ask("thumb?position=0&name=image%2Fencoded")[2] == png(3, 2)
    # What a browser could run is never shown under its own type.
    _, headers, _ = ask("media?position=2&name=svg&index=0")
    assert (
        headers["content-type"] == "application/octet-stream"
        and "attachment" in headers["content-disposition"]
    )
    assert ask("thumb?position=2&name=svg")[0] == 404
    for wrong in (
        "position=99&name=x",
        "position=0&name=x",
        "position=0&name=label&index=0",
        "position=0&name=caption&index=1",
        "position=0&name=caption&step=0",
        "position=x",
        "index=-1",
    ):
        assert ask("media?" + wrong)[0] == 404
        assert ask("thumb?" + wrong)[0] == 404


def test_downloads(ask: Ask, records: list[bytes]) -> None:
    _, headers, body = ask("json?position=3")
    assert headers["content-disposition"] == "attachment; filename=record-3.json"
    found = json.loads(body)
    assert (found["record"], found["type"]) == (3, "example") and found["label"] == {"int64": [3]}
    _, headers, body = ask("frame?position=3")
    assert headers["content-disposition"] == "attachment; filename=record-3.tfrecord"
    assert body == frame_record(records[3])
    assert ask("json?position=30")[0] == 404


def test_only_with_the_secret_and_the_right_host(ask: Ask, server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    right = f"/{server.token}/records"
    assert ask(path=right)[0] == 200
    assert ask(path=right, Host=f"localhost:{server.server_port}")[0] == 200
    for host in (
        "evil.example",
        f"evil.example:{server.server_port}",
        "127.0.0.1",
        "",
        f"127.0.0.1:{server.server_port}.evil",
    ):
        assert ask(path=right, Host=host)[0] == 403, host
    tokens = ("", "/x", f"/{server.token[:-1]}", f"/{server.token}x", "/")
    for path in ("/", *(f"{token}/records" for token in tokens)):
        status, _, body = ask(path=path)
        assert status == 403 and body == b"no access\n", path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(path=right, method=method)[0] == 501
    assert ask(path=right, method="HEAD")[2] == b""


@pytest.mark.parametrize(
    "place", ["../../etc/passwd", "..%2f..%2fetc/passwd", "/etc/passwd", "page.html", "%00", "records/"]
)
def test_no_path_leads_to_a_file(ask: Ask, place: str) -> None:
    status, _, body = ask(place)
    assert status == 404 and b"root:" not in body


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://[/ HTTP/1.1",
        b"GET http://[/",
        b"GET / HTTP/9.x",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1",
        b"GET",
        b"nonsense",
        b"HEAD http://[ HTTP/1.1",
    ],
    ids=range(7),
)
def test_malformed_requests_are_answered(server: ViewServer, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(line + b"\r\nHost: 127.0.0.1\r\n\r\n")
        answer = connection.recv(1 << 16)
    assert re.match(rb"HTTP/1\.[01] (400|414) ", answer), answer[:100]


def test_what_goes_wrong_inside_is_an_answer(ask: Ask, server: ViewServer) -> None:
    server.data.store.close()
    server.data.record = lambda position: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    status, _, body = ask("records")
    assert status == 500 and "ZeroDivisionError" in words(body)


def test_text_that_hides_is_escaped(make_file: MakeFile) -> None:
    hiding = "\u061c\U000e0001\u202e\x9b"
    record = encode_example({"text": ("a\n" + hiding, "bytes"), hiding: ([1], "int")})
    with TFRecordReader(str(make_file([record], f"x{hiding}.tfrecord")), record_type="bytes") as reader:
        with ViewServer(ViewData(reader)) as server:
            pages = [server.listing.page({"view": view, "q": hiding}) for view in ("grid", "list")]
            pages += [server.single.page({}), server.overview.page(server.parts.state({}), {})]
            for page in pages:
                assert not set(hiding) & set(page.decode()) and b"x\\u061c" in page


def test_policy_lets_only_the_pages_own_script_run(ask: Ask) -> None:
    _, headers, body = ask()
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    text = body.decode()
    assert len(re.findall("<script", text)) == 1
    assert "innerHTML" not in text and not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for name in ("x-frame-options", "referrer-policy", "cross-origin-resource-policy", "cache-control"):
        assert name in headers


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[ViewServer]:
    """The pages of a file, without a server."""
    problems: list[Any] = []
    with TFRecordReader(str(path), record_type="bytes", on_error=problems.append) as reader:
        with ViewServer(ViewData(reader, problems=problems), **options) as server:
            yield server


def test_damaged_records_are_told_as_such(make_file: MakeFile, records: list[bytes]) -> None:
    records[3] = b"\xff\xfe no message"
    path = make_file(records)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(bytes(data[:-10]))
    with opened(path) as server:
        text = words(server.listing.page({"view": "list"}))
        assert "record 0 at offset 0: the checksum of the payload does not match (bad_payload_crc)" in text
        assert "00 00 00 00 00 00" in text and "record 29 at offset" in text and "truncated_record" in text
        assert "ff fe 20 6e 6f 20 6d 65" in text and str(path.parent) not in text
        text = words(server.single.page({"at": "0"}))
        assert "bad_payload_crc" in text and f"it has {path.stat().st_size:,} bytes" in text
        assert "damaged" in words(server.listing.page({"view": "grid"}))
        text = words(server.overview.page(server.parts.state({}), {}))
        assert "2 records are damaged or not valid messages" in text
        assert words(server.single.bytes_page({"file": "0", "offset": "99999999"}))
        for wrong in ({"file": "1"}, {"file": "-1"}):
            with pytest.raises(NotFound):
                server.single.bytes_page(wrong)


@pytest.mark.parametrize("data", [b"", png(), b"PAR1" + bytes(99), gzip.compress(png())], ids=range(4))
def test_files_that_are_not_tfrecord(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with opened(path) as server:
        text = words(server.listing.page({}))
        assert "There are no records." in text
        assert not data or "not a TFRecord file" in text
        assert "0 records" in words(server.overview.page(server.parts.state({}), {}))


def test_sequences_and_raw_records(make_file: MakeFile) -> None:
    with opened(make_file(odd_sequences(), "s")) as server:
        assert "3 steps" in words(server.listing.page({"view": "list"}))
    with opened(make_file([b"raw \xff", png(), b"\x1f\x8b"], "r")) as server:
        text = words(server.listing.page({"view": "list"}))
        assert "not an Example" in text and "72 61 77 20 ff" in text and "PNG 3x2" in text
        assert bytes(server.data.bytes_at(Place(1))) == png()
        assert "The records are not Examples" in words(server.overview.page(server.parts.state({}), {}))
        with pytest.raises(NotFound):
            server.listing.page({"q": "label=3"})
        assert places(server.listing.page({"q": "aw", "view": "list"})) == [0]


def test_records_of_very_many_features(make_file: MakeFile) -> None:
    wide = encode_example({f"f{i:05d}": (i, "int") for i in range(3000)})
    with opened(make_file([wide], "w")) as server:
        assert "and 2,800 more features" in words(server.listing.page({"view": "list"}))
        assert "f02999" in words(server.single.page({}))


def test_long_steps_come_in_parts(make_file: MakeFile) -> None:
    steps = {"x": ([[i] for i in range(450)], "int")}
    with opened(make_file([encode_sequence_example({}, steps)])) as server:
        assert "450 steps, 0 to 29 shown" in words(server.listing.page({"view": "list"}))
        page = server.single.page({"step": "200"})
        assert "450 steps, 200 to 399 shown" in words(page) and "step=400" in page.decode()


def test_tokens_are_shown_as_text(make_file: MakeFile) -> None:
    record = encode_example({"input_ids": ([0, 2, 1, 7], "int"), "n": ([0, 1], "int")})
    vocabulary = Vocabulary({0: "<b>", 1: "##ing", 2: "▁sing"})
    with opened(make_file([record]), vocabularies=[vocabulary]) as server:
        server.parts.vocabularies[0].feature = "input_ids"
        page = server.listing.page({"view": "list"}).decode()
        assert (
            '<span title="0">&lt;b&gt;</span><span title="2"> sing</span><span title="1">ing</span>' in page
        )
        assert "&lt;7&gt;" in page and "[0, 1]" in page


def test_tokens_of_steps_are_shown_as_text(make_file: MakeFile) -> None:
    steps = {"tokens": ([[0], [2, 1], [], list(range(3)) * 20], "int"), "widths": ([[0], [1]] * 2, "int")}
    vocabulary = Vocabulary({0: "<b>", 1: "##ing", 2: "▁sing"})
    with opened(make_file([encode_sequence_example({}, steps)]), vocabularies=[vocabulary]) as server:
        page = server.listing.page({"view": "list"}).decode()
        assert '<span title="2"> sing</span><span title="1">ing</span>' in page and "60 tokens" in page
        assert page.count("&lt;b&gt;") == 1 + 17 and "<td>1</td>" in page


def test_a_wrong_vocabulary_is_a_usage_error(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    wrong = tmp_path / "tokenizer.json"
    wrong.write_text("{}")
    for given, told in ((tmp_path / "none", "No such file"), (wrong, "not a tokenizer.json")):
        done = run("view", make_file(examples(2)), "--no-browser", "--vocab", given)
        assert done.code == 2 and told in done.err
