"""`tfrecord serve`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from indexer.errors import TFRecordError
from tfrecord._cli.common import count_text, json_option
from tfrecord._cli.remote import reached, remote_options
from tfrecord._cli.terminal import complain, say
from tfrecord._optional import optional
from tfrecord.flight.running import Serving, json_log, run
from tfrecord.flight.served import named
from tfrecord.flight.server import ServiceOptions


def _sets(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for given in value:
        name, path = named(given)
        if name in found:
            raise click.BadParameter(f"two data sets have the name {name!r}: write NAME=PATH")
        found[name] = reached(path)
    return found


def _bytes(ctx: click.Context, param: click.Parameter, value: str) -> int:
    units = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "": 1}
    digits = value.rstrip("KMGIiBb")
    unit = value[len(digits) :].upper()
    if not digits.isdigit() or unit not in units or not int(digits):
        raise click.BadParameter("write a number of bytes, such as 1048576 or 256MiB")
    return int(digits) * units[unit]


@click.command()
@click.argument("sets", nargs=-1, required=True, metavar="[NAME=]PATH...", callback=_sets)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port (default: any free port).")
@click.option("--unix", type=click.Path(), metavar="SOCKET", help="Listen on a socket file instead.")
@click.option("--token-file", type=click.Path(), help="File with the token; made if it is not there.")
@click.option("--tls-cert", type=click.Path(exists=True), help="Certificate chain (PEM), for grpc+tls.")
@click.option("--tls-key", type=click.Path(exists=True), help="Its private key (PEM).")
@click.option("--insecure", is_flag=True, help="Allow clear text on an address that other hosts reach.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    help="Processes, each on a port of its own: PORT, PORT+1, ...",
)
@click.option(
    "--max-rows", type=click.IntRange(1), default=65_536, show_default=True, help="Per record batch."
)
@click.option("--max-bytes", default="256MiB", show_default=True, callback=_bytes, help="Per record batch.")
@click.option(
    "--max-calls", type=click.IntRange(1), default=64, show_default=True, help="Open calls per process."
)
@click.option("--timeout", type=float, default=300.0, show_default=True, help="Seconds that a call may take.")
@click.option("--drain", type=float, default=30.0, show_default=True, help="Seconds for requests at the end.")
@click.option("--refresh", type=click.FloatRange(0.1), help="Look for added files every so many seconds.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="HTTP port of /metrics, /health, /ready.")
@click.option("--no-mmap", is_flag=True, help="Read files by copying: others may truncate them in place.")
@remote_options
@json_option
def serve(sets: dict[str, str], as_json: bool, no_mmap: bool, **options: Any) -> None:
    """Serve data sets to readers on this host or others (Arrow Flight).

    A data set is a file, folder, glob or URL. Its name is the one given, or that of its file or folder.
    Clients need the server's token; those of the same user on this host find it by themselves. SIGTERM ends
    the server when its requests are done; SIGHUP makes it look for added files. --json prints one JSON object
    per line: on standard output when the server is ready, on standard error for each request.

    \b
    Example:
      tfrecord serve train=data/train --port 9000
    """
    optional("pyarrow")
    limits = ServiceOptions(**{name: options.pop(name) for name in ServiceOptions._fields})
    serving = Serving(sets, **options, limits=limits, reader_options={"mmap": not no_mmap})
    try:
        serving.check()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    code = 2
    try:
        code = run(serving, _emit if as_json else _print, json_log if as_json else _complain)
    except TFRecordError as error:
        complain(str(error))
        code = 1
    except (OSError, ValueError) as error:
        complain(str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # calls of clients may be open


def _emit(words: Mapping[str, Any]) -> None:
    say(json.dumps(words))


def _print(words: Mapping[str, Any]) -> None:
    for one in words["data"]:
        say(f"{one['url']}  {count_text(one['records'], 'record')} ({one['record_type']})")
    say(f"token: {words['token_file']}", err=True)
    if words["metrics_port"] is not None:
        say(f"metrics: port {words['metrics_port']}", err=True)


def _complain(event: str, fields: Mapping[str, Any]) -> None:
    if event != "request":
        text = ", ".join(f"{name}: {value}" for name, value in fields.items())
        complain(f"{event} {text}".strip())
