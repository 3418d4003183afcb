"""`tfrecord merge`."""

from __future__ import annotations

import click

from tfrecord._cli.common import expand
from tfrecord._cli.conversion.formats import Source
from tfrecord._cli.rewriting import Rewrite, rewriting


@click.command()
@rewriting
def merge(rewrite: Rewrite) -> None:
    """Join files into one, in the order given (globs and folders in natural sort order).

    \b
    Example:
      tfrecord merge part.tfrecord-*-of-00004 whole.tfrecord
    """
    files = expand(rewrite.inputs)
    source = Source(files, "tfrecord", compression=rewrite.compression)
    rewrite.write(source, files, "merge")
