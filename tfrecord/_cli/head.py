"""`tfrecord head`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import click

from indexer.compression import Compression
from tfrecord._cli.common import columns_option, compression_option, expand, json_option, paths_argument
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.records import Item, show_items
from tfrecord._cli.remote import remote_options
from tfrecord._kernels.record_type import SAMPLE
from tfrecord._reading.payload_batches import batches, settle_batches


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

    show_items(itertools.islice(items(), count), columns, problems, as_json)
    return problems.exit_code
