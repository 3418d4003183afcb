"""What the commands that write records share: options of the output, and writing it all or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass

import click

from indexer.build import build_index
from indexer.files import total_size
from indexer.outputs import STREAM, Outputs, is_special
from tfrecord._cli.common import Choice, count_text, emit, progress
from tfrecord._cli.conversion.formats import SURVEYED, Source, Target, balanced
from tfrecord._cli.remote import reached
from tfrecord._cli.terminal import say
from tfrecord._reading.payload_batches import Batch
from tfrecord.schema import SchemaCollector

output_compression_option = click.option(
    "--output-compression",
    type=Choice(["none", "gzip", "zlib", "zstd"]),
    default=None,
    help="Compression of TFRecord output (default: gzip for a name that ends in .gz).",
)
index_option = click.option(
    "--index", "with_index", is_flag=True, help="Also build the indexes of the output."
)
shards_option = click.option(
    "--shards", type=click.IntRange(1, 99999), default=None, help="Number of shards to write."
)


def split_arguments(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """IN... OUT: at least one of each."""
    if len(value) < 2:
        raise click.UsageError("give at least one input and the output: IN... OUT", ctx)
    return tuple(map(reached, value))


in_out_argument = click.argument(
    "paths", nargs=-1, required=True, metavar="IN... OUT", type=click.Path(), callback=split_arguments
)


@dataclass(frozen=True)
class Output:
    """Where records go, and in which form."""

    path: str
    #: What the progress bar says.
    label: str
    form: str = "tfrecord"
    compression: str | None = None
    shards: int | None = None
    #: Number of records in each shard; None: equal to within one.
    sizes: list[int] | None = None
    #: Features to write as strings.
    text: Iterable[str] = ()
    with_index: bool = False
    as_json: bool = False


def write_out(source: Iterable[Batch], inputs: list[str], output: Output) -> None:
    """Write a source to its output, all or nothing, and say what was written."""
    path, form, shards, sizes = output.path, output.form, output.shards, output.sizes
    total = total_size(inputs)
    if output.compression is not None and form != "tfrecord":
        raise click.UsageError("--output-compression is for TFRecord output")
    if output.with_index and (form != "tfrecord" or is_special(path)):
        raise click.UsageError("--index is for TFRecord output to a file")
    with closing(source) if isinstance(source, Source) else nullcontext(), Outputs(inputs) as outputs:
        if isinstance(source, Source):
            source.once = form not in SURVEYED and shards is None and sizes is None
        target = Target(outputs, path, form, compression=output.compression, text=output.text)
        if shards is None and sizes is None:
            outputs.check(path)
        elif sizes is None:
            sizes = balanced(_count(source), shards or 1)
        with _bar(output.label, total) as advance:
            written = target.write(source, sizes, advance)
    for name in target.names if output.with_index else ():
        build_index(name, collector=SchemaCollector())
    if output.as_json:
        emit({"records": written, "outputs": target.names}, err=path == STREAM)
    elif path != STREAM:
        where = (
            path
            if len(target.names) == 1
            else f"{count_text(len(target.names), 'file')}, {target.names[0]} …"
        )
        say(f"{count_text(written, 'record')} to {where}")


def _count(source: Iterable[Batch]) -> int:
    if isinstance(source, Source):
        return source.count()
    return sum(len(batch.payloads) for batch in source)


@contextmanager
def _bar(label: str, total: int) -> Iterator[Callable[[Batch], None]]:
    with progress(label, total) as advance:
        yield lambda batch: advance(batch.num_bytes)
