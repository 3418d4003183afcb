"""`tfrecord convert`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import click

from indexer.files import is_url
from indexer.framing import frame_record
from indexer.outputs import STREAM
from tfrecord._cli.common import (
    Choice,
    columns_option,
    compression_option,
    expand,
    json_option,
    no_feature,
    split_names,
)
from tfrecord._cli.conversion.formats import (
    FORMATS,
    Source,
    check_compression,
    check_text,
    format_of,
    output_format,
)
from tfrecord._cli.conversion.layout import build_message, exact_record
from tfrecord._cli.output import (
    Output,
    in_out_argument,
    index_option,
    output_compression_option,
    shards_option,
    write_out,
)
from tfrecord._cli.problems import Problems, on_error_option, record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._reading.payload_batches import Batch, batch_of_frames


@click.command()
@in_out_argument
@click.option("--from", "source_form", type=Choice(FORMATS), default=None, help="Default: by suffix.")
@click.option("--to", "target_form", type=Choice(FORMATS), default=None, help="Default: by suffix.")
@compression_option
@output_compression_option
@shards_option
@columns_option
@click.option(
    "--text",
    default=None,
    metavar="A,B",
    callback=lambda c, p, v: split_names(v),
    help="Features to write as strings to Parquet and Arrow (default: binary).",
)
@record_type_option
@on_error_option
@click.option("--round-floats", is_flag=True, help="Round float64 values that float32 cannot hold exactly.")
@index_option
@remote_options
@json_option
def convert(
    paths: tuple[str, ...],
    source_form: str | None,
    target_form: str | None,
    compression: str | None,
    output_compression: str | None,
    shards: int | None,
    columns: list[str] | None,
    text: list[str] | None,
    record_type: str,
    on_error: str,
    round_floats: bool,
    with_index: bool,
    as_json: bool,
) -> int:
    """Convert to and from Parquet, Arrow, JSON lines, npz, WebDataset tar, and TFRecord plain or gzip.

    Formats follow from the suffix: .parquet, .arrow, .jsonl, .npz, .tar. The usual TFRecord names, and names
    without a suffix, mean TFRecord. Other suffixes of OUT need --to. Records keep their order, and converting
    back gives equal values, types and missing features. OUT appears complete or not at all. If a record is
    not a valid message, nothing is written; with --on-error skip, the other records are written.

    \b
    Examples:
      tfrecord convert data/*.tfrecord data.parquet
      tfrecord convert data.parquet data.tfrecord.gz
    """
    inputs, output = _expanded(paths[:-1], source_form), paths[-1]
    form = target_form or output_format(output)
    check_text(form, text)
    check_compression(form, output)
    problems = Problems(on_error)
    source = Source(
        inputs,
        source_form,
        compression=compression,
        round_floats=round_floats,
        record_type=record_type,
        problems=problems,
    )
    write_out(
        source if columns is None else Projection(source, columns),
        inputs,
        Output(
            output,
            "convert",
            form,
            output_compression,
            shards,
            text=text or (),
            with_index=with_index,
            as_json=as_json,
        ),
    )
    return problems.finish("missing from the output")


def _expanded(paths: Iterable[str], form: str | None) -> list[str]:
    """Files of other formats are given by name; a folder means its data files only for TFRecord."""
    found: list[str] = []
    for path in paths:
        if form in (None, "tfrecord") and format_of(path) == "tfrecord" or any(c in path for c in "*?["):
            found += expand([path])
        elif path != STREAM and not is_url(path) and not os.path.exists(path):
            raise click.UsageError(f"no such file: {path}")
        else:
            found.append(path)
    return found


class Projection:
    """The records of a source with only some features."""

    def __init__(self, source: Iterable[Batch], names: list[str]) -> None:
        self._source, self._names = source, frozenset(names)

    def __iter__(self) -> Iterator[Batch]:
        kind, unseen, seen = None, set(self._names), set[str]()
        for batch in self._source:
            kind = batch.record_type
            if kind == "bytes":
                raise click.UsageError(
                    f"{batch.path}: the records are not Examples and have no features to choose"
                )
            frames = []
            for row in range(len(batch.payloads)):
                context, lists = exact_record(batch.payloads.view(row), kind)
                seen.update(context, lists or ())
                context = {key: value for key, value in context.items() if key in self._names}
                if lists is not None:
                    lists = {key: value for key, value in lists.items() if key in self._names}
                unseen.difference_update(context, lists or ())
                frames.append(frame_record(build_message(context, lists)))
            yield batch_of_frames(batch.path, batch.first, b"".join(frames), kind)
        if unseen and kind:
            raise click.UsageError(no_feature(sorted(unseen), seen))
