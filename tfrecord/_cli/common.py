"""What the commands share: arguments, output for people and for machines, progress."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from indexer.names import is_index_name
from indexer.options import listed, near_matches
from indexer.outputs import STREAM
from indexer.paths import expand_paths
from indexer.progress import Report
from indexer.streams import normalize_compression
from tfrecord._cli.remote import reach
from tfrecord._cli.terminal import safe, say, shown

# The longest table: laying one out takes a millisecond per row.
MOST_ROWS = 500

paths_argument = click.argument(
    "paths", nargs=-1, required=True, metavar="PATHS...", type=click.Path(), callback=reach
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output, for machines.")
threads_option = click.option(
    "--threads", type=click.IntRange(1, 256), default=None, help="Threads to use (default: one per core)."
)
columns_option = click.option(
    "--columns",
    default=None,
    metavar="A,B",
    callback=lambda ctx, param, value: split_names(value),
    help="Only these features.",
)
compression_option = click.option(
    "--compression",
    default=None,
    metavar="auto|none|gzip|zlib|zstd",
    callback=lambda ctx, param, value: check_compression(value),
    help="Compression of the input (default: detect from content).",
)


class Choice(click.Choice[str]):
    """A choice of words; the error for a wrong one suggests similar words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            text = error.message.rstrip(".") + near_matches(value, self.choices)
            raise click.BadParameter(text, ctx, param) from None


def split_names(value: str | None) -> list[str] | None:
    """The names of `a,b`; None if nothing was given."""
    if value is None:
        return None
    names = [name.strip() for name in typed(value).split(",") if name.strip()]
    if not names:
        raise click.BadParameter("no name was given")
    return names


def typed(argument: str) -> str:
    """An argument as it was typed: if the locale is not UTF-8, Python turns other bytes into surrogates.
    Raises BadParameter if it is not text."""
    try:
        argument.encode()
        return argument
    except UnicodeEncodeError:
        pass
    try:
        return os.fsencode(argument).decode()
    except UnicodeDecodeError:
        raise click.BadParameter(f"{argument!r} is not valid UTF-8") from None


def check_compression(value: str | None) -> str | None:
    """Check the name of a compression, and return it."""
    try:
        normalize_compression(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def expand(paths: Iterable[str]) -> list[str]:
    """Data files of these paths, globs and folders; `-` is kept. Raises a usage error if nothing is found."""
    found: list[str] = []
    for path in paths:
        if path == STREAM:
            found.append(path)
            continue
        try:
            found += expand_paths(path, usual_only=True)
        except (FileNotFoundError, ValueError) as error:
            from tfrecord._cli.prepared import versions  # only here: every command imports this module

            if below := versions(path):
                raise click.UsageError(f"{path} holds TFDS datasets; name one: {listed(below)}") from None
            raise click.UsageError(str(error)) from None
    if found.count(STREAM) > 1:
        raise click.UsageError("standard input can be read only once")
    # A glob of the shell also matches the indexes beside the data; our globs do not.
    return [path for path in found if not is_index_name(path)] or found


def default_threads(threads: int | None) -> int:
    """The requested number of threads, or one per core that this process may use, at most 16."""
    if threads is not None:
        return threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(16, cores or 1)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, for which a closed pipe is not a failure."""
        raise BrokenPipeError


def console() -> Console:
    """The console for tables: standard output, as wide as the terminal, and unlimited without a terminal."""
    wide = None if sys.stdout.isatty() else 200
    return _Console(highlight=False, soft_wrap=not sys.stdout.isatty(), width=wide, emoji=False, markup=False)


def plain(text: Any) -> Text:
    """Text from a file, safe to print: control characters are escaped, and markup is printed literally."""
    return Text(shown(safe(str(text))))


def no_feature(missing: Iterable[str], known: Iterable[str], what: str = "a feature") -> str:
    """A message that no record has these features, with similar names."""
    known = sorted(known)
    hints = {hint for name in missing if (hint := near_matches(name, known))}
    return f"no record has {what} {', '.join(map(repr, missing))}" + "".join(sorted(hints))


def more_text(count: int) -> str:
    """The note below a table that shows only the first `MOST_ROWS` of `count` features."""
    return f"and {count - MOST_ROWS:,} more features (--json has all of them)"


def table(*headers: str, right: Iterable[str] = ()) -> Table:
    """An empty table with these columns; those in `right` are aligned to the right."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header in headers:
        made.add_column(header, justify="right" if header in right else "left", overflow="fold")
    return made


def add_row(made: Table, *cells: Any) -> None:
    """A row of values, each made safe to print."""
    made.add_row(*(cell if isinstance(cell, Text) else plain(cell) for cell in cells))


def emit(value: Any, *, err: bool = False) -> None:
    """One JSON document on standard output, or on standard error if standard output carries data."""
    say(json_line(value), err=err)


def json_line(value: Any) -> str:
    """A value as one line of JSON in ASCII, so that it is valid in every locale and safe on every
    terminal."""
    return json.dumps(jsonable(value), allow_nan=False).replace("\x7f", "\\u007f")


def jsonable(value: Any) -> Any:
    """The value in terms of JSON: NaN and infinities become strings, NumPy numbers become Python's."""
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def size_text(count: int) -> str:
    """A readable size: 512 B, 3.1 MB."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{value:.0f} TB"


def count_text(count: int, noun: str, ending: str = "s") -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {noun}" + ("" if count == 1 else ending)


@contextmanager
def bar(label: str) -> Iterator[Report]:
    """A progress bar on standard error while a block runs, on a terminal only; the block reports to it."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    # Terminal output is printed above the bar; output that goes elsewhere must not be redirected there.
    bars = Progress(
        *columns,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
    with bars:
        task = bars.add_task(label, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total or None)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """`bar`, for a block that reports the number of steps done since its last call."""
    done = 0
    with bar(label) as report:

        def advance(steps: int) -> None:
            nonlocal done
            done += steps
            report(done, total)

        yield advance
