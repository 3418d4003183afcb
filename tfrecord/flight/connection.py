"""A client's connection to a server: its token, lost connections, forked processes."""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from indexer.errors import RemoteError
from indexer.stores import StoreOptions
from tfrecord._optional import optional
from tfrecord._reading.locks import ForkSafeLock
from tfrecord.flight.addresses import Address, own_token_path, read_token
from tfrecord.flight.failures import decode_error
from tfrecord.flight.tickets import decode_message, encode_message

__all__ = ["Connection", "Stream"]

# A stream is opened anew before a server with the usual timeout of 300 seconds ends it.
_STREAM_SECONDS = 240.0
_IDLE_STREAMS = 4
_FIRST_WAIT, _MOST_WAIT = 0.05, 1.0
_FORK_WAIT = 1.0
_CHILD_WAIT = 20.0
# How long a token that a server of this user made may be the one of an earlier server.
_TOKEN_WAIT = 5.0
_THREADS = ("event_engine", "grpc", "resolver-execut", "default-executo", "lifeguard", "timer_manager")

_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_forking = threading.RLock()
_hooked: list[bool] = []
_left_running = False  # in a forked child: gRPC was running in its parent, so it may hang here


class _Lost(Exception):
    """The connection was closed because the process forks; it is opened again."""


