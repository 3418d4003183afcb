"""`tfrecord index`."""

from __future__ import annotations

import os
from typing import Any, Literal

import click

from indexer.build import check_index, find_index
from indexer.build_many import BuildResult, build_indexes, find_targets
from indexer.errors import TFRecordError
from indexer.files import total_size
from indexer.formats import load_index
from indexer.names import is_index_name
from indexer.outputs import STREAM
from tfrecord._cli.common import (
    Choice,
    count_text,
    emit,
    expand,
    json_option,
    paths_argument,
    progress,
    split_names,
)
from tfrecord._cli.problems import record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import complain, say
from tfrecord._columns.kept import NO_COLUMNS
from tfrecord.schema import SchemaCollector, invalid_text


@click.command()
@paths_argument
@click.option("--jobs", "-j", type=click.IntRange(1, 256), default=1, help="Files at a time.")
@click.option(
    "--format",
    "form",
    type=Choice(["extended", "text"]),
    default="extended",
    help="text: the format for DALI and other readers.",
)
@click.option(
    "--columns",
    default=None,
    metavar="A,B",
    callback=lambda ctx, param, value: [] if value == "" else split_names(value),
    help="Keep the values of these features in the index; '' keeps none.",
)
@record_type_option
@click.option("--force", is_flag=True, help="Rebuild fresh indexes too.")
@click.option("--check", is_flag=True, help="Build nothing; check indexes and data completely.")
@remote_options
@json_option
def index(
    paths: tuple[str, ...],
    jobs: int,
    form: Literal["extended", "text"],
    columns: list[str] | None,
    record_type: str,
    force: bool,
    check: bool,
    as_json: bool,
) -> int:
    """Build the index beside each file, or refresh it. Folders are searched recursively.

    A file is checked completely while its index is built. An index is fresh, and is kept, if the file still
    has the size and modification time that the index was built for; then only --check and --force read the
    file.

    --columns stores the values of some features in the index, so that records can be selected by them without
    reading the data; "len(NAME)" stores how many values a feature has. Without --columns, the new index keeps
    the columns of the old one.

    \b
    Examples:
      tfrecord index data/ --jobs 4
      tfrecord index data/*.tfrecord --columns label
    """
    if STREAM in paths:
        raise click.UsageError("standard input cannot have an index beside it")
    if form == "text" and columns:
        raise click.UsageError("a text index cannot store --columns")
    missing = [path for path in paths if not os.path.exists(path) and not any(c in path for c in "*?[:@")]
    if missing:
        raise click.UsageError(f"no such file or folder: {missing[0]}")
    if check:
        return _check(paths, as_json)
    files = _targets([path for path in paths if not is_index_name(path)] or list(paths))
    with progress("index", total_size(files)) as advance:
        results = build_indexes(
            files,
            jobs=jobs,
            format=form,
            force=force,
            collector_factory=(lambda: SchemaCollector(columns, record_type)) if form == "extended" else None,
            on_bytes=advance,
            drop_columns=force and form == "text",
        )
    if as_json:
        emit({"ok": not any(r.status == "failed" for r in results), "files": [_document(r) for r in results]})
    else:
        for result in results:
            say(_line(result))
    invalid = [text for result in results if (text := _invalid(result))]
    for text in invalid:
        complain(text)
    return 1 if invalid or any(result.status == "failed" for result in results) else 0


def _targets(paths: list[str]) -> list[str]:
    try:
        return find_targets(paths, recursive=True)
    except ValueError as error:  # http cannot list
        raise click.UsageError(str(error)) from None


def _invalid(result: BuildResult) -> str:
    """How many records of a file are not valid messages; "" if all are valid."""
    if result.status == "failed":
        return ""
    schema = load_index(result.index_path, result.path).metadata.get("schema") or {}
    if not schema.get("num_invalid"):
        return ""
    return f"{result.path}: {invalid_text(schema['num_invalid'], schema['num_records'], schema['invalid'])}"


def _line(result: BuildResult) -> str:
    if result.status == "failed":
        return f"failed  {_words(result.path, result.error)}"
    return f"{result.status:<6}  {result.index_path}  {count_text(result.num_records or 0, 'record')}"


def _words(path: str, error: Any) -> str:
    text = f"{error.filename}: {error.strerror}" if getattr(error, "filename", None) else str(error)
    text = text.replace(NO_COLUMNS, "--columns '' builds the index without columns")
    return text if path in text else f"{path}: {text}"


def _document(result: BuildResult) -> dict[str, Any]:
    return {
        "path": result.path,
        "index_path": result.index_path,
        "status": result.status,
        "records": result.num_records,
        "error": None if result.error is None else _words(result.path, result.error),
    }


def _check(paths: tuple[str, ...], as_json: bool) -> int:
    outcomes = []
    for path in expand(paths):
        place = find_index(path)
        records, error = None, None
        try:
            if place is None:
                error = f"{path}: there is no index; build it: tfrecord index {path}"
            else:
                records = len(check_index(path, place))
        except (TFRecordError, OSError) as failure:
            error = _words(path, failure)
        status = "good" if error is None else "failed"
        outcomes.append(
            {"path": path, "index_path": place, "status": status, "records": records, "error": error}
        )
        if not as_json:
            say(error or f"good    {place}  {count_text(records or 0, 'record')}")
    failed = any(outcome["error"] for outcome in outcomes)
    if as_json:
        emit({"ok": not failed, "files": outcomes})
    return 1 if failed else 0
