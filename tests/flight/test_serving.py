"""The server as a process: `tfrecord serve`, and `tfrecord.flight.serve`."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pyarrow.flight as flight
import pytest
from recorded import example, ids, write

import tfrecord
from tfrecord.flight import connect, serve
from tfrecord.flight.addresses import Address, is_loopback, new_token_file, own_token_path, read_token
from tfrecord.flight.running import Serving
from tfrecord.flight.served import check_names, named

pytest.importorskip("click")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TFRECORD_TOKEN", raising=False)
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "a-1.tfrecord", [example(number) for number in range(20)])
    return folder


@contextmanager
def command(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`tfrecord serve` with these arguments, and what it says when it is ready."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrecord", "serve", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def length(url: str) -> int:
    with connect(url) as reader:
        return len(reader)


def is_running(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_life_of_the_command(data: Path) -> None:
    metrics = ("--metrics-port", "0", "--refresh", "600")
    with command(str(data), f"second={data}/a-1.tfrecord", *metrics) as (process, told):
        first, second = told["data"]
        assert (first["name"], second["name"], first["records"]) == ("data", "second", 20)
        assert os.stat(told["token_file"]).st_mode & 0o777 == 0o600
        reader = connect(first["url"])  # with the token of this user
        assert ids(reader.read([3, 19])) == [3, 19]
        port = told["metrics_port"]
        assert answer(port, "/health")[0] == answer(port, "/ready")[0] == 200
        assert answer(port, "/../etc/passwd")[0] == 404
        text = answer(port, "/metrics")[1]
        assert 'tfrecord_rows_total{method="do_exchange"} 2\n' in text
        assert 'tfrecord_request_seconds_bucket{method="do_exchange",le="+Inf"} 1\n' in text
        write(data / "a-2.tfrecord", [example(number) for number in range(20, 25)])
        process.send_signal(signal.SIGHUP)
        until(lambda: length(first["url"]) == 25)
        assert ids(reader) == list(range(20))
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=60)
        assert process.returncode == 0 and not Path(told["token_file"]).exists()
        events = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
        assert [one["event"] for one in events if one["event"] != "request"] == [
            "refreshed",
            "draining",
            "stopped",
        ]
        asked = next(one for one in events if one.get("method") == "do_exchange")
        assert (asked["rows"], asked["data"]) == (2, "data") and asked["seconds"] >= 0


def test_a_restarted_server_loses_nothing(data: Path) -> None:
    token = data.parent / "token"
    with serve(data, token_file=token) as server:
        assert token.stat().st_mode & 0o777 == 0o600 and read_token(str(token)) == server.token
        port = Address.of(server.url).port
        reader = connect(server.url, token=server.token)
        records = iter(reader.batches(1, shuffle=True, seed=1))
        got = [ids(next(records))[0] for _ in range(5)]
        os.kill(server.pid, signal.SIGKILL)
    again = threading.Thread(target=lambda: got.extend(one for batch in records for one in ids(batch)))
    again.start()  # it waits for a server
    with serve(data, token_file=token, port=port):
        again.join(60)
        assert sorted(got) == list(range(20))
        with pytest.raises(OSError, match="in use|refuses|start"), serve(data, port=port):
            pass
    reader.close()


def test_several_processes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    opened = flight.connect
    monkeypatch.setattr(flight, "connect", lambda place, **more: asked.append(place) or opened(place, **more))
    turns = itertools.count()
    monkeypatch.setattr("tfrecord.flight.connection.secrets.randbelow", lambda stop: next(turns))
    with serve(data, processes=2, metrics_port=0) as server:
        readers = [connect(server.url) for _ in range(8)]
        asked.clear()
        for reader in readers:
            assert ids(reader) == list(range(20))
        assert [asked.count(place) for place in sorted(set(asked))] == [4, 4]
        port, counted = server.metrics_port, 'tfrecord_rows_total{method="do_get"} 160\n'
        assert port is not None
        until(lambda: counted in answer(port, "/metrics")[1])  # a server counts a scan when it has ended
        for reader in readers:
            reader.close()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_if_a_process_dies_all_end(data: Path, which: int) -> None:
    """The first is the one that started the others."""
    with command(str(data), "--processes", "2") as (process, told):
        first = str(process.pid)
        processes = [first, *Path(f"/proc/{first}/task/{first}/children").read_text().split()]
        assert len(processes) == 3
        os.kill(int(processes[which]), signal.SIGKILL)
        assert process.wait(200) == (1 if which else -signal.SIGKILL)
        until(lambda: not any(is_running(one) for one in processes))


def test_sockets_and_certificates(data: Path, tmp_path: Path) -> None:
    socket = tmp_path / "s.sock"
    with serve(data, unix=socket) as server:
        assert server.url == f"grpc+unix://{socket}?name=data"
        with connect(server.url) as reader:
            assert ids(reader.read([7])) == [7]
        with pytest.raises(OSError, match="another server"), serve(data, unix=socket):
            pass
    assert not socket.exists()
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([openssl, *words.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    with serve(data, host="localhost", tls_cert=cert, tls_key=key) as server:
        assert server.url.startswith("grpc+tls://localhost:")
        for roots in (cert, cert.read_bytes()):
            with connect(server.url, tls_roots=roots) as reader:
                assert ids(reader.read([7])) == [7]
        with pytest.raises(tfrecord.RemoteError):
            connect(server.url, request_timeout=0.5)  # the certificate is no public one
        with pytest.raises(tfrecord.RemoteError):
            connect(server.url.replace("+tls", ""), request_timeout=0.5)


def test_a_signal_that_another_thread_gets_ends_the_server(data: Path) -> None:
    """The system chooses the thread, which may be one of gRPC."""
    script = """if True:
        import os, signal, sys, threading, time
        from tfrecord.flight.running import Serving, run
        def end():
            while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "wait":
                time.sleep(0.01)
            time.sleep(0.2)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        os._exit(run(Serving({"a": sys.argv[1]}), lambda told: threading.Thread(target=end).start(), print))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script, str(data)], env=environment, timeout=200)
    assert done.returncode == 0


