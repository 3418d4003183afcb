"""A server from its start to its end: token, address, processes, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from tfrecord._optional import optional
from tfrecord.flight.addresses import (
    is_loopback,
    new_token_file,
    own_token_path,
    read_token,
    remove_own_token,
)
from tfrecord.flight.counters import Counters
from tfrecord.flight.metrics import MetricsServer
from tfrecord.flight.served import DataSet, check_names
from tfrecord.flight.server import Log, Service, ServiceOptions

__all__ = ["Serving", "json_log", "run"]

Say = Callable[[Mapping[str, Any]], object]
_SHUTDOWN_SECONDS = 1.0


@dataclass(frozen=True)
class Serving:
    """What a server serves, where and how: the options of `tfrecord serve`, by their names."""

    sets: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 0
    unix: str | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    processes: int = 1
    refresh: float | None = None
    drain: float = 30.0
    metrics_port: int | None = None
    limits: ServiceOptions = ServiceOptions()
    reader_options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raises ValueError for options that do not go together, or are not safe."""
        self.limits.checked()
        check_names(self.sets)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs both a certificate and its key")
        if self.unix is not None and (self.tls_cert is not None or self.port or self.processes > 1):
            raise ValueError("a server on a socket file has no port, no TLS, and one process")
        if self.processes < 1:
            raise ValueError(f"processes is {self.processes}; it must be at least 1")
        if self.port + self.processes > 65_536:
            raise ValueError(f"{self.processes} processes need ports from {self.port} on; the last is 65535")
        if self.unix is None and self.tls_cert is None and not is_loopback(self.host) and not self.insecure:
            raise ValueError(
                f"{self.host} is reached from other hosts, so the token and records would travel in clear "
                "text: give a certificate and its key, or allow it (--insecure, in Python insecure=True)"
            )

    def location(self, port: int) -> str:
        """The address, as pyarrow and clients write it."""
        if self.unix is not None:
            return f"grpc+unix://{os.path.abspath(self.unix)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'grpc' if self.tls_cert is None else 'grpc+tls'}://{host}:{port}"

    def url(self, name: str, port: int) -> str:
        """The URL of a data set."""
        return f"{self.location(port)}?name={name}" if self.unix else f"{self.location(port)}/{name}"


def json_log(event: str, fields: Mapping[str, Any]) -> None:
    """A line of JSON on standard error; a log that cannot be written stops nothing."""
    with suppress(OSError, ValueError):
        os.write(2, (json.dumps({"event": event, **fields}, default=str) + "\n").encode())


def run(serving: Serving, say: Say, log: Log) -> int:
    """Serve until SIGTERM or SIGINT, then drain; the exit code. Only for the main thread of a process that
    ends with `os._exit` afterwards, because calls of clients may still be open.

    ``say`` gets a description of the server when it takes calls. SIGHUP looks for added files.

    Raises:
        OSError: an address is not free, or a file cannot be read. Also as `Serving.check` and readers.
    """
    from tfrecord.flight.methods import start_server  # imports pyarrow

    serving.check()
    tls = None
    if serving.tls_cert is not None and serving.tls_key is not None:
        tls = _content(serving.tls_cert), _content(serving.tls_key)
    ports = _free_ports(serving)
    sets = {name: DataSet(name, path, serving.reader_options) for name, path in serving.sets.items()}
    counters = Counters(serving.processes)
    metrics: MetricsServer | None = None
    if serving.metrics_port is not None:
        host = "127.0.0.1" if serving.unix is not None else serving.host
        metrics = MetricsServer(counters, host, serving.metrics_port)
    token, token_path = _token(serving, ports[0])

    def work(number: int, announce: Callable[[], object]) -> None:
        service = Service(sets, serving.limits, counters, log, ports)
        server = start_server(service, serving.location(ports[number]), token, tls)
        _until_stopped(service, serving, announce, metrics)
        ending = threading.Thread(target=server.shutdown, daemon=True)
        ending.start()
        ending.join(_SHUTDOWN_SECONDS)  # it waits for clients that hold calls open

    def announce() -> None:
        if metrics is not None:
            metrics.start()
        described = [
            {
                "name": name,
                "url": serving.url(name, ports[0]),
                "records": found.current.num_records,
                "record_type": found.current.record_type,
            }
            for name, found in sets.items()
        ]
        metrics_port = None if metrics is None else metrics.port
        say({"data": described, "token_file": token_path, "metrics_port": metrics_port, "pid": os.getpid()})

    try:
        if serving.processes > 1:
            return _with_children(serving.processes, counters, work, announce, metrics)
        work(0, announce)
        return 0
    finally:
        if serving.token_file is None:
            remove_own_token(token_path, token)
        if serving.unix is not None:
            with suppress(OSError):
                os.unlink(serving.unix)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _token(serving: Serving, port: int) -> tuple[str, str]:
    """The token and its file, which is made where it is not there yet."""
    if serving.token_file is None:
        path = own_token_path(port, serving.unix or "")
        return new_token_file(path, own=True), path
    try:
        return read_token(serving.token_file), serving.token_file
    except FileNotFoundError:
        return new_token_file(serving.token_file, own=False), serving.token_file


