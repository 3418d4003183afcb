"""``python -m indexer build|check|show DATA [INDEX]``: one file's index from the command line.

Exit codes: 0 for success, 1 if something is wrong with a file, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from .build import build_index, check_index, find_index, no_index
from .errors import TFRecordError
from .formats import load_index
from .index import RecordIndex

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m indexer", description="Build, check or show the index of a TFRecord file."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    place = "index file (default: DATA.tfindex)"
    build = commands.add_parser("build", help="check the data from end to end and write its index")
    build.add_argument("--format", choices=("extended", "text"), default="extended")
    build.add_argument("--threads", type=int, default=1, help="threads that share the payload checks")
    build.add_argument(
        "--drop-columns", action="store_true", help="replace an index even if it has a schema or columns"
    )
    check = commands.add_parser("check", help="check the index and every record of the data")
    check.add_argument("--threads", type=int, default=1, help="threads that share the payload checks")
    show = commands.add_parser("show", help="print the content of the index")
    show.add_argument("--records", type=int, default=10, help="entries to print (default 10)")
    for command in (build, check, show):
        command.add_argument("data", metavar="DATA")
        command.add_argument("index", metavar="INDEX", nargs="?", help=place)
    return parser


def _show(index: RecordIndex, records: int) -> None:
    print(f"data      {index.path}")
    print(f"index     {index.index_path} ({index.format})")
    print(f"records   {len(index)}")
    stored = f"{index.file_size} bytes"
    if index.compression:
        stored += f" of {index.compression}, {index.stream_size} when decompressed"
    print(f"size      {stored}")
    for name, column in index.columns.items():
        print(f"column    {name}: {column.dtype} {column.shape}")
    for name in index.metadata:
        print(f"metadata  {name}")
    for position in range(min(max(records, 0), len(index))):
        print(f"{position:8} at {int(index.offsets[position])}: {int(index.lengths[position])} bytes")
    if 0 < records < len(index):
        print(f"     ... {len(index) - records} more")


def _run(options: argparse.Namespace) -> None:
    if options.command == "build":
        index = build_index(
            options.data,
            options.index,
            format=options.format,
            num_threads=options.threads,
            drop_columns=options.drop_columns,
        )
        print(f"{options.data}: {len(index)} records, index {index.index_path}")
    elif options.command == "check":
        index = check_index(options.data, options.index, num_threads=options.threads)
        print(f"{options.data}: {len(index)} records, all good; index {index.index_path} is correct")
    else:
        found = options.index if options.index is not None else find_index(options.data)
        if found is None:
            raise no_index(options.data)
        _show(load_index(found, options.data), options.records)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that this terminal cannot show
    try:
        _run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output closed the pipe. Nothing may be written to it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (TFRecordError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
