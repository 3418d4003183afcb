#!/usr/bin/env python3
"""Build the indexes of whole folder trees.

    python scripts/build_indexes.py data/ more/*.tfrecord --jobs 8
    python scripts/build_indexes.py /shared/data --engine ray      (on every CPU of a Ray cluster)

Takes files, globs and folders. Folders are searched recursively for files with the usual names (*.tfrecord,
*.tfrecords, *.tfrec, *.tfr, *.record, *-00000-of-00010, each also with .gz). Every index is written beside
its data; a fresh index is skipped. Prints and logs one line per file. Files that fail are listed at the end
and do not stop the others. Exit codes: 0 all are indexed, 1 some failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from indexer import BuildResult, build_indexes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, globs and folders")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="files in parallel (default: number of CPUs)"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray: run as tasks on the cluster at $RAY_ADDRESS, or else on this machine with --jobs CPUs",
    )
    parser.add_argument("--format", choices=("extended", "text"), default="extended")
    parser.add_argument("--force", action="store_true", help="rebuild fresh indexes too")
    parser.add_argument("--no-recursive", action="store_true", help="do not search subfolders")
    parser.add_argument("--places-only", action="store_true", help="do not store the schema of the records")
    parser.add_argument(
        "--drop-columns",
        action="store_true",
        help="with --places-only: replace even indexes that hold columns",
    )
    parser.add_argument("--log", metavar="FILE", help="append the lines, with timestamps, to this file")
    return parser


def _line(result: BuildResult) -> str:
    if result.error is not None:
        return _one_line(f"failed {result.path}: {result.error}")
    return _one_line(f"{result.status:6} {result.path}: {result.num_records} records")


def _one_line(text: str) -> str:
    """Escape a name that holds a line feed, or bytes that are not text."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class _Progress:
    """Progress: on a terminal a bar if tqdm is installed, else a counter; without a terminal nothing. Also
    prints and logs the lines."""

    def __init__(self, log: TextIO | None) -> None:
        self.log = log
        self.done = 0
        self.bar: Any = None
        self.terminal = sys.stderr.isatty()
        if self.terminal:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self.bar = tqdm(unit="file", file=sys.stderr)

    def __call__(self, result: BuildResult) -> None:
        self.done += 1
        line = _line(result)
        if self.log is not None:
            self.log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")
            self.log.flush()
        if self.bar is not None:
            self.bar.write(line, file=sys.stdout)
            self.bar.update()
            return
        print(line, flush=True)
        if self.terminal:
            print(f"{self.done} files done", file=sys.stderr, end="\r", flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _collector_factory(options: argparse.Namespace) -> Callable[[], Any] | None:
    if options.places_only or options.format == "text":
        return None
    from tfrecord.schema import SchemaCollector

    return SchemaCollector


def _results(options: argparse.Namespace, progress: _Progress) -> list[BuildResult]:
    recursive = not options.no_recursive
    build = {
        "format": options.format,
        "force": options.force,
        "collector_factory": _collector_factory(options),
        "drop_columns": options.drop_columns,
    }
    if options.engine == "local":
        return build_indexes(
            options.paths, jobs=options.jobs, recursive=recursive, progress=progress, **build
        )
    import ray

    from tfrecord.ray.files import build_in_tasks

    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": options.jobs}
    ray.init(runtime_env=environment, log_to_driver=False, logging_level="ERROR", **here)
    try:
        return build_in_tasks(options.paths, build, recursive, None, progress)
    finally:
        ray.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that this terminal cannot show
    try:
        log = open(options.log, "a", encoding="utf-8") if options.log else None
    except OSError as error:
        parser.error(f"the log cannot be written: {error}")
    progress = _Progress(log)
    try:
        results = _results(options, progress)
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        progress.close()
        if log is not None:
            log.close()
    failed = [result for result in results if result.status == "failed"]
    built = sum(result.status == "built" for result in results)
    print(f"{built} built, {len(results) - built - len(failed)} fresh, {len(failed)} failed")
    for result in failed:
        print(_one_line(f"failed: {result.path}: {result.error}"), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
