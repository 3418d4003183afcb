"""`tfrecord shuffle`."""

from __future__ import annotations

import secrets

import click

from tfrecord._cli.output import shards_option
from tfrecord._cli.rewriting import Chosen, Rewrite, positioned, rewriting
from tfrecord.reader import TFRecordReader
from tfrecord.sampling.permutation import Permutation


@click.command()
@click.option(
    "--seed", type=click.IntRange(0, (1 << 63) - 1), default=None, help="Seed of the order (default: random)."
)
@shards_option
@rewriting
def shuffle(rewrite: Rewrite, seed: int | None, shards: int | None) -> None:
    """Write all records in a random order, each exactly once: a true permutation, in bounded memory.

    The same seed gives the same order on every machine.

    \b
    Example:
      tfrecord shuffle data/*.tfrecord shuffled.tfrecord --seed 1 --shards 8
    """
    files = positioned(rewrite.inputs)
    with TFRecordReader(
        files, record_type="bytes", compression_type=rewrite.compression, mmap=False
    ) as reader:
        order = Permutation(len(reader), seed=secrets.randbits(62) if seed is None else seed, epoch=0)
        rewrite.write(Chosen(reader, order), files, "shuffle", shards=shards)
