"""The `tfrecord` command; what it does is in `_cli`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run the command with `args` (default: those of the process) and return its exit code.

    0: fine. 1: something is wrong with the data. 2: wrong usage, or a package is missing.
    """
    missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"tfrecord: the command needs {' and '.join(missing)}: pip install 'tfrecord[cli]'",
            file=sys.stderr,
        )
        return 2
    from tfrecord._cli.app import run

    return run(args)


if __name__ == "__main__":
    sys.exit(main())
