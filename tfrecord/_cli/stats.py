"""`tfrecord stats`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from rich.padding import Padding

from indexer.files import total_size
from indexer.outputs import Outputs
from tfrecord._cli.columnstats import BatchStats, ColumnStats, Counts, stats_of
from tfrecord._cli.common import (
    MOST_ROWS,
    add_row,
    columns_option,
    compression_option,
    console,
    count_text,
    default_threads,
    emit,
    expand,
    json_option,
    more_text,
    no_feature,
    paths_argument,
    plain,
    progress,
    size_text,
    table,
    threads_option,
)
from tfrecord._cli.describe import counted_text, number_text
from tfrecord._cli.histogram import blocks
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import safe
from tfrecord._cli.viewer.report import report, top_values
from tfrecord._reading.payload_batches import batches, checked, threaded


@click.command()
@paths_argument
@columns_option
@click.option(
    "--top", type=click.IntRange(0, 1000), default=5, show_default=True, help="Most frequent values."
)
@click.option("--html", "page", metavar="FILE", default=None, help="Write a page to FILE instead of a table.")
@compression_option
@record_type_option
@threads_option
@remote_options
@json_option
def stats(
    paths: tuple[str, ...],
    columns: list[str] | None,
    top: int,
    page: str | None,
    compression: str | None,
    record_type: str,
    threads: int | None,
    as_json: bool,
) -> int:
    """Count, missing, range, mean, histogram, number of values and most frequent values of every column.

    One pass, constant memory. For byte strings, range, mean and histogram refer to their sizes. Records that
    are not valid messages are named and counted as records without features; the exit code is then 1.

    \b
    Examples:
      tfrecord stats data.tfrecord --columns label
      tfrecord stats data.tfrecord --html report.html
    """
    files = expand(paths)
    total = total_size(files)
    result, problems = BatchStats(), Problems()
    with progress("stats", total) as advance:
        found = batches(files, compression=compression)
        source = checked(found, record_type, problems.invalid, problems.settled)
        for part in threaded(
            lambda batch: stats_of(batch, columns, result), source, default_threads(threads)
        ):
            result.merge(part)
            advance(part.bytes)
    result.rows += problems.num_invalid
    missing = [name for name in columns or () if not any(key[1] == name for key in result.columns)]
    if missing and result.rows:
        raise click.UsageError(no_feature(missing, result.names))
    found_all = {**document(result, top), "invalid": problems.num_invalid}
    if page is not None:
        with Outputs(files) as outputs:
            outputs.open(page).write(report(found_all, files, problems.num_invalid).encode())
    if as_json:
        emit(found_all)
    elif page is None:
        _print(result, top)
    return problems.finish("counted, without features")


def document(result: BatchStats, top: int) -> dict[str, Any]:
    """The statistics as JSON has them, and as the page of `--html` and the viewer show them."""
    present: dict[tuple[str, str], int] = {}
    for (where, name, _), found in result.columns.items():
        present[where, name] = present.get((where, name), 0) + found.present
    return {
        "records": result.rows,
        "bytes": result.bytes,
        "record_bytes": {
            "min": result.payloads.least,
            "max": result.payloads.greatest,
            "mean": result.payloads.mean,
        },
        "columns": [
            {
                "name": name,
                **({"where": where} if where else {}),
                "kind": found.kind,
                "present": found.present,
                "missing": result.rows - present[where, name],
                "values": found.values,
                "values_per_record": _spread(found.counts),
                **({"steps_per_record": _spread(found.steps)} if where else {}),
                "of": "bytes" if found.kind == "bytes" else "values",
                "min": found.least,
                "max": found.greatest,
                "mean": found.mean,
                "not_finite": found.not_finite,
                "histogram": [asdict(bar) for bar in found.histogram.bars()],
                "top": _top(found, top),
                "top_error": found.top.error,
            }
            for (where, name, kind), found in sorted(result.columns.items())
            if kind != "no kind" or len([key for key in result.columns if key[:2] == (where, name)]) == 1
        ],
    }


def _spread(counts: Counts) -> dict[str, Any]:
    histogram = {_bucket(i): counts.buckets[i] for i in sorted(counts.buckets)}
    return {"min": counts.least, "max": counts.most, "mean": counts.mean, "histogram": histogram}


def _bucket(number: int) -> str:
    """The range of lengths that a bucket covers."""
    if number < 2:
        return str(number)
    return f"{1 << (number - 1)}-{(1 << number) - 1}"


def _top(found: ColumnStats, most: int) -> list[dict[str, Any]]:
    ranked = sorted(found.top.counts.items(), key=lambda item: (-item[1], repr(item[0])))
    return [{"value": value, "count": count} for value, count in ranked[:most]]


def _print(result: BatchStats, top: int) -> None:
    out = console()
    sizes = result.payloads
    words = f"{count_text(result.rows, 'record')}, {size_text(result.bytes)}"
    if result.rows:
        words += f"; a record has {sizes.least:,} to {sizes.greatest:,} bytes, {sizes.mean:,.0f} on average"
    out.print(safe(words))
    if not result.columns:
        if result.rows:
            out.print("the records are not Examples: there are no columns")
        return
    wide = out.width >= 110
    right = ("missing", "values", "min", "max", "mean")
    rows = table("feature", "kind", *right, "histogram", "most frequent", right=right)
    items = document(result, top)["columns"]
    for item in items[:MOST_ROWS]:
        each = _each(item["values_per_record"])
        steps = f" ({_each(item['steps_per_record'])} steps)" if "where" in item else ""
        drawn = blocks([bar["count"] for bar in item["histogram"]])
        if not wide:  # a table would break up names and numbers
            words = f"{item['name']}{steps}  {item['kind']}, {item['missing']:,} missing, {each} values"
            if item["min"] is not None:
                low, high, mean = (number_text(item[key]) for key in ("min", "max", "mean"))
                words += f", {low} to {high}, mean {mean}"
            out.print(plain(words + (f"  {drawn}" if drawn else "")))
            if frequent := _frequent(item, top):
                out.print(Padding(plain(frequent), (0, 0, 0, 4)))
            continue
        add_row(
            rows,
            item["name"] + steps,
            item["kind"],
            f"{item['missing']:,}",
            each,
            number_text(item["min"]),
            number_text(item["max"]),
            number_text(item["mean"]),
            drawn,
            _frequent(item, top),
        )
    if wide:
        out.print(rows)
    if len(items) > MOST_ROWS:
        out.print(more_text(len(items)))
    if any(item["of"] == "bytes" for item in items):
        out.print(
            "(values: how many a record has; for bytes, min, max, mean and histogram are of their sizes)"
        )


def _each(per: dict[str, Any]) -> str:
    """The least, the most and the mean per record."""
    if per["min"] == per["max"]:
        return str(per["max"])
    return f"{per['min']}..{per['max']} ({per['mean']:.3g})"


def _frequent(item: dict[str, Any], top: int) -> str:
    values = top_values(item)
    if not values:
        return "(differ)" if top and item["values"] else ""
    about = "~" if item["top_error"] else ""
    return ", ".join(
        f"{counted_text(entry['value'], item['kind'])} {about}{entry['count']:,}x" for entry in values[:top]
    )
