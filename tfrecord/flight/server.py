"""What a server does with requests: limits, counters, a log, errors that clients may see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from indexer.errors import RemoteError, TFRecordError
from indexer.options import check_count
from tfrecord._optional import optional
from tfrecord._reading.view import RecordView
from tfrecord.flight.answers import Answer, Limits
from tfrecord.flight.counters import Counters
from tfrecord.flight.failures import encode_error
from tfrecord.flight.served import DataSet, Generation, find_data_set
from tfrecord.flight.tickets import VERSION, Ticket, encode_message

__all__ = ["REQUEST_ERRORS", "Log", "Request", "Service", "ServiceOptions"]

Log = Callable[[str, Mapping[str, Any]], object]
# What a client may have caused, and is told.
REQUEST_ERRORS = (ValueError, TypeError, KeyError, IndexError, TFRecordError)


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


class Request:
    """What is known of a request while it is answered: whose files it reads, and what was sent."""

    generation: Generation | None = None
    rows = 0
    bytes = 0

    def count(self, batch: Any) -> None:
        """A record batch is sent."""
        self.rows += batch.num_rows
        self.bytes += batch.nbytes


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
                reason = f"the server has {busy} open calls, and max_calls={self.options.max_calls}"
                if self.draining:
                    reason = "the server is shutting down"
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
    def request(self, method: str, *, part: bool = False) -> Iterator[Request]:
        """One request: counted, logged, and its errors made fit for the client. ``part``: the beginning of
        one, which counts only if it fails."""
        asked = Request()
        began, failure = time.perf_counter(), ""
        with self._lock:
            self._busy += 1
        try:
            yield asked
        except self._flight.FlightError as error:
            failure = type(error).__name__
            raise
        except Exception as error:
            failure = type(error).__name__
            raise self._fitting(error, asked.generation) from None
        finally:
            with self._lock:
                self._busy -= 1
            if failure or not part:
                self._note(method, time.perf_counter() - began, asked, failure)

    def _note(self, method: str, seconds: float, asked: Request, failure: str) -> None:
        self.counters.add(method, seconds, asked.rows, asked.bytes, bool(failure))
        fields = {"method": method, "seconds": round(seconds, 6), "rows": asked.rows, "bytes": asked.bytes}
        if asked.generation is not None:
            fields["data"] = asked.generation.name
        self.log("request", fields | ({"error": failure} if failure else {}))

    def _fitting(self, error: Exception, generation: Generation | None) -> Exception:
        """The Flight error for an error: what a client may know, without paths and tracebacks."""
        words = None
        if isinstance(error, REQUEST_ERRORS) and not isinstance(error, RemoteError):
            words = encode_error(error, {} if generation is None else generation.names)
        if words is None:
            self.log("failure", {"error": f"{type(error).__name__}: {error}"})
            words = {"type": "RemoteError", "reason": "the server could not read its files; its log says why"}
        place = f"{words['file']}: " if words.get("file") else ""
        if "record" in words:
            place += f"record {words['record']}: "
        text = f"{words['type']}: {place}{words.get('reason', '')}"
        return self._flight.FlightServerError(text, encode_message(words))  # type: ignore[no-any-return]

    # ---- requests ------------------------------------------------------------------------------------------

    def find(self, ticket: Ticket) -> tuple[Generation, RecordView]:
        """The files that a ticket asks about, and their records."""
        return find_data_set(self.sets, ticket.data).find(ticket.fingerprint)

    def answer(self, ticket: Ticket, asked: Request) -> Answer:
        """The answer to a ticket, but for its positions."""
        asked.generation, view = self.find(ticket)
        return Answer(asked.generation, view, ticket, self.limits)

    def stream(self, data: bytes) -> tuple[Any, Iterator[Any]]:
        """The schema and the record batches of a ticket, each with its metadata, until the time is over."""
        with self.request("do_get", part=True) as first:
            ticket = Ticket.of(data)
            answer = self.answer(ticket, first)
        began = time.monotonic()

        def batches() -> Iterator[tuple[Any, bytes]]:
            with self.request("do_get") as asked:
                asked.generation = answer.generation
                for batch, told in answer.batches(ticket):
                    asked.count(batch)
                    yield batch, encode_message(told, ticket.as_json)
                    self.check_time(began)

        return answer.schema, batches()

    def describe(self, ticket: Ticket) -> dict[str, Any]:
        """The answer of the action ``describe``."""
        known = self.find(ticket)[0].describe(ticket.fingerprint)
        return {"v": VERSION, **known, **self.limits._asdict(), "ports": self.ports}

    def refresh(self) -> None:
        """Look for added and changed files in all data sets."""
        for data_set in self.sets.values():
            try:
                if data_set.refresh():
                    current = data_set.current
                    self.log("refreshed", {"data": data_set.name, "records": current.num_records})
            except Exception as error:
                self.log("failure", {"data": data_set.name, "error": f"{type(error).__name__}: {error}"})
