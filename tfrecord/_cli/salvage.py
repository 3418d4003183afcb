"""`tfrecord salvage`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from indexer.outputs import STREAM
from tfrecord._cli.common import Choice, bar, compression_option, count_text, emit, json_option, size_text
from tfrecord._cli.conversion.formats import check_tfrecord_name
from tfrecord._cli.remote import reach, remote_options
from tfrecord._cli.terminal import say
from tfrecord.repair import Damage, SalvageReport, StreamDamage
from tfrecord.repair import salvage as salvage_file

_LINES = 1000


@click.command()
@click.argument("source", metavar="IN", type=click.Path(), callback=reach)
@click.argument("destination", metavar="OUT", type=click.Path(), callback=reach)
@compression_option
@click.option(
    "--output-compression",
    type=Choice(["none", "gzip", "zlib", "zstd"]),
    default=None,
    help="Compression of the output (default: gzip for a name that ends in .gz).",
)
@remote_options
@json_option
def salvage(
    source: str, destination: str, compression: str | None, output_compression: str | None, as_json: bool
) -> int:
    """Write every good record of a damaged file to a new file, and say what was lost. IN is never changed.

    A record with a damaged payload is left out. After a damaged length, the command searches for the next
    record. Exit code: 0 nothing was lost, 1 something was lost, 2 a file could not be read or written.

    \b
    Example:
      tfrecord salvage damaged.tfrecord whole.tfrecord
    """
    if source != STREAM and os.path.isdir(source):
        raise click.UsageError(f"{source} is a folder; salvage takes one file")
    check_tfrecord_name(destination)
    with bar("salvage") as show:
        report = salvage_file(
            source,
            destination,
            compression_type=compression,
            output_compression=output_compression,
            progress=show,
        )
    if as_json:
        emit({**asdict(report), "ok": report.ok}, err=destination == STREAM)
    else:
        _print(report, to_stderr=destination == STREAM)
    return 0 if report.ok else 1


def _print(report: SalvageReport, to_stderr: bool) -> None:
    name = "<stdin>" if report.path == STREAM else report.path
    lines = [_stream_line(name, damage) for damage in report.stream_damages]
    lines += [_line(name, damage) for damage in report.damages[: _LINES + 1]]
    for line in lines[:_LINES]:
        say(line, err=to_stderr)
    num_lines = report.num_damages + len(report.stream_damages)
    if num_lines > _LINES:
        say(f"... and {count_text(num_lines - _LINES, 'more damage')}", err=to_stderr)
    lost = "nothing was lost"
    if not report.ok:
        stretches = count_text(report.num_damages, "damaged stretch", "es")
        lost = f"{stretches}, {size_text(report.bytes_lost)} left out"
        if report.stream_damages:
            lost += "; what the damaged compression lost cannot be counted"
    say(f"{count_text(report.records, 'record')} to {report.output}; {lost}", err=to_stderr)
    if report.hint:
        say(f"{name}: {report.hint}", err=to_stderr)


def _stream_line(name: str, damage: StreamDamage) -> str:
    detail = f": {damage.detail}" if damage.detail else ""
    return f"{name}: compressed stream at byte {damage.offset}{detail} ({damage.reason})"


def _line(name: str, damage: Damage) -> str:
    detail = f"; {damage.detail}" if damage.detail else ""
    what = f"{count_text(damage.length or 0, 'byte')} left out ({damage.reason}{detail})"
    return f"{name}: record {damage.record} at offset {damage.offset}: {what}"
