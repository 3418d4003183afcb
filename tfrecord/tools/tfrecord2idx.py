"""`tfrecord2idx`: text indexes, which DALI and tfrecord 1.x read too.

Exit codes: 0 fine, 1 something is wrong with a file, 2 wrong usage. A damaged file gets no index, and an
existing index stays unchanged.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from indexer.build import build_index
from indexer.errors import TFRecordError
from indexer.names import index_names
from indexer.options import suggests_options
from indexer.paths import walk_folder

__all__ = ["create_index", "create_indices", "main"]

_EPILOG = """\
examples:
  tfrecord2idx train.tfrecord train.tfindex   index of one file
  tfrecord2idx data/                          a.tfindex beside each a.tfrecord
  tfrecord2idx data/ indexes/                 the same in another folder

In a folder, files with the usual names are indexed: *.tfrecord, *.tfrecords, *.tfrec, *.tfr, *.record,
*-00000-of-00010. Other than a.tfrecord, a file's index has its whole name and .tfindex. A text index cannot
point into a compressed
file: `python3 -m indexer build FILE` writes one that can.
"""


def create_index(tfrecord_file: str | os.PathLike[str], index_file: str | os.PathLike[str]) -> None:
    """Write the text index of one file: one line `offset size` per record.

    The whole file is validated first; the index then appears complete. Raises a `TFRecordError` (a
    RuntimeError) with file, record and offset if the file is damaged, and OSError if it cannot be read.
    """
    build_index(os.fspath(tfrecord_file), os.fspath(index_file), format="text")


@suggests_options
def create_indices(
    tfrecord_dir: str | os.PathLike[str], index_dir: str | os.PathLike[str] | None = None
) -> None:
    """Write the text index of every TFRecord file of a folder, beside it or in `index_dir` (created if
    needed).

    All files are tried; then the first error, if any, is raised.
    """
    failures = []
    for data, index in _folder_pairs(
        os.fspath(tfrecord_dir), None if index_dir is None else os.fspath(index_dir)
    ):
        try:
            create_index(data, index)
        except (TFRecordError, OSError) as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _folder_pairs(folder: str, out_folder: str | None) -> Iterator[tuple[str, str]]:
    """Each data file of the folder with the path of its index."""
    if out_folder is not None:
        os.makedirs(out_folder, exist_ok=True)
    for data in walk_folder(folder, usual_only=True):
        name = index_names(os.path.basename(data))[-1]  # the shorter name, if there are two
        yield data, os.path.join(folder if out_folder is None else out_folder, name)


def _pairs(data: str, index: str | None, fail: Callable[[str], None]) -> list[tuple[str, str]]:
    """What to index, from the arguments; `fail` exits with a usage error."""
    if os.path.isdir(data):
        if index is not None and os.path.exists(index) and not os.path.isdir(index):
            fail(f"{data} is a folder, but {index} is a file")
        return list(_folder_pairs(data, index))
    if index is None:
        missing = "is not a folder; to index one file, give the path of the index too"
        fail(f"{data} {missing}" if os.path.exists(data) else f"{data} does not exist")
    assert index is not None
    if os.path.isdir(index):
        fail(f"{index} is a folder: give the path of the index file")
    return [(data, index)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code (usage errors exit with 2)."""
    parser = argparse.ArgumentParser(
        prog="tfrecord2idx",
        usage="tfrecord2idx [-h] DATA INDEX\n       tfrecord2idx [-h] FOLDER [OUT_FOLDER]",
        description="Validate TFRecord files and write their text indexes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", metavar="DATA", nargs="?", help="a TFRecord file, or a folder of them")
    parser.add_argument(
        "index", metavar="INDEX", nargs="?", help="the index file, or a folder for the indexes"
    )
    args, unknown = parser.parse_known_args(argv)
    if unknown:  # reported before missing arguments, and without the files after it
        options = [word for word in unknown if word.startswith("-")]
        parser.error(f"unrecognized arguments: {' '.join(options or unknown)}")
    if args.data is None:
        parser.error("the following arguments are required: DATA")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that this terminal cannot show
    failed = 0
    try:
        pairs = _pairs(args.data, args.index, parser.error)
    except OSError as error:
        print(f"tfrecord2idx: {error}", file=sys.stderr)
        return 1
    if not pairs:
        print(f"tfrecord2idx: no TFRecord files in folder {args.data}", file=sys.stderr)
        return 1
    for data, index in pairs:
        try:
            built = build_index(data, index, format="text")
        except (TFRecordError, OSError) as error:
            failed += 1
            print(f"tfrecord2idx: {error}", file=sys.stderr)
        except ValueError as error:  # the index would overwrite data
            parser.error(str(error))
        else:
            print(f"{index}: {len(built):,} record{'' if len(built) == 1 else 's'}")
    if failed and len(pairs) > 1:
        print(f"tfrecord2idx: {failed} of {len(pairs)} files failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
