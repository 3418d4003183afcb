"""`RemoteReader`: a reader of a data set that a server holds."""

from __future__ import annotations

import os
from typing import Any, Literal

from indexer.options import check_threads, suggests_options
from indexer.stores import StoreOptions
from tfrecord._reading.call_text import call_text
from tfrecord._reading.damage import DamagePolicy, OnError
from tfrecord._reading.decoder import RecordDecoder
from tfrecord.features import compile_features
from tfrecord.flight.addresses import Address
from tfrecord.flight.connection import Connection
from tfrecord.flight.store import RemoteStore
from tfrecord.flight.tickets import VERSION, encode_message
from tfrecord.flight.view import RemoteView
from tfrecord.reader import BatchType, TFRecordReader

__all__ = ["RemoteReader", "connect"]


class RemoteReader(TFRecordReader[BatchType]):
    """The records of a data set of a server; see `connect`. It reads like a `TFRecordReader`.

    ``paths`` are the URL of the data set with the names of its files. Positions stay those of the files that
    there were when it connected; if these files change, reads raise `StaleIndexError`. Payloads are copies in
    memory of this process.
    """

    def __init__(self, url: str, options: StoreOptions, decoder: RecordDecoder, call: str) -> None:
        address = Address.of(url)
        connection = Connection(address, options)
        ticket = encode_message({"v": VERSION, "data": address.name})
        store = RemoteStore(connection, connection.action("describe", ticket), decoder.policy)
        self._begin(RemoteView(store, decoder), call)

    @property
    def url(self) -> str:
        """The URL of the data set."""
        store: Any = self._what.store
        return str(store.connection.address.url)


@suggests_options
def connect(
    url: str,
    *,
    token: str | None = None,
    tls_roots: bytes | str | os.PathLike[str] | None = None,
    features: Any = None,
    sequence_features: Any = None,
    record_type: Literal["auto", "example", "sequence_example", "bytes"] | None = None,
    on_error: OnError = "raise",
    max_skips: int | None = None,
    num_threads: int = 1,
    request_timeout: float = 30.0,
    allow_missing: bool = False,
) -> RemoteReader[Any]:
    """A reader of a data set that `tfrecord serve` or `tfrecord.flight.serve` holds.

    Args:
        url: ``grpc://HOST:PORT/NAME``, ``grpc+tls://HOST:PORT/NAME`` or
            ``grpc+unix:///PATH/OF/SOCKET?name=NAME``.
        token: the server's token. None: ``$TFRECORD_TOKEN``, else the file that ``$TFRECORD_TOKEN_FILE``
            names, else the token of a server of this user on this host.
        tls_roots: certificates in PEM that a server's certificate must go back to: bytes, or the path of a
            file. None: those that gRPC has.
        features, sequence_features, record_type, on_error, max_skips, num_threads, allow_missing: as for
            `TFRecordReader`.
        request_timeout: how many seconds a read waits for a server that cannot be reached. When it is back,
            the read goes on.

    A reader can be pickled; the pickle holds ``token`` and ``tls_roots`` only while a child process is being
    spawned. A forked child opens a connection of its own.

    Raises:
        KeyError: the server has no such data set.
        PermissionError: the server refuses the token.
        RemoteError: the server cannot be reached.
        ValueError: the URL or an option is not valid.
        ImportError: ``tfrecord[flight]`` is not installed.
    """
    call = call_text("connect", connect, locals())
    decoder = RecordDecoder(
        compile_features(features),
        None if sequence_features is None else compile_features(sequence_features),
        record_type or "auto",
        DamagePolicy(on_error, max_skips),
        allow_missing=bool(allow_missing),
    )
    decoder.num_threads = check_threads(num_threads)
    given: dict[str, Any] = {"token": token, "tls_roots": tls_roots}
    storage = {key: value for key, value in given.items() if value is not None}
    return RemoteReader(url, StoreOptions(storage or None, request_timeout=request_timeout), decoder, call)
