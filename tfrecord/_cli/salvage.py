"""`tfrecord salvage`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from indexer.outputs import STREAM
from tfrecord._cli.common import compression_option, count_text, emit, json_option, progress, safe, size_text
from tfrecord.repair import SalvageReport
from tfrecord.repair import salvage as salvage_file

_LINES = 1000


@click.command()
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("destination", metavar="OUT", type=click.Path())
@compression_option
@click.option(
    "--output-compression",
    type=click.Choice(["none", "gzip", "zlib"]),
    default=None,
    help="Of the output (default: gzip for a name that ends in .gz).",
)
@json_option
def salvage(
    source: str, destination: str, compression: str | None, output_compression: str | None, as_json: bool
) -> int:
    """Write every whole record of a damaged file to a new one, and say what was lost. IN is never changed.

    A record with a damaged payload is left out; after a damaged length the next record is found, wherever it
    is. Exit code: 0 nothing was lost, 1 something was.

    \b
    Example:
      tfrecord salvage damaged.tfrecord whole.tfrecord
    """
    if source != STREAM and os.path.isdir(source):
        raise click.UsageError(f"{source} is a folder; salvage takes one file")
    done = 0
    with progress("salvage", None if source == STREAM else 100) as advance:

        def show(at: int, total: int) -> None:
            nonlocal done
            share = 100 * at // max(total, 1)
            advance(share - done)
            done = share

        report = salvage_file(
            source,
            destination,
            compression_type=compression,
            output_compression=output_compression,
            progress=show,
        )
    if as_json:
        emit({**asdict(report), "ok": report.ok})
    else:
        _print(report, to_stderr=destination == STREAM)
    return 0 if report.ok else 1


def _print(report: SalvageReport, to_stderr: bool) -> None:
    def say(text: str) -> None:
        click.echo(safe(text), err=to_stderr)

    name = "<stdin>" if report.path == STREAM else report.path
    for stream in report.stream_damages:
        detail = f": {stream.detail}" if stream.detail else ""
        say(f"{name}: compressed stream at byte {stream.offset}{detail} ({stream.reason})")
    for damage in report.damages[:_LINES]:
        detail = f"; {damage.detail}" if damage.detail else ""
        what = f"{count_text(damage.length, 'byte')} passed over ({damage.reason}{detail})"
        say(f"{name}: record {damage.record} at offset {damage.offset}: {what}")
    if report.num_damages > _LINES:
        say(f"... and {count_text(report.num_damages - _LINES, 'more damage')}")
    lost = "nothing was lost"
    if not report.ok:
        stretches = count_text(report.num_damages, "damaged stretch", "es")
        lost = f"{stretches}, {size_text(report.bytes_lost)} passed over"
        if report.stream_damages:
            lost += "; what the compressed stream lost cannot be counted"
    say(f"{count_text(report.records, 'record')} to {report.output}; {lost}")
    if report.hint:
        say(f"{name}: {report.hint}")
