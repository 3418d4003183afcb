"""The methods of Arrow Flight over a `Service`. To be imported when a server starts: it imports pyarrow."""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterator
from typing import Any

from tfrecord._optional import optional
from tfrecord.flight.exchanges import Exchange
from tfrecord.flight.served import Generation, find_data_set
from tfrecord.flight.server import REQUEST_ERRORS, Request, Service
from tfrecord.flight.tickets import VERSION, Ticket, encode_message

__all__ = ["start_server"]

flight = optional("pyarrow.flight")
_ACTIONS = (
    ("health", "whether the server answers"),
    ("ready", "whether the server takes new calls"),
    ("counters", "requests, errors, rows, bytes and latencies"),
    ("describe", "what is known about the data set named in a ticket"),
)


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc, name-defined]
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
        return _Call(self._service)


class _Call(flight.ServerMiddleware):  # type: ignore[misc, name-defined]
    def __init__(self, service: Service) -> None:
        self._service, self._number = service, service.admit()

    def call_completed(self, exception: Any) -> None:
        self._service.leave(self._number)


class _Server(flight.FlightServerBase):  # type: ignore[misc, name-defined]
    def __init__(self, service: Service, location: str, token: str, tls: Any) -> None:
        super().__init__(location, tls_certificates=tls, middleware={"gate": _Gate(service, token)})
        self._service = service

    def _info(self, generation: Generation, asked: Request) -> Any:
        words: dict[str, Any] = {"v": VERSION, "data": generation.name, "fingerprint": generation.fingerprint}
        try:
            schema = self._service.answer(Ticket.of_message(words, True), asked).schema
        except REQUEST_ERRORS:  # columns of no single type, or damage: there are still payloads
            words["raw"] = True
            schema = self._service.answer(Ticket.of_message(words, True), asked).schema
        return flight.FlightInfo(
            schema,
            flight.FlightDescriptor.for_path(generation.name),
            [flight.FlightEndpoint(encode_message(words, as_json=True), [])],
            generation.num_records,
            generation.num_bytes,
        )

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._service.request("list_flights") as asked:
            return iter([self._info(one.current, asked) for one in self._service.sets.values()])

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        service = self._service
        with service.request("get_flight_info") as asked:
            if descriptor.path and len(descriptor.path) == 1:
                name = descriptor.path[0].decode("utf-8", "replace")
                return self._info(find_data_set(service.sets, name).current, asked)
            return self._info(service.find(Ticket.of(descriptor.command or b""))[0], asked)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.GeneratorStream(*self._service.stream(ticket.ticket))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        exchange = Exchange(self._service, descriptor.command or b"")
        writer.begin(exchange.schema)
        began = time.monotonic()
        while True:
            try:
                message = reader.read_chunk().app_metadata
            except StopIteration:
                return
            for batch, told in exchange.replies(b"" if message is None else message.to_pybytes()):
                if batch is None:
                    writer.write_metadata(told)
                else:
                    writer.write_with_metadata(batch, told)
                self._service.check_time(began)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return list(_ACTIONS)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        service, as_json = self._service, True
        found: dict[str, Any]
        with service.request("do_action"):
            if action.type == "health":
                found = {"healthy": True}
            elif action.type == "ready":
                found = {"ready": not service.draining}
            elif action.type == "counters":
                found = service.counters.read()
            elif action.type == "describe":
                ticket = Ticket.of(action.body.to_pybytes())
                found, as_json = service.describe(ticket), ticket.as_json
            else:
                raise KeyError(f"there is no action {action.type[:80]!r}")
            return [encode_message(found, as_json)]


def start_server(service: Service, location: str, token: str, tls: tuple[bytes, bytes] | None = None) -> Any:
    """A running server (a `pyarrow.flight.FlightServerBase`, whose ``port`` was chosen by the system if the
    location names 0). OSError if the address is not free."""
    try:
        return _Server(service, location, token, None if tls is None else [tls])
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{location}: the server does not start: {error}") from None
