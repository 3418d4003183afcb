"""`tfrecord select`."""

from __future__ import annotations

import click

from tfrecord._cli.choosing import parse_condition, parse_positions, positions_of, positions_where
from tfrecord._cli.output import shards_option
from tfrecord._cli.rewriting import Chosen, Rewrite, positioned, rewriting
from tfrecord.reader import TFRecordReader


@click.command()
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="label=3, label=1,2, size>=100 ... (repeat it for more; all must hold).",
)
@click.option("--positions", default=None, metavar="LIST", help="5,-1,10:20,::2, in the order given.")
@shards_option
@rewriting
def select(rewrite: Rewrite, conditions: tuple[str, ...], positions: str | None, shards: int | None) -> None:
    """Write the records at positions, or those whose features meet all conditions.

    Columns stored in the index (tfrecord index --columns label) are used without reading the data.

    \b
    Examples:
      tfrecord select data.tfrecord threes.tfrecord --where label=3
      tfrecord select data.tfrecord first.tfrecord --positions :100
    """
    if bool(conditions) == (positions is not None):
        raise click.UsageError("give either --where or --positions" + (", not both" if conditions else ""))
    wanted = [parse_condition(text) for text in conditions]
    listed = parse_positions(positions) if positions is not None else []
    files = positioned(rewrite.inputs)
    # A name that no record has is an error of the conditions.
    with TFRecordReader(
        files, compression_type=rewrite.compression, mmap=False, allow_missing=True
    ) as reader:
        places = positions_where(reader, wanted) if conditions else positions_of(listed, len(reader))
        rewrite.write(Chosen(reader, places), files, "select", shards=shards)
