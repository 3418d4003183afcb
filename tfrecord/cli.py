"""The `tfrecord` command; what it does is in `_cli`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from tfrecord import _startup

_startup.quit_quietly()


def main(args: Sequence[str] | None = None) -> int:
    """Run the command with `args` (default: those of the process) and return its exit code.

    0: fine. 1: something is wrong with the data. 2: wrong usage, a package is missing, or a file cannot be
    read or written. 130: interrupted.
    """
    try:
        _startup.raise_again()
        return _main(args)
    except KeyboardInterrupt:
        print("tfrecord: interrupted", file=sys.stderr)
        return 130


def _main(args: Sequence[str] | None) -> int:
    missing = [name for name in ("click", "rich") if not _is_there(name)]
    if missing:
        print(
            f"tfrecord: the command needs {' and '.join(missing)}: pip install 'tfrecord[cli]'",
            file=sys.stderr,
        )
        return 2
    from tfrecord._cli.app import run

    return run(args)


def _is_there(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is there, but broken: that is for its own error to say
            raise
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
