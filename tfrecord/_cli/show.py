"""`tfrecord head` and `tfrecord show`: records as people read them."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from indexer.compression import Compression
from indexer.errors import DecodeError, FeatureKindError
from indexer.outputs import STREAM
from tfrecord._cli.choosing import parse_positions, positions_of
from tfrecord._cli.common import (
    MOST_ROWS,
    Choice,
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
from tfrecord._cli.terminal import complain, safe
from tfrecord._reading.payload_batches import batches
from tfrecord.parse import record_kind
from tfrecord.reader import TFRecordReader

type_option = click.option(
    "--type",
    "record_type",
    type=Choice(["auto", "example", "sequence_example", "bytes"]),
    default="auto",
    help="What payloads are (default: each by its content).",
)

Item = tuple[str, int, memoryview]


@click.command()
@paths_argument
@click.option("-n", "--count", type=click.IntRange(0), default=5, show_default=True, help="How many.")
@columns_option
@type_option
@compression_option
@json_option
def head(
    paths: tuple[str, ...],
    count: int,
    columns: list[str] | None,
    record_type: str,
    compression: Compression | None,
    as_json: bool,
) -> None:
    """Show the first records: text as text, images and sounds by what they are, long lists shortened.

    With --json one exact record a line.

    \b
    Example:
      tfrecord head data.tfrecord -n 3
    """
    files = expand(paths)

    def items() -> Iterator[Item]:
        for batch in batches(files, compression=compression, records=max(1, min(count, 1024))):
            for row in range(len(batch.payloads)):
                yield batch.path, batch.first + row, batch.payloads.view(row)

    _show(itertools.islice(items(), count), columns, record_type, as_json)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, required=True, metavar="PATHS... POSITIONS...", type=click.Path())
@columns_option
@type_option
@compression_option
@json_option
def show(
    arguments: tuple[str, ...],
    columns: list[str] | None,
    record_type: str,
    compression: Compression | None,
    as_json: bool,
) -> None:
    """Show the records at positions: 5, -1 (the last), 10:20, or several with commas between.

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
    with TFRecordReader(expand(paths), record_type="bytes", compression_type=compression) as reader:
        positions = positions_of(wanted, len(reader))

        def items() -> Iterator[Item]:
            for position in positions:
                path, record = reader.locate(int(position))
                yield path, record, reader.raw(int(position))

        _show(items(), columns, record_type, as_json)


def _is_position(text: str) -> bool:
    return re.fullmatch(r"[-\d:,]*\d[-\d:,]*|:+", text) is not None and not os.path.exists(text)


def _show(items: Iterable[Item], columns: list[str] | None, record_type: str, as_json: bool) -> None:
    out = console()
    seen: set[str] = set()
    for path, record, payload in items:
        kind = record_kind(payload) if record_type == "auto" else record_type
        try:
            if as_json:
                document = _chosen(record_json(payload, kind), kind, columns)
                _line({"path": path, "record": record, "type": kind, **document})
                continue
            name = "<stdin>" if path == STREAM else path
            out.print(safe(f"{name} record {record}, {_words(kind)}, {len(payload):,} bytes"))
            _print_record(out, payload, kind, columns, seen)
        except (DecodeError, FeatureKindError) as error:
            raise error.at(path, record) from None
    missing = [] if as_json else [name for name in columns or () if name not in seen]
    if missing:
        complain(no_feature(missing, seen).replace("no record", "no record shown", 1))


def _line(document: Any) -> None:
    sys.stdout.write(json_line(document) + "\n")


def _words(kind: str) -> str:
    return {"example": "Example", "sequence_example": "SequenceExample"}.get(kind, "raw bytes")


def _chosen(document: dict[str, Any], kind: str, columns: list[str] | None) -> dict[str, Any]:
    """The exact record, less the features that were not asked for; of other bytes the `payload`."""
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
    out: Any, payload: memoryview, kind: str, columns: list[str] | None, seen: set[str]
) -> None:
    if kind == "bytes":
        out.print(f"  {bytes_text(payload, 400)}")
        return
    context, lists = exact_record(payload, kind)
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
