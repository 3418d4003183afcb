"""`tfrecord verify`."""

from __future__ import annotations

import os
from typing import Any

import click

from indexer.errors import TFRecordError
from tfrecord._cli.common import (
    compression_option,
    count_text,
    default_threads,
    emit,
    expand,
    json_option,
    paths_argument,
    progress,
    safe,
    size_text,
    threads_option,
)
from tfrecord._repair.checker import Checker, FileCheck


@click.command()
@paths_argument
@compression_option
@click.option(
    "--type",
    "record_type",
    type=click.Choice(["auto", "example", "sequence_example", "bytes"]),
    default="auto",
    help="What payloads are (default: what most of the first are).",
)
@click.option("--checksums-only", is_flag=True, help="Do not parse the messages.")
@threads_option
@json_option
def verify(
    paths: tuple[str, ...],
    compression: str | None,
    record_type: str,
    checksums_only: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Check every byte: both checksums of every record, streams to their end, messages completely.

    Prints one line for each damage (file, record, offset, reason) and goes on after it; then a summary.

    \b
    Example:
      tfrecord verify data/*.tfrecord
    """
    files = expand(paths)
    total = sum(os.path.getsize(path) for path in files if os.path.isfile(path))
    with progress("verify", total) as advance:
        checker = Checker(
            threads=default_threads(threads),
            parse=not checksums_only,
            record_type=record_type,
            report=None if as_json else _print,
            progress=advance,
        )
        results = checker.check(files, compression)
    damaged = [result for result in results if result.num_damages]
    if as_json:
        emit(_document(results))
    else:
        _summary(results, damaged, checksums_only)
    return 1 if damaged else 0


def _print(error: TFRecordError) -> None:
    click.echo(safe(str(error)))


def _document(results: list[FileCheck]) -> dict[str, Any]:
    return {
        "ok": not any(result.num_damages for result in results),
        "records": sum(result.records for result in results),
        "num_damages": sum(result.num_damages for result in results),
        "files": [
            {
                "path": result.path,
                "ok": not result.num_damages,
                "records": result.records,
                "bytes": result.size,
                "compression": result.compression,
                "record_type": result.record_type,
                "num_damages": result.num_damages,
                "damages": result.damages,
            }
            for result in results
        ],
    }


def _summary(results: list[FileCheck], damaged: list[FileCheck], checksums_only: bool) -> None:
    records = sum(result.records for result in results)
    size = sum(result.size for result in results)
    types = sorted({result.record_type for result in results if result.record_type})
    if damaged:
        count = sum(result.num_damages for result in damaged)
        words = f"{count_text(count, 'damage')} in {len(damaged)} of {count_text(len(results), 'file')}"
        words += f"; {count_text(records, 'good record')}"
        words += " (tfrecord salvage writes what is good to a new file)"
    else:
        counted = f"{count_text(len(results), 'file')}, {count_text(records, 'record')}"
        words = f"{counted}, {size_text(size)}: all good"
    if types == ["bytes"]:
        words += " (payloads are no Examples: only checksums tell)"
    elif checksums_only:
        words += " (messages were not parsed)"
    click.echo(words)
