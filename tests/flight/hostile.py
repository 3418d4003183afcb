"""A hostile client: random bytes, wrong and huge tickets, slow reads, many connections.

``PYTHONPATH=. python tests/flight/hostile.py FILE SECONDS`` serves a file with 256 descriptors and attacks
the server. Every half minute it checks that a good client is answered, and prints what was done.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import pyarrow.flight as flight

_WIDE = {"spec": "fixed", "dtype": "int64", "default": 0}
Attack = Callable[[random.Random], object]


class Hostile:
    """Attacks on one server; those with a token misuse it."""

    def __init__(self, url: str, token: str, most_connections: int = 1000) -> None:
        self.location, _, self.name = url.rpartition("/")
        host, _, port = self.location.partition("://")[2].rpartition(":")
        self.address = (host, int(port))
        self.client = flight.connect(self.location)
        self.options = flight.FlightCallOptions(
            headers=[(b"authorization", f"Bearer {token}".encode())], timeout=20
        )
        self.most_connections = most_connections
        self.held: list[Any] = []

    def random_bytes(self, rng: random.Random) -> None:
        """Bytes that are no HTTP/2, or begin like it."""
        with socket.create_connection(self.address, timeout=5) as connection:
            head = rng.choice([b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
            connection.sendall(head + rng.randbytes(rng.choice([1, 100, 10_000])))
            connection.settimeout(0.2)
            with suppress(OSError):
                connection.recv(1000)

    def connections(self, rng: random.Random) -> None:
        """Many connections that say nothing."""
        with suppress(OSError):
            while len(self.held) < self.most_connections:
                self.held.append(socket.create_connection(self.address, timeout=2))
        for connection in self.held:
            connection.close()
        self.held.clear()

    def ticket(self, rng: random.Random) -> bytes:
        base = {"v": 1, "data": self.name, "raw": True}
        return rng.choice(
            [
                rng.randbytes(rng.randrange(200)),
                b"{" + b'"a":[' * 50_000,
                b"\x91" * 100_000,
                json.dumps(base | {"positions": [2**70]}).encode(),
                json.dumps(base | {"data": "../" * rng.randrange(9) + "etc/passwd"}).encode(),
                json.dumps(base | {"slice": [0, 10**18, -(10**17)]}).encode(),
                json.dumps(base | {"order": {"world_size": 2**31, "rank": 5}}).encode(),
                msgpack.packb(
                    {"v": 1, "data": self.name, "features": {str(n): "int" for n in range(20_000)}}
                ),
                json.dumps(
                    {"v": 1, "data": self.name}
                    | {"features": {"x": {**_WIDE, "shape": [1 << rng.randrange(18, 40)]}}}
                ).encode(),
                msgpack.packb(base | {"positions": rng.randbytes(8 * rng.randrange(1000))}),
                bytes(rng.choice([1 << 20, 32 << 20])),
            ]
        )

    def tickets(self, rng: random.Random) -> None:
        """Tickets that are wrong, too long or too deep."""
        with suppress(flight.FlightError, OSError):
            self.client.do_get(flight.Ticket(self.ticket(rng)), self.options).read_all()

    def messages(self, rng: random.Random) -> None:
        """An exchange whose messages are wrong."""
        command = json.dumps({"v": 1, "data": self.name, "raw": True}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        with suppress(flight.FlightError, OSError, StopIteration):
            writer, reader = self.client.do_exchange(descriptor, self.options)
            for _ in range(5):
                writer.write_metadata(self.ticket(rng) or b"x")
                reader.read_chunk()
            reader.cancel()

    def slow_reads(self, rng: random.Random) -> None:
        """A scan that is not read to its end."""
        with suppress(flight.FlightError, OSError, StopIteration):
            ticket = flight.Ticket(json.dumps({"v": 1, "data": self.name, "raw": True}).encode())
            reader = self.client.do_get(ticket, self.options)
            reader.read_chunk()
            time.sleep(0.05)
            reader.cancel()

    def actions(self, rng: random.Random) -> None:
        """Actions with bodies of any kind, and without a token."""
        for options in (self.options, None):
            with suppress(flight.FlightError, OSError):
                kind = rng.choice(["describe", "health", "shutdown", "x" * 10_000])
                list(self.client.do_action(flight.Action(kind, self.ticket(rng)), options))

    def run(self, seconds: float, seed: int = 0) -> dict[str, int]:
        """Attack in turns, each kind at least once; returns how often each did."""
        rng = random.Random(seed)
        attacks: list[Attack] = [
            self.random_bytes,
            self.tickets,
            self.messages,
            self.slow_reads,
            self.actions,
            self.connections,
        ]
        done = {attack.__name__: 0 for attack in attacks}  # type: ignore[attr-defined]
        end = time.monotonic() + seconds
        while time.monotonic() < end or not all(done.values()):
            attack = rng.choices(attacks, [8, 8, 8, 2, 4, 0.05])[0]
            if done[min(done, key=done.__getitem__)] == 0:
                attack = next(one for one in attacks if not done[one.__name__])  # type: ignore[attr-defined]
            with suppress(OSError):
                attack(rng)
            done[attack.__name__] += 1  # type: ignore[attr-defined]
        self.client.close()
        return done


def resident(process: int) -> int:
    """Kilobytes of memory that a process has."""
    with open(f"/proc/{process}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def main(paths: list[str]) -> None:
    """Serve a file with 256 descriptors, attack it, and say how its memory went: PATH SECONDS."""
    import resource

    import tfrecord
    from tfrecord.flight import serve

    path, seconds = paths[0], float(paths[1])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    with serve({"a": path}, timeout=5) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        with tfrecord.TFRecordReader(path, record_type="bytes") as reader:
            expected = reader.read_raw(range(100))
        end, seed = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            done = Hostile(server.url, server.token).run(min(30, seconds), seed)
            seed += 1
            with tfrecord.connect(server.url, record_type="bytes") as reader:
                good = reader.read_raw(range(100)) == expected
            print(seed, done, "right afterwards:", good, "KB:", resident(server.pid), flush=True)
            assert good and os.path.exists(f"/proc/{server.pid}")


if __name__ == "__main__":
    main(sys.argv[1:])
