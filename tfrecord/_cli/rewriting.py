"""What `tfrecord split`, `merge`, `shuffle` and `select` share: the same records go to other files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from indexer.compression import Compression
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, frame_record
from indexer.outputs import STREAM
from tfrecord._cli.common import compression_option, expand, json_option
from tfrecord._cli.conversion.formats import check_tfrecord_name
from tfrecord._cli.output import Output, in_out_argument, index_option, output_compression_option, write_out
from tfrecord._cli.remote import remote_options
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.payload_batches import Batch, batch_of_frames
from tfrecord.reader import TFRecordReader

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
        output = Output(
            self.output,
            label,
            compression=self.output_compression,
            shards=shards,
            sizes=sizes,
            with_index=self.with_index,
            as_json=self.as_json,
        )
        write_out(source, files, output)


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
        check_tfrecord_name(paths[-1])
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


def positioned(paths: tuple[str, ...]) -> list[str]:
    """The files of a command that reads by position."""
    files = expand(paths)
    if STREAM in files:
        raise click.UsageError("this needs positions, which standard input does not have")
    return files
