"""A server within the tests' process, whose data sets are added as tests need them."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from tfrecord.flight import RemoteReader, connect
from tfrecord.flight.counters import Counters
from tfrecord.flight.methods import start_server
from tfrecord.flight.served import DataSet
from tfrecord.flight.server import Service, ServiceOptions

TOKEN = "the-token-of-these-tests"
CLIENT_OPTIONS = (
    "features",
    "sequence_features",
    "record_type",
    "on_error",
    "max_skips",
    "num_threads",
    "allow_missing",
)


class LocalServer:
    """A server on the loopback whose data sets are added as tests need them."""

    def __init__(self, options: ServiceOptions) -> None:
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.service = Service({}, options, Counters(), lambda *line: self.logged.append(line))
        self.flight = start_server(self.service, "grpc://127.0.0.1:0", TOKEN)
        self.location = f"grpc://127.0.0.1:{self.flight.port}"
        self._numbers = itertools.count()

    def add(self, paths: Any, name: str | None = None, **options: Any) -> str:
        """The URL of a new data set."""
        name = name or f"set-{next(self._numbers)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the server, about its files
            self.service.sets[name] = DataSet(name, paths, {"mmap": False, **options})
        return f"{self.location}/{name}"

    def open(self, paths: Any, **options: Any) -> RemoteReader[Any]:
        """A remote reader in the place of a `TFRecordReader`: its options go to where they belong."""
        ours = {name: options.pop(name) for name in CLIENT_OPTIONS if name in options}
        return connect(self.add(paths, **options), **ours)
