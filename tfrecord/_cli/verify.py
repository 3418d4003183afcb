"""`tfrecord verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from tfrecord._cli.common import (
    bar,
    compression_option,
    count_text,
    default_threads,
    emit,
    expand,
    json_option,
    paths_argument,
    size_text,
    threads_option,
)
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import say
from tfrecord._kernels.record_type import RecordTypeName
from tfrecord.repair import VerifyReport
from tfrecord.repair import verify as verify_files


@click.command()
@paths_argument
@compression_option
@record_type_option
@click.option("--checksums-only", is_flag=True, help="Check checksums, not messages.")
@threads_option
@remote_options
@json_option
def verify(
    paths: tuple[str, ...],
    compression: str | None,
    record_type: RecordTypeName,
    checksums_only: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Check every byte: both checksums of every record, streams to their end, messages completely.

    Prints one line per damaged place (file, record, offset, reason), then a summary.

    \b
    Example:
      tfrecord verify data/*.tfrecord
    """
    files = expand(paths)
    with bar("verify") as report:
        found = verify_files(
            files,
            compression_type=compression,
            record_type=record_type,
            parse=not checksums_only,
            num_threads=default_threads(threads),
            progress=report,
            on_damage=None if as_json else lambda damage: say(str(damage)),
        )
    problems = Problems()
    for file in found.files:
        if file.settled is not None:
            problems.settled(file.path, file.settled)
    if as_json:
        emit(_document(found))
    else:
        _summary(found, checksums_only)
    return 0 if found.ok else 1


def _document(found: VerifyReport) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "records": found.records,
        "num_damages": found.num_damages,
        "files": [
            {
                "path": file.path,
                "ok": file.ok,
                "records": file.records,
                "bytes": file.size,
                "compression": file.compression,
                "record_type": file.record_type,
                "num_damages": file.num_damages,
                "damages": [{**asdict(damage), "message": str(damage)} for damage in file.damages],
            }
            for file in found.files
        ],
    }


def _summary(found: VerifyReport, checksums_only: bool) -> None:
    num_files = len(found.files)
    types = {file.record_type for file in found.files if file.record_type}
    if not found.ok:
        damaged = sum(not file.ok for file in found.files)
        words = f"{count_text(found.num_damages, 'damage')} in {damaged} of {count_text(num_files, 'file')}"
        words += f"; {count_text(found.records, 'good record')}"
        if found.records:
            # salvage keeps intact records whatever they hold; convert parses them.
            is_intact = all(damage.reason == "bad_message" for damage in found.damages)
            command = "convert --on-error skip" if is_intact else "salvage"
            words += f" ('tfrecord {command}' writes the good records to a new file)"
    else:
        size = size_text(sum(file.size for file in found.files))
        words = f"{count_text(num_files, 'file')}, {count_text(found.records, 'record')}, {size}: all good"
    if types == {"bytes"}:
        words += " (the payloads are not Examples: only checksums were checked)"
    elif checksums_only:
        words += " (messages were not parsed)"
    say(words)
