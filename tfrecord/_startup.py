"""Ctrl-C while the `tfrecord` command starts ends it without a traceback.

Starting is mostly importing this package, which comes before any code of the command. So this module is
imported first, and does something only in a process that runs the command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

_SCRIPTS = ("tfrecord", "tfrecord.exe", "tfrecord-script.py")
_MODULES = ("tfrecord", "tfrecord.cli", "tfrecord.__main__")


def _runs_the_command() -> bool:
    if sys.argv[:1] == ["-m"]:  # so it is while `python -m` looks for the module
        words = sys.orig_argv
        return any(words[i : i + 2] == ["-m", name] for name in _MODULES for i in range(len(words)))
    return bool(sys.argv) and os.path.basename(sys.argv[0]) in _SCRIPTS


def _quit(number: int, frame: Any) -> None:
    os.write(2, b"tfrecord: interrupted\n")
    os._exit(130)


def imported() -> None:
    """The package is imported: Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    and _runs_the_command()
):
    signal.signal(signal.SIGINT, _quit)
