"""Flight's own transport with the bytes that the reader service sends, and nothing else done to them."""

from __future__ import annotations

import multiprocessing
from itertools import cycle
from typing import Any

from benchlib.common import Run, Spec, Task, draws, read_payloads

_MESSAGE_BYTES = 8 << 20


def _parts(payloads: list[bytes]) -> list[Any]:
    """Payloads as record batches of about 8 MiB."""
    import pyarrow as pa

    mean = sum(map(len, payloads)) / len(payloads)
    step = max(1, int(_MESSAGE_BYTES / mean))
    parts = (payloads[first : first + step] for first in range(0, len(payloads), step))
    return [pa.RecordBatch.from_arrays([pa.array(part, pa.large_binary())], ["record"]) for part in parts]


def _serve(spec: Spec, announce: Any) -> None:
    """All records on request, and for each message of an exchange those of the next draw."""
    import pyarrow.flight as flight

    payloads = read_payloads(spec["path"])
    whole = _parts(payloads)
    some = cycle([_parts([payloads[position] for position in drawn]) for drawn in draws(spec)])

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.GeneratorStream(whole[0].schema, iter(whole))

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            writer.begin(whole[0].schema)
            for _ in reader:
                *parts, last = next(some)
                for part in parts:
                    writer.write_with_metadata(part, b"more")
                writer.write_with_metadata(last, b"last")

    server = Server("grpc://127.0.0.1:0")
    announce.send(server.port)
    server.serve()


def _client(spec: Spec) -> Any:
    """A client of a server in a process of its own, which ends with this one."""
    import pyarrow.flight as flight

    context = multiprocessing.get_context("spawn")
    told, announce = context.Pipe()
    context.Process(target=_serve, args=(spec, announce), daemon=True).start()
    return flight.connect(f"grpc://127.0.0.1:{told.recv()}")


def transport_random(spec: Spec) -> Run:
    """Payloads of random records by an exchange."""
    import pyarrow.flight as flight

    writer, reader = _client(spec).do_exchange(flight.FlightDescriptor.for_command(b"-"))

    def run() -> int:
        writer.write_metadata(bytes(8 * spec["take"]))
        count: int = 0
        while True:
            chunk = reader.read_chunk()
            count += chunk.data.num_rows
            if chunk.app_metadata.to_pybytes() == b"last":
                return count

    return run


def transport_scan(spec: Spec) -> Run:
    """All payloads by a scan."""
    import pyarrow.flight as flight

    client = _client(spec)
    return lambda: sum(chunk.data.num_rows for chunk in client.do_get(flight.Ticket(b"-")))


TASKS: dict[str, Task] = {"transport_random": transport_random, "transport_scan": transport_scan}
