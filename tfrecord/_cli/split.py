"""`tfrecord split`."""

from __future__ import annotations

import click

from tfrecord._cli.common import expand
from tfrecord._cli.conversion.formats import Source
from tfrecord._cli.rewriting import Rewrite, rewriting


@click.command()
@click.option(
    "--shards",
    type=click.IntRange(1, 99999),
    default=None,
    help="Number of shards, equal to within one record.",
)
@click.option("--records", type=click.IntRange(1), default=None, help="Records per shard.")
@rewriting
def split(rewrite: Rewrite, shards: int | None, records: int | None) -> None:
    """Split files into shards OUT-00000-of-0000N, in stored order; all shards appear, or none.

    \b
    Example:
      tfrecord split data.tfrecord part.tfrecord --shards 4
    """
    if (shards is None) == (records is None):
        raise click.UsageError("give --shards or --records")
    files = expand(rewrite.inputs)
    source = Source(files, "tfrecord", compression=rewrite.compression)
    sizes = None
    if records is not None:
        count = source.count()
        sizes = [min(records, count - start) for start in range(0, count, records)] or [0]
        if len(sizes) > 99999:
            raise click.UsageError(f"{len(sizes)} shards are too many; give a larger --records")
    rewrite.write(source, files, "split", shards=shards, sizes=sizes)
