"""`tfrecord show`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import click

from indexer.compression import Compression
from indexer.outputs import STREAM
from tfrecord._cli.choosing import parse_positions, positions_of
from tfrecord._cli.common import columns_option, compression_option, expand, json_option
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.records import Item, show_items
from tfrecord._cli.remote import reach, remote_options
from tfrecord.reader import TFRecordReader


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

        show_items(items(), columns, problems, as_json)
    return problems.exit_code


def _is_position(text: str) -> bool:
    return re.fullmatch(r"[-\d:,]*\d[-\d:,]*|:+", text) is not None and not os.path.exists(text)