def _free_ports(serving: Serving) -> list[int]:
    """A port for each process: those from ``port`` on, or any that are free. OSError if one is taken.

    (pyarrow's servers cannot share a port: it turns SO_REUSEPORT off.)
    """
    if serving.unix is not None:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(serving.unix)
            except OSError:
                return [0]
        raise OSError(f"{serving.unix}: another server uses this socket")
    with ExitStack() as stack:
        ports = []
        for number in range(serving.processes):
            wanted = serving.port + number if serving.port else 0
            found = socket.getaddrinfo(serving.host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            probe = stack.enter_context(socket.socket(found[0][0], socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(found[0][4])
            except OSError as error:
                raise OSError(error.errno, f"{serving.host}:{wanted}: {error.strerror}") from None
            ports.append(int(probe.getsockname()[1]))
        return ports


class _Wake:
    """Wakes the main thread at a signal. The system may give a signal to any thread, such as one of gRPC, and
    Python runs its handler when the main thread goes on, which a lock would not do."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._writing.setblocking(False)
        signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)

    def up(self) -> None:
        """Wake it from another process, which was forked from this one: a byte 0."""
        self._writing.send(b"\0")

    def wait(self, seconds: float | None) -> bytes:
        """The numbers of the signals that came, whose handlers have run; none after these seconds."""
        self._reading.settimeout(seconds)
        try:
            return self._reading.recv(4096)
        except TimeoutError:
            return b""


def _until_stopped(
    service: Service, serving: Serving, announce: Callable[[], object], metrics: MetricsServer | None
) -> None:
    """Refresh now and then, until a signal says to stop; then drain. A second signal ends the process."""
    stopping: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if stopping:
            os._exit(1)
        stopping.append(number)

    wake = _Wake()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, _do_nothing)
    announce()
    while not stopping:
        wake.wait(serving.refresh)
        if not stopping:
            service.refresh()
    service.draining = True
    if metrics is not None:
        metrics.ready = False
    service.log("draining", {})
    service.drain(serving.drain)
    service.log("stopped", {})


def _do_nothing(number: int, frame: Any) -> None:
    """The handler of a signal that only wakes the main thread."""


def _with_children(
    count: int,
    counters: Counters,
    work: Callable[[int, Callable[[], object]], None],
    announce: Callable[[], object],
    metrics: MetricsServer | None,
) -> int:
    """Work in some forked processes; if one of them or this one dies, all end, with the exit code 1."""
    alive, held = os.pipe()  # only this process holds the other end
    children: set[int] = set()
    asked: list[int] = []

    def forward(number: int, frame: Any) -> None:
        asked.append(number)
        for child in children:
            os.kill(child, number)

    wake = _Wake()
    signal.signal(signal.SIGCHLD, _do_nothing)
    for number in range(count):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(held)
                _end_after(alive)
                if metrics is not None:
                    metrics.close()
                counters.process = number
                work(number, wake.up)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.add(child)
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signal_number, forward)
    code = ready = 0
    while children:
        ready += (told := wake.wait(None)).count(0)
        if 0 in told and ready == count and not set(asked) & {signal.SIGTERM, signal.SIGINT}:
            announce()
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                children.discard(child)
                if metrics is not None:
                    metrics.ready = False
                if status or not set(asked) & {signal.SIGTERM, signal.SIGINT}:
                    code = 1
                    for other in children:
                        os.kill(other, signal.SIGTERM)
    return code


def _end_after(descriptor: int) -> None:
    """End this process, as SIGTERM does, when nobody holds the other end of a pipe any more."""

    def follow() -> None:
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()


def main(given: Mapping[str, Any]) -> None:
    """What `serving.serve` runs in a process of its own: it ends when its parent does."""
    options = dict(given)
    limits = ServiceOptions(**options.pop("limits"))
    serving = Serving(**options, limits=limits)

    def say(words: Mapping[str, Any]) -> None:
        _end_after(0)  # standard input
        os.write(1, (json.dumps(words) + "\n").encode())

    def quiet(event: str, fields: Mapping[str, Any]) -> None:
        if event == "failure":
            json_log(event, fields)

    code = 1
    try:
        optional("pyarrow.flight")
        code = run(serving, say, quiet)
    except Exception as error:
        os.write(1, (json.dumps({"failed": type(error).__name__, "reason": str(error)}) + "\n").encode())
    os._exit(code)
