"""`tfrecord head` and `tfrecord show`: records in readable form."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click

from indexer.compression import Compression
from indexer.errors import DecodeError, FeatureKindError
from indexer.outputs import STREAM
from tfrecord._cli.choosing import parse_positions, positions_of
from tfrecord._cli.common import (
    MOST_ROWS,
    add_row,
    columns_option,
    compression_option,
    console,
    expand,
    json_line,
    json_option,
    more_text,
    no_feature,
    paths_argument,
    table,
)
from tfrecord._cli.conversion.json_and_tar import record_json
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.describe import bytes_text, kind_of, value_text
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.remote import reach, remote_options
from tfrecord._cli.terminal import complain, safe
from tfrecord._kernels.record_type import SAMPLE
from tfrecord._reading.payload_batches import batches, settle_batches
from tfrecord.reader import TFRecordReader


class Item(NamedTuple):
    """A record to show: its place, payload and type."""

    path: str
    record: int
    offset: int | None
    payload: memoryview
    kind: str


@click.command()
@paths_argument
@click.option("-n", "--count", type=click.IntRange(0), default=5, show_default=True, help="How many.")
@columns_option
@record_type_option
@compression_option
@remote_options
@json_option
def head(
    paths: tuple[str, ...],
    count: int,
    columns: list[str] | None,
    record_type: str,
    compression: Compression | None,
    as_json: bool,
) -> int:
    """Show the first records: text in quotes, images and sounds by format, long lists shortened.

    With --json, prints one exact record per line.

    \b
    Example:
      tfrecord head data.tfrecord -n 3
    """
    source = batches(expand(paths), compression=compression, records=max(SAMPLE, min(count, 1024)))
    problems = Problems()

    def items() -> Iterator[Item]:
        for found, batch in settle_batches(source, record_type, problems.settled):
            for row in range(len(batch.payloads)):
                offset = batch.chunk.base_offset + int(batch.chunk.offsets[row])
                yield Item(batch.path, batch.first + row, offset, batch.payloads.view(row), found.name)

    _show(itertools.islice(items(), count), columns, problems, as_json)
    return problems.exit_code


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "arguments", nargs=-1, required=True, metavar="PATHS... POSITIONS...", type=click.Path(), callback=reach
)
@columns_option
@record_type_option
@compression_option
@remote_options
@json_option
def show(
    arguments: tuple[str, ...],
    columns: list[str] | None,
    record_type: str,
    compression: Compression | None,
    as_json: bool,
) -> int:
    """Show the records at positions: 5, -1 (the last), 10:20, or several separated by commas.

    Positions count from 0 through all files together.

    \b
    Example:
      tfrecord show data.tfrecord 7
    """
    places = [text for text in arguments if _is_position(text)]
    paths = [text for text in arguments if not _is_position(text)]
    wrong = next((text for text in paths if text.startswith("-") and text != STREAM), None)
    if wrong is not None:
        raise click.UsageError(f"no such option: {wrong}")
    if not paths or not places:
        neither = "" if places else next((f"; {text!r} is neither" for text in paths[1:]), "")
        raise click.UsageError(f"give at least one file and one position{neither}")
    if STREAM in paths:
        raise click.UsageError("standard input has no positions; use tfrecord head")
    wanted = parse_positions(",".join(places))
    problems = Problems()
    declared: Any = record_type
    with TFRecordReader(expand(paths), record_type=declared, compression_type=compression) as reader:
        positions = positions_of(wanted, len(reader))

        def items() -> Iterator[Item]:
            for position in positions:
                path, record = reader.locate(int(position))
                offset = reader._view.store.offset_of(path, record)
                yield Item(path, record, offset, reader.raw(int(position)), reader.record_type)

        _show(items(), columns, problems, as_json)
    return problems.exit_code


def _is_position(text: str) -> bool:
    return re.fullmatch(r"[-\d:,]*\d[-\d:,]*|:+", text) is not None and not os.path.exists(text)


def _show(items: Iterable[Item], columns: list[str] | None, problems: Problems, as_json: bool) -> None:
    out = console()
    seen: set[str] = set()
    for path, record, offset, payload, kind in items:
        try:
            if as_json:
                document = _chosen(record_json(payload, kind), kind, columns)
                _line({"path": path, "record": record, "type": kind, **document})
                continue
            name = "<stdin>" if path == STREAM else path
            title = safe(f"{name} record {record}, {_words(kind)}, {len(payload):,} bytes")
            _print_record(out, title, payload, kind, columns, seen)
        except (DecodeError, FeatureKindError) as error:
            problems.invalid(error.at(path, record, offset))
    missing = [] if as_json else [name for name in columns or () if name not in seen]
    if missing:
        complain(no_feature(missing, seen).replace("no record", "no record shown", 1))


def _line(document: Any) -> None:
    sys.stdout.write(json_line(document) + "\n")


def _words(kind: str) -> str:
    return {"example": "Example", "sequence_example": "SequenceExample"}.get(kind, "raw bytes")


def _chosen(document: dict[str, Any], kind: str, columns: list[str] | None) -> dict[str, Any]:
    """The exact record with only the requested features; for records of bytes, the `payload`."""
    if kind == "bytes":
        return {"payload": document["record"]}
    parts = document if kind == "sequence_example" else {"features": document.get("__example__", document)}
    if columns is None:
        return parts
    return {
        part: {key: value for key, value in features.items() if key in columns}
        for part, features in parts.items()
    }


def _print_record(
    out: Any, title: str, payload: memoryview, kind: str, columns: list[str] | None, seen: set[str]
) -> None:
    if kind == "bytes":
        out.print(title)
        out.print(f"  {bytes_text(payload, 400)}")
        return
    context, lists = exact_record(payload, kind)
    out.print(title)
    found = [(key, kind_of(value), value) for key, value in sorted(context.items())]
    for key, steps in sorted((lists or {}).items()):
        kinds = {kind_of(step) for step in steps if step is not None} or {"no kind"}
        found.append((key, f"{'/'.join(sorted(kinds))} steps", steps))
    seen.update(key for key, _, _ in found)
    found = [item for item in found if columns is None or item[0] in columns]
    rows = table("", "feature", "kind", "value")
    for key, told, value in found[:MOST_ROWS]:
        add_row(rows, "", key, told, value_text(value))
    if rows.row_count:
        out.print(rows)
    else:
        out.print("  (no features)" if not context and not lists else "")
    if len(found) > MOST_ROWS:
        out.print(f"  {more_text(len(found))}")