def test_draining_ends_requests_and_takes_no_new_ones(data: Path) -> None:
    with command(str(data), "--drain", "240", "--metrics-port", "0") as (process, told):
        url = told["data"][0]["url"]
        client = flight.connect(url.rpartition("/")[0])
        header = f"Bearer {read_token(told['token_file'])}".encode()
        options = flight.FlightCallOptions(headers=[(b"authorization", header)], timeout=240)
        # A scan whose client does not read it to its end keeps the server waiting.
        write(data / "big.tfrecord", [bytes(1_000_000)] * 64)
        process.send_signal(signal.SIGHUP)
        until(lambda: length(url) == 84)
        stream = client.do_get(
            flight.Ticket(json.dumps({"v": 1, "data": "data", "raw": True}).encode()), options
        )
        stream.read_chunk()
        process.send_signal(signal.SIGTERM)
        until(lambda: answer(told["metrics_port"], "/ready")[0] != 200)
        with pytest.raises(flight.FlightUnavailableError, match="shutting down"):
            list(client.do_action(flight.Action("health", b""), options))
        assert process.poll() is None
        assert sum(chunk.data.num_rows for chunk in stream) < 84  # all the rest
        assert process.wait(60) == 0
        client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "0.0.0.0"}, "clear text.*--insecure"),
        ({"host": "192.0.2.1"}, "clear text"),
        ({"host": "::"}, "clear text"),
        ({"tls_cert": "x"}, "certificate and its key"),
        ({"unix": "x", "port": 5}, "socket file"),
        ({"processes": 0}, "processes"),
        ({"processes": 2, "port": 65535}, "65535"),
        ({"sets": {"a/b": "x"}}, "NAME=PATH"),
        ({"sets": {"": "x"}}, "NAME=PATH"),
    ],
)
def test_what_is_not_safe_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Serving(**{"sets": {"a": "a"}, **options}).check()
    Serving({"a": "a"}, host="0.0.0.0", insecure=True).check()


def test_usage_errors_of_the_command(data: Path) -> None:
    from tfrecord.cli import main

    for words, code in (
        ([str(data), "--host", "0.0.0.0"], 2),
        ([str(data), str(data)], 2),
        ([str(data), "--max-bytes", "many"], 2),
    ):
        assert main(["serve", *words]) == code


def test_names_of_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("train=/data/x") == ("train", "/data/x")
    assert named("/data/train-00000-of-00010.tfrecord.gz")[0] == "train"
    assert named("/data/train@10")[0] == "train"
    assert named("/data/folder/") == ("folder", "/data/folder/")
    assert named("s3://bucket/a.tfrecord")[0] == "a"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").touch()
    assert named("a=b") == ("a=b", "a=b")
    with pytest.raises(ValueError, match="NAME=PATH"):
        check_names(["a=b"])


def test_token_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    token = new_token_file(str(path), own=False)
    assert read_token(str(path)) == token and len(token) >= 32
    with pytest.raises(FileExistsError):
        new_token_file(str(path), own=False)
    for mode in (0o640, 0o604, 0o622):
        path.chmod(mode)
        with pytest.raises(PermissionError, match="chmod 600"):
            read_token(str(path))
    path.chmod(0o600)
    for text in ("", "short", "two words of more than sixteen"):
        path.write_text(text)
        with pytest.raises(ValueError, match="one line"):
            read_token(str(path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own = Path(own_token_path(9000, ""))
    assert (
        new_token_file(str(own), own=True)
        != new_token_file(str(own), own=True)
        == read_token(str(own), own=True)
    )
    own.unlink()
    path.write_text("the secret of another program")
    path.chmod(0o600)
    own.symlink_to(path)
    with pytest.raises(OSError):
        read_token(str(own), own=True)
    own.parent.chmod(0o755)
    for call in (lambda: read_token(str(own), own=True), lambda: new_token_file(str(own), own=True)):
        with pytest.raises(PermissionError, match="this user alone"):
            call()


def test_addresses() -> None:
    assert Address.of("grpc://[::1]:9/a") == Address("grpc", "[::1]", 9, "", "a")
    assert Address.of("grpc+unix:///run/x.sock?name=a").location == "grpc+unix:///run/x.sock"
    local = ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")
    assert all(map(is_loopback, local))
    assert not any(
        map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""))
    )
