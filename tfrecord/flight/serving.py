"""`serve`: a server in a process of its own, for as long as a block lasts."""

from __future__ import annotations

import builtins
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from indexer import errors
from indexer.options import suggests_options
from tfrecord.flight.addresses import read_token
from tfrecord.flight.running import Serving
from tfrecord.flight.served import named
from tfrecord.flight.server import ServiceOptions

__all__ = ["Server", "serve"]

_START = "import json, sys; given = json.loads(sys.stdin.readline()); sys.path[:] = given.pop('sys_path'); "
_START += "from tfrecord.flight.running import main; main(given)"
_GRACE = 5.0


class Server:
    """A running server.

    Attributes: ``urls`` (of the data sets, by name), ``token``, ``metrics_port`` (None without one), ``pid``.
    """

    def __init__(self, told: Mapping[str, Any], process: subprocess.Popen[bytes]) -> None:
        self.urls: dict[str, str] = {one["name"]: one["url"] for one in told["data"]}
        self.token = read_token(told["token_file"])
        self.metrics_port: int | None = told["metrics_port"]
        self.pid = process.pid
        self._process = process

    @property
    def url(self) -> str:
        """The URL of the only data set."""
        if len(self.urls) != 1:
            raise ValueError(f"there are {len(self.urls)} data sets: take one of `urls`")
        return next(iter(self.urls.values()))

    def refresh(self) -> None:
        """Look for added and changed files soon; as SIGHUP does."""
        self._process.send_signal(signal.SIGHUP)


@suggests_options
@contextmanager
def serve(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    unix: str | os.PathLike[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    processes: int = 1,
    refresh: float | None = None,
    drain: float = 30.0,
    metrics_port: int | None = None,
    max_rows: int = 65_536,
    max_bytes: int = 256 << 20,
    max_calls: int = 64,
    timeout: float = 300.0,
    mmap: bool = True,
) -> Iterator[Server]:
    """Serve data sets from a process of its own, while the block of a ``with`` runs.

    Args:
        paths: data sets: each a path, glob, folder or URL, or ``"NAME=PATH"``; or a dict of names to paths.
            Without a name, a data set has that of its file or folder, without suffixes.
        host, port: where to listen; port 0 means any free one.
        unix: listen on this socket file instead.
        token_file: a file with the token, which only its user can read. It is made if it is not there. None:
            the server makes a token, and clients of the same user on this host find it.
        tls_cert, tls_key: PEM files, to serve ``grpc+tls``.
        insecure: allow clear text on an address that other hosts reach.
        processes: how many processes answer, each on a port of its own: ``port`` and those after it, or any
            that are free. Readers choose one of them.
        refresh: look for added files every so many seconds; None: only when `Server.refresh` is called.
        drain: how many seconds requests may take to end when the server stops.
        metrics_port: a port for ``/metrics`` (Prometheus), ``/health`` and ``/ready`` by HTTP.
        max_rows, max_bytes: limits of a record batch of an answer.
        max_calls: how many calls may be open in a process.
        timeout: how many seconds a call may take. Readers of this library then ask for the rest.
        mmap: map local files; False copies, for files that others may truncate in place.

    Raises:
        ValueError: options are not valid, or not safe. OSError: a file or address cannot be used.
        TFRecordError: a file is damaged, or its index is stale. ImportError: ``tfrecord[flight]`` is missing.
    """
    if isinstance(paths, Mapping):
        sets = {name: os.fspath(path) for name, path in paths.items()}
    else:
        items = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        pairs = [named(os.fspath(path)) for path in items]
        sets = dict(pairs)
        if len(sets) < len(pairs):
            raise ValueError("two data sets have the same name: write NAME=PATH")
    texts = {"unix": unix, "token_file": token_file, "tls_cert": tls_cert, "tls_key": tls_key}
    options: dict[str, Any] = {
        "sets": sets,
        "host": host,
        "port": port,
        "insecure": insecure,
        "processes": processes,
        "refresh": refresh,
        "drain": drain,
        "metrics_port": metrics_port,
        "reader_options": {"mmap": mmap},
        **{name: None if value is None else os.fspath(value) for name, value in texts.items()},
    }
    limits = ServiceOptions(max_rows, max_bytes, max_calls, timeout)
    Serving(**options, limits=limits).check()
    process = subprocess.Popen(
        [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield Server(_told(process, {**options, "limits": limits._asdict(), "sys_path": sys.path}), process)
    finally:
        process.terminate()
        try:
            process.wait(drain + _GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _told(process: subprocess.Popen[bytes], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the process says when it serves; the error, if it does not."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write((json.dumps(given) + "\n").encode())
    process.stdin.flush()
    line = process.stdout.readline()
    told: dict[str, Any] = (
        json.loads(line) if line else {"failed": "OSError", "reason": "the server has ended"}
    )
    if "failed" not in told:
        return told
    kind = getattr(builtins, told["failed"], None)
    if kind is None or not isinstance(kind, type) or not issubclass(kind, Exception):
        kind = errors.TFRecordError
    raise kind(told["reason"])