class Connection:
    """Calls to one server, from any thread and process. Opens nothing until the first call.

    ``options``: ``storage_options`` may hold ``token`` and ``tls_roots``; ``request_timeout`` is how long a
    server that is gone is waited for.
    """

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.address, self.options = address, options
        self.ports: list[int] = []  # of the server's processes, when they are known
        self._lock = ForkSafeLock()
        self._fresh()

    def _fresh(self) -> None:
        self._client: Any = None
        self._turn = secrets.randbelow(1 << 16)  # which of the server's processes this one asks
        self._token = ""
        self.token_given = False
        self._process = os.getpid()
        self._idle: dict[bytes, list[Stream]] = {}
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "options": self.options, "ports": self.ports}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()
        self._fresh()

    # ---- opening -------------------------------------------------------------------------------------------

    def client(self) -> tuple[Any, Any]:
        """The client of this process, and the options of a call."""
        flight = optional("pyarrow.flight")
        with _forking, self._lock:
            if self._process != os.getpid():
                self._fresh()
            if self._client is None:
                _register()
                _connections.add(self)
                settings = self.options.settings()
                self._client = _opened(lambda: self._open(flight, settings))
            if not self._token:
                self._token, self.token_given = self._find_token(self.options.settings().get("token"))
            header = (b"authorization", b"Bearer " + self._token.encode())
            return self._client, flight.FlightCallOptions(timeout=2 * _STREAM_SECONDS, headers=[header])

    def _open(self, flight: Any, settings: dict[str, Any]) -> Any:
        options: dict[str, Any] = {}
        roots = settings.get("tls_roots")
        if roots is not None:
            if not isinstance(roots, bytes):
                with open(roots, "rb") as file:
                    roots = file.read()
            options["tls_root_certs"] = roots
        generic: list[tuple[str, Any]] = [
            ("grpc.use_local_subchannel_pool", 1),  # readers of different tokens share no connection
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if self.address.scheme != "grpc+tls":
            generic.append(("grpc.enable_http_proxy", 0))  # a proxy would see the token
        address = self.address
        if self.ports and not address.socket:
            address = address._replace(port=self.ports[self._turn % len(self.ports)])
        return flight.connect(address.location, generic_options=generic, **options)

    def _find_token(self, given: Any) -> tuple[str, bool]:
        """The token, and whether the user said it."""
        if given is not None:
            if not isinstance(given, str):
                raise TypeError(f"token is a str, not {type(given).__name__}")
            return given, True
        if os.environ.get("TFRECORD_TOKEN"):
            return os.environ["TFRECORD_TOKEN"], True
        if os.environ.get("TFRECORD_TOKEN_FILE"):
            return read_token(os.environ["TFRECORD_TOKEN_FILE"]), False
        if self.address.is_local:  # what is secret of this host is told to no other
            try:
                return read_token(own_token_path(self.address.port, self.address.socket), own=True), False
            except FileNotFoundError:
                pass
        return "", False

    def spread(self, ports: list[int]) -> None:
        """From now on ask any of the server's processes, which have these ports."""
        self.ports = ports
        if len(ports) > 1:
            self.close()

    def begin_again(self) -> None:
        """Look for the token again, since a new server makes a new one, and ask another process."""
        with self._lock:
            self._token = ""
            if len(self.ports) > 1:
                self._turn += 1
                self._client = None  # others may still read from it

    # ---- calling -------------------------------------------------------------------------------------------

    def action(self, kind: str, body: bytes) -> dict[str, Any]:
        """The answer of an action."""
        flight = optional("pyarrow.flight")

        def once() -> dict[str, Any]:
            client, options = self.client()
            found = list(client.do_action(flight.Action(kind, body), options))
            return decode_message(found[0].body.to_pybytes(), limited=False)[0]

        tries = Tries(self)
        while True:
            try:
                return once()
            except Exception as error:
                tries.failed(error)

    def get(self, ticket: bytes) -> Stream:
        """The stream of a ticket's record batches."""
        client, options = self.client()
        reader = client.do_get(optional("pyarrow.flight").Ticket(ticket), options)
        return self._kept(Stream(reader, None))

    def ask(self, command: bytes, ticket: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Record batches and their metadata for one message of an exchange; the last may have no batch, and
        an ``error`` instead."""
        stream = self._idle_stream(command)
        if stream is None:
            flight = optional("pyarrow.flight")
            client, options = self.client()
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
            stream = self._kept(Stream(reader, writer))
        try:
            stream.number += 1
            stream.send(encode_message({"id": stream.number, "ticket": ticket}))
            while True:
                batch, told = stream.receive()
                if told is None or told.get("id") != stream.number:
                    raise RemoteError(self.address.url, "the server gave an answer that was not asked for")
                if told.get("last"):
                    break
                yield batch, told
        except BaseException:
            stream.close()
            raise
        with self._lock:
            idle = self._idle.setdefault(command, [])
            if len(idle) < _IDLE_STREAMS:
                idle.append(stream)
            else:
                stream.close()
        yield batch, told

    def _idle_stream(self, command: bytes) -> Stream | None:
        with self._lock:
            if self._process != os.getpid():
                self._fresh()
            idle = self._idle.get(command)
            while idle:
                stream = idle.pop()
                if stream.is_open and time.monotonic() - stream.began < _STREAM_SECONDS:
                    return stream
                stream.close()
        return None

    def _kept(self, stream: Stream) -> Stream:
        with self._lock:
            self._streams.add(stream)
        return stream

    # ---- closing -------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._client is not None and self._process == os.getpid()

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            if self._process != os.getpid():
                self._fresh()
            client, streams = self._client, list(self._streams)
            self._client, self._idle, self._streams = None, {}, weakref.WeakSet()
        for stream in streams:
            stream.close()
        if client is not None:
            client.close()


class Stream:
    """One open call. It can be closed from outside, in the middle of what its user does."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer = reader, writer
        self.began = time.monotonic()
        self.number = 0

    @property
    def is_open(self) -> bool:
        return self._reader is not None

    def send(self, message: bytes) -> None:
        writer = self._writer
        if writer is None:
            raise _Lost
        writer.write_metadata(message)

    def receive(self) -> tuple[Any, dict[str, Any] | None]:
        """The next record batch and its metadata; both None at the end."""
        reader = self._reader
        if reader is None:
            raise _Lost
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            if self._reader is None:
                raise _Lost from None
            return None, None
        told = chunk.app_metadata
        return chunk.data, {} if told is None else decode_message(told.to_pybytes(), limited=False)[0]

    def close(self) -> None:
        reader, writer, self._reader, self._writer = self._reader, self._writer, None, None
        if reader is not None:
            reader.cancel()
        if writer is not None:
            with suppress(Exception):  # it reports that it was cancelled
                writer.close()

    def __del__(self) -> None:
        self.close()


class Tries:
    """When to try again after an error, and when to give up."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.succeeded()

    def succeeded(self) -> None:
        """Something arrived: the server is there."""
        self._began: float | None = None
        self._wait = _FIRST_WAIT

    def failed(self, error: Exception) -> None:
        """Wait, and return if it is worth another try.

        Raises:
            RemoteError: the server cannot be reached. PermissionError: it refuses the token.
            The error that the server told, if it told one.
        """
        connection, url = self._connection, self._connection.address.url
        flight, arrow = optional("pyarrow.flight"), optional("pyarrow")
        if isinstance(error, _Lost):
            return
        if not isinstance(error, flight.FlightError | arrow.ArrowException):
            raise error
        extra = getattr(error, "extra_info", b"")
        if extra:
            raise decode_error(decode_message(extra)[0], url) from None
        if isinstance(error, flight.FlightTimedOutError) and self._began is None:
            self._began = time.monotonic()
            return  # a server ends long calls; the next one goes on
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        patience = connection.options.request_timeout
        denied = isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError)
        if denied:
            patience = 0.0 if connection.token_given else min(patience, _TOKEN_WAIT)
        if now - self._began + self._wait > patience:
            if denied:
                raise PermissionError(f"{url}: the server refuses the token (token=)") from None
            raise RemoteError(url, _first_line(error)) from None
        connection.begin_again()
        time.sleep(self._wait)
        self._wait = min(2 * self._wait, _MOST_WAIT)


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0].partition(". Detail:")[0]
    return text.partition("gRPC client debug context:")[0].strip().rstrip(".") or type(error).__name__


# ---- forks ---------------------------------------------------------------------------------------------


def _register() -> None:
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        os.register_at_fork(
            before=_before_fork, after_in_parent=_forking.release, after_in_child=_after_in_child
        )


def _before_fork() -> None:
    """Close all connections: gRPC works in a child only if it did not run in its parent at the fork."""
    global _left_running
    _forking.acquire()
    opened = [connection for connection in list(_connections) if connection.is_open]
    for connection in opened:
        connection.close()
    end = time.monotonic() + (_FORK_WAIT if opened else 0)
    while (running := _grpc_runs()) and time.monotonic() < end:
        time.sleep(0.001)
    _left_running = running


def _after_in_child() -> None:
    global _forking
    _forking = threading.RLock()


def _grpc_runs() -> bool:
    """Whether this process has threads of gRPC. They end soon after the last connection was closed."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        time.sleep(0.05)
        return False
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/comm") as file:
                if file.read().startswith(_THREADS):
                    return True
        except OSError:
            continue
    return False


def _opened(connect: Callable[[], Any]) -> Any:
    """The client that `connect` makes; RuntimeError if it hangs in a forked process."""
    global _left_running
    if not _left_running:
        return connect()
    found: list[Any] = []

    def attempt() -> None:
        client = connect()
        try:
            list(client.list_actions(optional("pyarrow.flight").FlightCallOptions(timeout=5)))
        except Exception:  # an answer of any kind shows that gRPC works
            pass
        found.append(client)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(_CHILD_WAIT)
    if not found:
        raise RuntimeError(
            "gRPC does not work in this forked process, because it was in use by other code when the process "
            "forked: use multiprocessing_context='forkserver'"
        )
    _left_running = False
    return found[0]
