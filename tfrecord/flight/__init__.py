"""The reader service: data sets of files, served by Arrow Flight to readers in any process and language.

`serve` starts a server, `connect` reads from one. Needs ``tfrecord[flight]``.
"""

from __future__ import annotations

from tfrecord.flight.client import RemoteReader, connect
from tfrecord.flight.serving import Server, serve

__all__ = ["RemoteReader", "Server", "connect", "serve"]
