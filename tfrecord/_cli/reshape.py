"""`tfrecord split`, `merge`, `shuffle` and `select`: the same records in other files."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from indexer.compression import Compression
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, frame_record
from indexer.outputs import STREAM
from tfrecord._cli.choosing import parse_condition, parse_positions, positions_of, positions_where
from tfrecord._cli.common import compression_option, expand, json_option
from tfrecord._cli.conversion.formats import Source
from tfrecord._cli.convert import (
    in_out_argument,
    index_option,
    output_compression_option,
    shards_option,
    write_out,
)
from tfrecord._cli.remote import remote_options
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.payload_batches import Batch, batch_of_frames
from tfrecord.reader import TFRecordReader
from tfrecord.sampling.permutation import Permutation

_POSITIONS = 1024
_COPY = 8 << 20


@dataclass(frozen=True)
class Rewrite:
    """The arguments that these commands share: where the records are, and how to write them."""

    inputs: tuple[str, ...]
    output: str
    compression: Compression | None
    output_compression: str | None
    with_index: bool
    as_json: bool

    def write(
        self,
        source: Iterable[Batch],
        files: list[str],
        label: str,
        *,
        shards: int | None = None,
        sizes: list[int] | None = None,
    ) -> None:
        """Write the records of `files`, as `source` has them, to the output; see `write_out`."""
        write_out(
            source,
            files,
            self.output,
            "tfrecord",
            compression=self.output_compression,
            shards=shards,
            sizes=sizes,
            with_index=self.with_index,
            as_json=self.as_json,
            label=label,
        )


def rewriting(command: Callable[..., None]) -> Callable[..., None]:
    """Add IN... OUT and the options that these commands share; the command gets them as a `Rewrite`."""

    @functools.wraps(command)
    def collected(
        paths: tuple[str, ...],
        compression: Compression | None,
        output_compression: str | None,
        with_index: bool,
        as_json: bool,
        **own: Any,
    ) -> None:
        given = Rewrite(paths[:-1], paths[-1], compression, output_compression, with_index, as_json)
        command(given, **own)

    # The option added last comes first in the help.
    for add in (
        json_option,
        remote_options,
        index_option,
        output_compression_option,
        compression_option,
        in_out_argument,
    ):
        collected = add(collected)
    return collected


class Chosen:
    """Records of a reader at some positions, in their order, in bounded memory."""

    def __init__(self, reader: TFRecordReader[Any], positions: Any) -> None:
        self._reader, self._positions = reader, positions

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self._positions), _POSITIONS):
            positions = np.asarray(self._positions[start : start + _POSITIONS], np.int64)
            column = self._reader.read_raw(positions)
            sums = np.cumsum(column.lengths)
            low = 0
            while low < len(column):
                done = int(sums[low - 1]) if low else 0
                high = max(low + 1, int(np.searchsorted(sums, done + _COPY, "right")))
                yield batch_of_frames("", start + low, frames_of(column[low:high]))
                low = high


def frames_of(payloads: BytesColumn) -> bytes:
    """The frames of payloads, copied directly if the payloads are still in their frames."""
    try:
        framed = BytesColumn(
            payloads.buffers,
            payloads.offsets - HEADER_SIZE,
            payloads.lengths + FRAME_OVERHEAD,
            payloads.buffer_ids,
        )
    except ValueError:
        framed = None
    if framed is not None:
        frames = bytes(framed.compact().buffers[0])
        made = batch_of_frames("", 0, frames)
        sums = np.concatenate(([0], np.cumsum(framed.lengths)))[:-1]
        if np.array_equal(made.chunk.offsets.astype(np.int64), sums):
            return frames
    return b"".join(frame_record(payloads.view(row)) for row in range(len(payloads)))


def _positioned(paths: tuple[str, ...]) -> list[str]:
    files = expand(paths)
    if STREAM in files:
        raise click.UsageError("this needs positions, which standard input does not have")
    return files


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
    files = _positioned(rewrite.inputs)
    with TFRecordReader(
        files, record_type="bytes", compression_type=rewrite.compression, mmap=False
    ) as reader:
        order = Permutation(len(reader), seed=secrets.randbits(62) if seed is None else seed, epoch=0)
        rewrite.write(Chosen(reader, order), files, "shuffle", shards=shards)


@click.command()
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION", help="label=3, label=1,2, size>=100 ..."
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
    files = _positioned(rewrite.inputs)
    with TFRecordReader(files, compression_type=rewrite.compression, mmap=False) as reader:
        places = positions_where(reader, wanted) if conditions else positions_of(listed, len(reader))
        rewrite.write(Chosen(reader, places), files, "select", shards=shards)
