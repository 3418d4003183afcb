"""`tfrecord bench`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import click
import numpy as np

from indexer.compression import Compression
from indexer.framing import VERIFY_ALL, VERIFY_LENGTHS
from indexer.outputs import STREAM
from indexer.streams import iter_chunks
from tfrecord._cli.common import (
    add_row,
    compression_option,
    console,
    count_text,
    emit,
    expand,
    json_option,
    paths_argument,
    size_text,
    table,
)
from tfrecord._cli.terminal import safe
from tfrecord._columns.batch import BytesColumn
from tfrecord.reader import TFRecordReader

_BATCH = 1024
_RANDOM = 256


@click.command()
@paths_argument
@click.option(
    "--seconds", type=click.FloatRange(0.01), default=1.0, show_default=True, help="For each measure."
)
@compression_option
@json_option
def bench(paths: tuple[str, ...], seconds: float, compression: Compression | None, as_json: bool) -> None:
    """Measure how fast this machine reads these files with one thread (from the page cache, if they fit).

    \b
    Example:
      tfrecord bench data.tfrecord
    """
    files = expand(paths)
    if STREAM in files:
        raise click.UsageError("standard input cannot be read several times")
    results = []
    with TFRecordReader(files, compression_type=compression) as reader:
        if not len(reader):
            raise click.UsageError("there are no records to read")
        for name, step in _measures(reader, files, compression):
            results.append(_measure(name, step, seconds))
    if as_json:
        emit({"files": len(files), "measures": results})
        return
    out = console()
    rows = table("measure", "records/s", "bytes/s", "us/record", right=("records/s", "bytes/s", "us/record"))
    for item in results:
        speed = item["records_per_second"]
        bytes_speed = f"{size_text(int(item['bytes_per_second']))}/s"
        add_row(rows, item["name"], f"{speed:,.0f}", bytes_speed, f"{1e6 / speed:.3g}")
    out.print(safe(f"{count_text(len(files), 'file')}, one thread"))
    out.print(rows)


Step = Callable[[], Iterable[tuple[int, int]]]


def _measures(
    reader: TFRecordReader, files: list[str], compression: Compression | None
) -> list[tuple[str, Step]]:
    """Names and passes; each pass yields (records, bytes) as it reads."""
    generator = np.random.default_rng(0)

    def scan(verify: int) -> Iterable[tuple[int, int]]:
        for path in files:
            for chunk in iter_chunks(path, verify=verify, compression_type=compression):
                yield len(chunk.lengths), int(chunk.lengths.sum()) + 16 * len(chunk.lengths)

    def sequential() -> Iterable[tuple[int, int]]:
        for start in range(0, len(reader), _BATCH):
            column = reader.read_raw(np.arange(start, min(start + _BATCH, len(reader))))
            yield len(column), column.nbytes

    def random() -> Iterable[tuple[int, int]]:
        while True:
            column = reader.read_raw(generator.integers(0, len(reader), _RANDOM))
            yield len(column), column.nbytes

    def decode() -> Iterable[tuple[int, int]]:
        for batch in reader.batches(_BATCH):
            context: Any = getattr(batch, "context", batch)
            count = len(context) if isinstance(context, BytesColumn) else context.num_rows
            yield count, int(batch.nbytes)

    def random_decode() -> Iterable[tuple[int, int]]:
        while True:
            batch = reader.read(generator.integers(0, len(reader), _RANDOM))
            yield _RANDOM, int(batch.nbytes)

    return [
        ("index: scan headers", lambda: scan(VERIFY_LENGTHS)),
        ("index: check everything", lambda: scan(VERIFY_ALL)),
        ("sequential, raw", sequential),
        (f"random, {_RANDOM} at a time, raw", random),
        (f"sequential, {_BATCH} at a time, decoded", decode),
        (f"random, {_RANDOM} at a time, decoded", random_decode),
    ]


def _measure(name: str, step: Step, seconds: float) -> dict[str, Any]:
    """Run passes over the data until the time is up; a short first pass is a warm-up."""
    for _ in zip(range(4), step(), strict=False):
        pass
    records = size = 0
    start = time.perf_counter()
    spent = 0.0
    while spent < seconds:
        for count, nbytes in step():
            records += count
            size += nbytes
            spent = time.perf_counter() - start
            if spent >= seconds:
                break
    return {"name": name, "records_per_second": records / spent, "bytes_per_second": size / spent}
