"""A small HTTP server of files in memory: it answers ranges, counts requests, and fails as it is told."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TOO_MUCH = 256 << 20
FAULTS = ("503", "429", "timeout", "reset", "short", "long", "200", "wrong range")


@dataclass
class RangeServer:
    """``files`` by name; ``faults`` maps the number of a request (from 0) to one of `FAULTS`, "403" or "404".
    With "changed" all files have another ETag from that request on."""

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    faults: dict[int, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, tuple[int, int] | None]] = field(default_factory=list)
    hang: float = 5.0
    on_request: Callable[[int], None] | None = None
    on_body: Callable[[int, int], None] | None = None
    port: int = 0
    too_much: int = 0  # bytes that clients took after the end of what they asked for
    most_at_once: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def etag(self, name: str) -> str:
        return self.etags.get(name, f'"{len(self.files[name])}"')

    def enter(self, method: str, name: str, wanted: tuple[int, int] | None) -> int:
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, name, wanted))
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        if self.on_request is not None:
            self.on_request(number)
        return number

    def leave(self) -> None:
        with self._lock:
            self._now -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: RangeServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, with_body: bool) -> None:
        name = unquote(self.path.lstrip("/"))
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        wanted = (int(match[1]), int(match[2]) + 1 if match[2] else 1 << 62) if match else None
        server = self.served
        number = server.enter(self.command, name, wanted)
        try:
            if server.delay:
                time.sleep(server.delay)
            self.send(name, wanted, with_body, server.faults.get(number, ""))
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            server.leave()

    def send(self, name: str, wanted: tuple[int, int] | None, with_body: bool, fault: str) -> None:
        server = self.served
        if fault == "timeout":
            time.sleep(server.hang)
        if fault == "changed":
            server.etags = dict.fromkeys(server.files, '"changed"')
        if fault in ("timeout", "reset"):
            self.close_connection = True
            self.connection.close()
            return
        status = int(fault) if fault in ("503", "429", "403", "404") else server.statuses.get(name, 0)
        if not status and name not in server.files:
            status = 404
        matched = self.headers.get("If-Match")
        if not status and matched is not None and matched != server.etag(name):
            status = 412
        if status:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if server.on_body is not None and with_body:
            server.on_body(*(wanted or (0, 1 << 62)))
        body = server.files[name]
        start, end = wanted or (0, len(body))
        end = min(end, len(body))
        whole = wanted is None or fault == "200"
        part = body if whole else body[start:end]
        self.send_response(200 if whole else 206)
        more = TOO_MUCH if fault == "long" and with_body else 0
        self.send_header("Content-Length", str(len(part) + more))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", server.etag(name))
        self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
        if not whole:
            moved = 1 if fault == "wrong range" else 0
            self.send_header("Content-Range", f"bytes {start + moved}-{end - 1 + moved}/{len(body)}")
        self.end_headers()
        if with_body:
            self.wfile.write(part[: len(part) // 2] if fault == "short" else part)
        for _ in range(0, more, 1 << 20):
            self.wfile.write(bytes(1 << 20))
            server.too_much += 1 << 20
        if fault == "short":
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.connections: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: object) -> None:
        self.connections.discard(request)  # type: ignore[arg-type]
        super().shutdown_request(request)  # type: ignore[arg-type]

    def close_connections(self) -> None:
        """End those that clients keep open: their threads wait for the next request."""
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serve(**options: object) -> Iterator[RangeServer]:
    """A server on the loopback, until the block ends."""
    served = RangeServer(**options)  # type: ignore[arg-type]
    handler = type("Handler", (_Handler,), {"served": served})
    server = _Server(("127.0.0.1", 0), handler)
    served.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        server.close_connections()
        thread.join()
