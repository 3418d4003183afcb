"""The server: Flight's methods over data sets, behind a token and limits."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from indexer.errors import RemoteError, TFRecordError
from indexer.options import check_count
from tfrecord._optional import optional
from tfrecord.flight.answers import Answer, Limits
from tfrecord.flight.counters import Counters
from tfrecord.flight.failures import encode_error
from tfrecord.flight.served import DataSet, Generation, find_data_set
from tfrecord.flight.tickets import (
    VERSION,
    Ticket,
    decode_message,
    encode_message,
)

__all__ = ["Log", "Service", "ServiceOptions", "start_server"]

Log = Callable[[str, Mapping[str, Any]], object]
_ACTIONS = (
    ("health", "whether the server answers"),
    ("ready", "whether the server takes new calls"),
    ("counters", "requests, errors, rows, bytes and latencies"),
    ("describe", "what is known about the data set named in a ticket"),
)
_REQUEST = (ValueError, TypeError, KeyError, IndexError, TFRecordError)


class ServiceOptions(NamedTuple):
    """What a server allows: see docs/service.md. Times are in seconds."""

    max_rows: int = 65_536
    max_bytes: int = 256 << 20
    max_calls: int = 64
    timeout: float = 300.0

    def checked(self) -> ServiceOptions:
        """Raises ValueError for an invalid option."""
        for name in ("max_rows", "max_bytes", "max_calls"):
            check_count(getattr(self, name), name)
        if isinstance(self.timeout, bool) or not self.timeout > 0:
            raise ValueError(f"timeout is {self.timeout!r}; it must be a number of seconds above 0")
        return self


class Service:
    """What is behind the methods: data sets, limits, counters. It knows no gRPC but its errors."""

    def __init__(
        self,
        sets: Mapping[str, DataSet],
        options: ServiceOptions,
        counters: Counters,
        log: Log = lambda event, fields: None,
        ports: Sequence[int] = (),
    ) -> None:
        self.sets = dict(sets)
        self.options = options
        self.limits = Limits(options.max_rows, options.max_bytes)
        self.counters, self.log = counters, log
        self.ports = list(ports)
        self.draining = False
        self._calls: dict[int, float] = {}  # when each open call began
        self._next = self._busy = 0
        self._lock = threading.Lock()
        self._flight = optional("pyarrow.flight")

    # ---- calls ---------------------------------------------------------------------------------------------

    def admit(self) -> int:
        """The number of a new call. Calls that are older than the timeout end by themselves, or hang because
        their client does not read: they do not count any more."""
        with self._lock:
            oldest = time.monotonic() - self.options.timeout
            busy = sum(began > oldest for began in self._calls.values())
            if self.draining or busy >= self.options.max_calls:
                self.counters.count("refused")
                reason = (
                    "the server is shutting down"
                    if self.draining
                    else (f"the server has {busy} open calls, and max_calls={self.options.max_calls}")
                )
                raise self._flight.FlightUnavailableError(f"{reason}; try again later")
            self._next += 1
            self._calls[self._next] = time.monotonic()
            self.counters.count("open_calls")
            return self._next

    def leave(self, call: int) -> None:
        """The call is over."""
        with self._lock:
            if self._calls.pop(call, None) is not None:
                self.counters.count("open_calls", -1)

    def drain(self, seconds: float) -> None:
        """Take no new calls, and wait until no request is being answered, at most that long."""
        self.draining = True
        end = time.monotonic() + seconds
        while self._busy and time.monotonic() < end:
            time.sleep(0.02)

    def check_time(self, began: float) -> None:
        """FlightTimedOutError for a call that has taken too long; its client asks again for the rest."""
        if time.monotonic() - began > self.options.timeout:
            raise self._flight.FlightTimedOutError(f"the call took more than {self.options.timeout} seconds")

    @contextmanager
    def request(
        self, method: str, generation: Generation | None = None, *, part: bool = False
    ) -> Iterator[dict[str, int]]:
        """One request: counted, logged, and its errors made fit for the client. The caller adds ``rows`` and
        ``bytes`` to the dict. ``part``: the beginning of one, which counts only if it fails."""
        counts = {"rows": 0, "bytes": 0}
        began, failure = time.perf_counter(), ""
        with self._lock:
            self._busy += 1
        try:
            yield counts
        except self._flight.FlightError as error:
            failure = type(error).__name__
            raise
        except Exception as error:
            failure = type(error).__name__
            raise self.fitting(error, generation) from None
        finally:
            with self._lock:
                self._busy -= 1
            if failure or not part:
                seconds = time.perf_counter() - began
                self.counters.add(method, seconds, counts["rows"], counts["bytes"], bool(failure))
                fields = {"method": method, "seconds": round(seconds, 6), **counts}
                if generation is not None:
                    fields["data"] = generation.name
                self.log("request", fields | ({"error": failure} if failure else {}))

    def words(self, error: Exception, generation: Generation | None) -> dict[str, Any]:
        """What a client may know about an error: no path, no traceback."""
        found = None
        if isinstance(error, _REQUEST) and not isinstance(error, RemoteError):
            found = encode_error(error, {} if generation is None else generation.names)
        if found is None:
            self.log("failure", {"error": f"{type(error).__name__}: {error}"})
            found = {"type": "RemoteError", "reason": "the server could not read its files; its log says why"}
        return found

    def fitting(self, error: Exception, generation: Generation | None) -> Exception:
        """The Flight error for an error."""
        words = self.words(error, generation)
        place = "".join(f"{words[key]}: " for key in ("file",) if words.get(key))
        if "record" in words:
            place += f"record {words['record']}: "
        text = f"{words['type']}: {place}{words.get('reason', '')}"
        return self._flight.FlightServerError(text, encode_message(words))  # type: ignore[no-any-return]

    # ---- requests ------------------------------------------------------------------------------------------

    def answer(self, ticket: Ticket) -> tuple[Answer, Generation]:
        """The files that a ticket asks about, and what does not depend on its positions."""
        generation, view = find_data_set(self.sets, ticket.data).find(ticket.fingerprint)
        try:
            return Answer(generation, view, ticket, self.limits), generation
        except _REQUEST as error:
            raise self.fitting(error, generation) from None

    def stream(self, ticket: bytes) -> tuple[Any, Iterator[Any]]:
        """The schema and the record batches of a ticket, each with its metadata, until the time is over."""
        with self.request("do_get", part=True):
            asked = Ticket.of(ticket)
            answer, generation = self.answer(asked)
        began = time.monotonic()

        def batches() -> Iterator[tuple[Any, bytes]]:
            with self.request("do_get", generation) as counts:
                for batch, told in answer.batches(asked):
                    counts["rows"] += batch.num_rows
                    counts["bytes"] += batch.nbytes
                    yield batch, encode_message(told, asked.as_json)
                    self.check_time(began)

        return answer.schema, batches()

    def exchange(self, command: bytes, receive: Callable[[], bytes | None], writer: Any) -> None:
        """Answer message after message; an error of one is told in its answer, and the stream goes on."""
        with self.request("do_exchange", part=True):
            base, as_json = decode_message(command)
            ticket = Ticket.of_message(base, as_json)
            answer, generation = self.answer(ticket)
        writer.begin(answer.schema)
        began = time.monotonic()
        while (data := receive()) is not None:
            head: dict[str, Any] = {}
            try:
                with self.request("do_exchange", generation) as counts:
                    message, as_json = decode_message(data)
                    if set(message) != {"id", "ticket"} or not isinstance(message["ticket"], dict):
                        raise ValueError("a message of an exchange has two keys, id and ticket")
                    if not isinstance(message["id"], int | str):
                        raise ValueError("the id of a message must be an integer or text")
                    head["id"] = message["id"]
                    asked = Ticket.of_message({**base, **message["ticket"]}, as_json)
                    of_message = answer
                    known = find_data_set(self.sets, asked.data).find(asked.fingerprint)[0]
                    if known is not generation or _without_positions(asked) != _without_positions(ticket):
                        of_message, generation = self.answer(asked)
                        if of_message.schema != answer.schema:
                            raise ValueError("all tickets of an exchange must give the same columns")
                    for batch, told in of_message.batches(asked):
                        counts["rows"] += batch.num_rows
                        counts["bytes"] += batch.nbytes
                        writer.write_with_metadata(
                            batch, encode_message(head | told | {"last": False}, as_json)
                        )
                        self.check_time(began)
            except self._flight.FlightServerError as error:
                head["error"] = decode_message(error.extra_info)[0]
            writer.write_metadata(encode_message(head | {"last": True}, as_json))
            self.check_time(began)

    def describe(self, ticket: Ticket) -> dict[str, Any]:
        """The answer of the action ``describe``."""
        generation = find_data_set(self.sets, ticket.data).find(ticket.fingerprint)[0]
        return {
            "v": VERSION,
            **generation.describe(ticket.fingerprint),
            **self.limits._asdict(),
            "ports": self.ports,
        }

    def refresh(self) -> None:
        """Look for added and changed files in all data sets."""
        for data_set in self.sets.values():
            try:
                if data_set.refresh():
                    current = data_set.current
                    self.log("refreshed", {"data": data_set.name, "records": current.num_records})
            except Exception as error:
                self.log("failure", {"data": data_set.name, "error": f"{type(error).__name__}: {error}"})


def _without_positions(ticket: Ticket) -> Ticket:
    return replace(ticket, positions=None, slice=None, order=None, where=(), batch_size=None, as_json=False)


@cache
def _classes() -> tuple[type[Any], type[Any]]:
    """The classes that derive from pyarrow's, which is imported when a server starts."""
    flight = optional("pyarrow.flight")

    class Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc, name-defined]
        """Lets calls in: those with the token, and not too many at once."""

        def __init__(self, service: Service, token: str) -> None:
            self._service = service
            self._expected = f"Bearer {token}".encode()

        def start_call(self, info: Any, headers: Any) -> Any:
            given = [value for name, value in headers.items() if name.lower() == "authorization"]
            said = given[0][0] if len(given) == 1 and len(given[0]) == 1 else b""
            said = said.encode("utf-8", "surrogateescape") if isinstance(said, str) else said
            if not hmac.compare_digest(said, self._expected):
                self._service.counters.count("unauthenticated")
                raise flight.FlightUnauthenticatedError("the token is missing or wrong")
            return Call(self._service, self._service.admit())

    class Call(flight.ServerMiddleware):  # type: ignore[misc, name-defined]
        def __init__(self, service: Service, number: int) -> None:
            self._service, self.number = service, number

        def call_completed(self, exception: Any) -> None:
            self._service.leave(self.number)

    class Server(flight.FlightServerBase):  # type: ignore[misc, name-defined]
        def __init__(self, service: Service, location: str, token: str, tls: Any) -> None:
            super().__init__(location, tls_certificates=tls, middleware={"gate": Gate(service, token)})
            self._service = service

        def _info(self, generation: Generation) -> Any:
            words = {"v": VERSION, "data": generation.name, "fingerprint": generation.fingerprint}
            ticket = encode_message(words, as_json=True)
            try:
                schema = self._service.answer(Ticket.of(ticket))[0].schema
            except flight.FlightServerError:  # columns of no single type, or damage: there are still payloads
                ticket = encode_message(words | {"raw": True}, as_json=True)
                schema = self._service.answer(Ticket.of(ticket))[0].schema
            return flight.FlightInfo(
                schema,
                flight.FlightDescriptor.for_path(generation.name),
                [flight.FlightEndpoint(ticket, [])],
                generation.num_records,
                generation.num_bytes,
            )

        def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
            with self._service.request("list_flights"):
                found = [self._info(data_set.current) for data_set in self._service.sets.values()]
            return iter(found)

        def get_flight_info(self, context: Any, descriptor: Any) -> Any:
            with self._service.request("get_flight_info"):
                if descriptor.path and len(descriptor.path) == 1:
                    name = descriptor.path[0].decode("utf-8", "replace")
                    return self._info(find_data_set(self._service.sets, name).current)
                ticket = Ticket.of(descriptor.command or b"")
                return self._info(find_data_set(self._service.sets, ticket.data).find(ticket.fingerprint)[0])

        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.GeneratorStream(*self._service.stream(ticket.ticket))

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            def receive() -> bytes | None:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    return None
                return b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()

            self._service.exchange(descriptor.command or b"", receive, writer)

        def list_actions(self, context: Any) -> list[tuple[str, str]]:
            return list(_ACTIONS)

        def do_action(self, context: Any, action: Any) -> list[bytes]:
            service = self._service
            with service.request("do_action"):
                body = action.body.to_pybytes()
                if action.type == "health":
                    return [encode_message({"healthy": True}, True)]
                if action.type == "ready":
                    return [encode_message({"ready": not service.draining}, True)]
                if action.type == "counters":
                    return [encode_message(service.counters.read(), True)]
                if action.type == "describe":
                    ticket = Ticket.of(body)
                    return [encode_message(service.describe(ticket), ticket.as_json)]
                raise KeyError(f"there is no action {action.type[:80]!r}")

    return Server, Gate


def start_server(service: Service, location: str, token: str, tls: tuple[bytes, bytes] | None = None) -> Any:
    """A running server (a `pyarrow.flight.FlightServerBase`, whose ``port`` was chosen by the system if the
    location names 0). OSError if the address is not free."""
    try:
        return _classes()[0](service, location, token, None if tls is None else [tls])
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{location}: the server does not start: {error}") from None
