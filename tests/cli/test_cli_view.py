"""The page of `tfrecord view`: what it answers, to whom, and what a browser makes of it."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from samples import HOSTILE, MakeFile, Run, examples, odd_sequences, png, wave

from tfrecord._cli.viewer.data import ViewData
from tfrecord._cli.viewer.server import ViewServer
from tfrecord.encode import encode_example
from tfrecord.reader import TFRecordReader

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


def test_pages_of_records(ask: Ask) -> None:
    status, headers, body = ask("page?start=28&count=5")
    found = json.loads(body)
    assert status == 200 and headers["content-type"] == "application/json"
    assert (found["total"], found["start"]) == (30, 28)
    assert [record["position"] for record in found["records"]] == [28, 29]
    record = found["records"][0]
    features = {item["name"]: item for item in record["features"]}
    assert features["label"]["text"] == "0" and features["image/encoded"]["media"][0]["label"] == "PNG 4x2"
    assert json.loads(ask("page?start=999")[2])["records"] == []
    assert json.loads(ask("page?start=-5&count=1")[2])["records"][0]["position"] == 0
    assert len(json.loads(ask("page?start=0&count=1000000")[2])["records"]) == 30


def test_search_and_histograms(ask: Ask) -> None:
    found = json.loads(ask("page?where=" + quote("label=3"))[2])
    assert found["total"] == 8 and {record["position"] % 4 for record in found["records"][1:]} == {3}
    assert json.loads(ask("page?where=" + quote("label=3 and label=1"))[2])["total"] == 0
    chart = json.loads(ask("histogram?name=label")[2])
    assert [bar["count"] for bar in chart["bars"]] == [8, 8, 6, 8] and not chart["sampled"]
    chart = json.loads(ask("histogram?name=box")[2])
    assert sum(bar["count"] for bar in chart["bars"]) == 56
    chart = json.loads(ask("histogram?name=caption&where=" + quote("label=2"))[2])
    assert len(chart["bars"]) == 6
    for place in ("page?where=" + quote("nothing=1"), "page?where=x", "histogram?name=nothing"):
        status, _, body = ask(place)
        assert status == 404 and json.loads(body)["error"]
    assert "tfrecord index" in json.loads(ask("page?where=box=1")[2])["error"]


def test_media(ask: Ask, records: list[bytes]) -> None:
    query = "media?position=0&name=image%2Fencoded&where=&index=0"
    status, headers, body = ask(query)
    assert (status, headers["content-type"], body) == (200, "image/png", png(3, 2))
    assert headers["x-content-type-options"] == "nosniff" and "sandbox" in headers["content-security-policy"]
    assert ask("media?position=1&name=sound&index=0")[1]["content-type"] == "audio/wav"
    # What a browser could run is never shown under its own type.
    _, headers, _ = ask("media?position=2&name=svg&index=0")
    assert (
        headers["content-type"] == "application/octet-stream"
        and "attachment" in headers["content-disposition"]
    )
    for wrong in (
        "position=99&name=x",
        "position=0&name=x",
        "position=0&name=label&index=0",
        "position=x",
        "index=-1",
    ):
        assert ask("media?" + wrong)[0] == 404


def test_only_with_the_secret_and_the_right_host(ask: Ask, server: ViewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    right = f"/{server.token}/info"
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
    for path in ("/", "/info", "/x/info", f"/{server.token[:-1]}/info", f"/{server.token}x/info", "//info"):
        status, _, body = ask(path=path)
        assert status == 403 and body == b"no access\n", path
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(path=right, method=method)[0] == 501
    assert ask(path=right, method="HEAD")[2] == b""


@pytest.mark.parametrize(
    "place", ["../../etc/passwd", "..%2f..%2fetc/passwd", "/etc/passwd", "page.html", "%00", "info/"]
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
    server.data.reader.close()
    server.data.info = lambda: 1 / 0  # type: ignore[assignment]
    status, _, body = ask("info")
    assert status == 500 and "ZeroDivisionError" in json.loads(body)["error"]


def test_text_that_hides_is_escaped(make_file: MakeFile) -> None:
    hiding = "\u061c\U000e0001\u202e\x9b"
    record = encode_example({"text": ("a\n" + hiding, "bytes"), "n": ([1], "int")})
    with TFRecordReader(str(make_file([record], f"x{hiding}.tfrecord")), record_type="bytes") as reader:
        data = ViewData(reader)
        for found in (data.record(0), data.record(0, full=True), data.info(), data.histogram("text", "")):
            assert not set(hiding) & set(json.dumps(found, ensure_ascii=False))


def test_policy_lets_only_the_pages_own_script_run(ask: Ask) -> None:
    _, headers, body = ask()
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    text = body.decode()
    assert (
        len(re.findall("<script", text)) == 1 and not re.search(r"\son\w+=", text) and "innerHTML" not in text
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for name in ("x-frame-options", "referrer-policy", "cross-origin-resource-policy", "cache-control"):
        assert name in headers


def test_damaged_record_is_shown_as_damaged(make_file: MakeFile, records: list[bytes]) -> None:
    path = make_file(records)
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(bytes(data))
    with TFRecordReader(str(path), record_type="bytes") as reader:
        found = ViewData(reader).page(0, 3, "")
    assert (
        "bad_payload_crc" in found["records"][0]["error"]
        and str(path.parent) not in found["records"][0]["error"]
    )
    assert found["records"][1]["features"]


def test_sequences_and_raw_records(make_file: MakeFile) -> None:
    with TFRecordReader(str(make_file(odd_sequences(), "s")), record_type="bytes") as reader:
        steps = {item["name"]: item for item in ViewData(reader).record(0)["features"]}
        assert steps["t"]["kind"] == "steps" and steps["t"]["text"].startswith("3 steps")
    with TFRecordReader(str(make_file([b"raw \xff", png()], "r")), record_type="bytes") as reader:
        data = ViewData(reader)
        assert data.record(0)["type"] == "bytes"
        assert data.record(1)["features"][0]["media"][0]["label"] == "PNG 3x2"
        assert data.media(1, "", "", 0)[1] == png()
        assert data.info()["features"] == []
    with TFRecordReader(str(make_file([], "e")), record_type="bytes") as reader:
        assert ViewData(reader).page(0, 10, "")["records"] == []


def test_records_of_very_many_features(make_file: MakeFile) -> None:
    wide = encode_example({f"f{i:05d}": (i, "int") for i in range(3000)})
    with TFRecordReader(str(make_file([wide], "w")), record_type="bytes") as reader:
        record = ViewData(reader).page(0, 1, "")["records"][0]
        assert (len(record["features"]), record["hidden"]) == (200, 2800)
        assert len(ViewData(reader).record(0, full=True)["features"]) == 3000


# In a browser.

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")


def browse(profile: Path, url: str, *options: str) -> str:
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=8000",
        *options,
        url,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@needs_browser
def test_the_page_in_a_browser(server: ViewServer, tmp_path: Path) -> None:
    dom = browse(tmp_path, server.url + "#column=label&size=10", "--dump-dom")
    assert 'data-ready="yes"' in dom and "30 records" in dom
    assert dom.count("<article>") == 10
    assert "<title>a&lt;b&gt;.tfrecord</title>" in dom  # and not "owned"
    assert '<div class="bar">' in dom and "<polyline" in dom and "<audio" in dom and "media?position=0" in dom
    assert "&lt;script&gt;document.title=" in dom and "<svg onload" not in dom


@needs_browser
def test_names_that_hide_are_escaped_in_a_browser(make_file: MakeFile, tmp_path: Path) -> None:
    name = "n\u061c\U000e0001\u202e"
    path = make_file([encode_example({name: (1, "int")})])
    with TFRecordReader(str(path), record_type="bytes") as reader, ViewServer(ViewData(reader)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        dom = browse(tmp_path, server.url, "--dump-dom")
        server.shutdown()
        thread.join()
    shown = re.sub(r"<script>.*</script>|data-name=\"[^\"]*\"", "", dom, flags=re.DOTALL)
    assert "n\\u{61c}\\u{e0001}\\u{202e}" in shown and not set(name[1:]) & set(shown)


@needs_browser
def test_search_in_a_browser(server: ViewServer, tmp_path: Path) -> None:
    dom = browse(tmp_path, server.url + "#where=label%3D3&start=0", "--dump-dom")
    assert "8 records fit" in dom and dom.count("<article>") == 8
    dom = browse(tmp_path, server.url + "#where=nothing%3D3", "--dump-dom")
    assert "has no column" in dom and "<article>" not in dom


@needs_browser
@pytest.mark.parametrize("size", ["1300,900", "420,900"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots(server: ViewServer, tmp_path: Path, size: str, scheme: str) -> None:
    place = tmp_path / "shot.png"
    options = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    browse(
        tmp_path / "profile",
        server.url + "#column=label",
        f"--window-size={size}",
        f"--screenshot={place}",
        *options,
    )
    image = pytest.importorskip("PIL.Image").open(place).convert("L")
    corner = image.getpixel((image.width - 3, image.height - 3))
    assert corner < 60 if scheme == "dark" else corner > 200
    assert len(set(image.tobytes())) > 20
