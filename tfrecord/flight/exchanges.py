"""Exchanges: many small tickets on one stream, each answered in its turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfrecord._optional import optional
from tfrecord.flight.answers import Answer
from tfrecord.flight.server import Request, Service
from tfrecord.flight.tickets import CHOICES, Ticket, decode_message, encode_message

__all__ = ["Exchange"]


class Exchange:
    """One stream. ``command``, its descriptor's, is a ticket that decides the columns (``schema``)."""

    def __init__(self, service: Service, command: bytes) -> None:
        self._service = service
        with service.request("do_exchange", part=True) as asked:
            self._base, self._as_json = decode_message(command)
            self._ticket = Ticket.of_message(self._base, self._as_json)
            self._answer = service.answer(self._ticket, asked)
        self.schema = self._answer.schema

    def replies(self, data: bytes) -> Iterator[tuple[Any, bytes]]:
        """The answer to a message: record batches, each with its metadata. An error of the message stands in
        the metadata of the last, which then has no batch; the stream goes on."""
        head: dict[str, Any] = {}
        held: tuple[Any, dict[str, Any]] | None = None  # sent when it is known whether it is the last
        as_json = self._as_json

        def said(one: tuple[Any, dict[str, Any]], last: bool) -> tuple[Any, bytes]:
            return one[0], encode_message(head | one[1] | {"last": last}, as_json)

        try:
            with self._service.request("do_exchange") as asked:
                message, as_json = decode_message(data)
                if set(message) != {"id", "ticket"} or not isinstance(message["ticket"], dict):
                    raise ValueError("a message of an exchange has two keys, id and ticket")
                if not isinstance(message["id"], int | str):
                    raise ValueError("the id of a message must be an integer or text")
                head["id"] = message["id"]
                answer, ticket = self._asked(message["ticket"], as_json, asked)
                for one in answer.batches(ticket):
                    asked.count(one[0])
                    if held is not None:
                        yield said(held, False)
                    held = one
        except optional("pyarrow.flight").FlightServerError as error:
            if held is not None:
                yield said(held, False)
            held = None, {"error": decode_message(error.extra_info)[0]}
        yield said(held or (None, {}), True)

    def _asked(self, given: Mapping[str, Any], as_json: bool, asked: Request) -> tuple[Answer, Ticket]:
        """What a message asks for, and what answers it. Most messages only choose other records."""
        service, message = self._service, {**self._base, **given}
        if given.keys() <= CHOICES:
            ticket = self._ticket.choosing(message)
            asked.generation = service.find(ticket)[0]
            if asked.generation is not self._answer.generation:  # files were added
                self._answer = self._fitting(service.answer(self._ticket, asked))
            return self._answer, ticket
        ticket = Ticket.of_message(message, as_json)
        return self._fitting(service.answer(ticket, asked)), ticket

    def _fitting(self, answer: Answer) -> Answer:
        if answer.schema != self.schema:
            raise ValueError("all tickets of an exchange must give the same columns")
        return answer
