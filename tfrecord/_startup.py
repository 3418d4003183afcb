"""Ctrl-C while the `tfrecord` command starts ends it without a traceback.

Starting is mostly importing this package, which comes before any code of the command. So this module is
imported first, and does something only in a process that runs the command. It imports only what Python itself
has imported already: `signal`, `threading` or `typing` would take longer than everything before them.
"""

import _signal  # type: ignore[import-not-found]  # `signal` without its enums
import os
import sys

_SCRIPTS = ("tfrecord", "tfrecord.exe", "tfrecord-script.py")
_MODULES = ("tfrecord", "tfrecord.cli", "tfrecord.__main__")


def _runs_the_command() -> bool:
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name in ("-m", "__main__.py", "cli.py"):  # "-m" while `python -m` looks for the module
        words = sys.orig_argv
        return any(words[i : i + 2] == ["-m", module] for module in _MODULES for i in range(len(words)))
    return name in _SCRIPTS


def _quit(number: int, frame: object) -> None:
    os.write(2, b"tfrecord: interrupted\n")
    os._exit(130)


def quit_quietly() -> None:
    """Until `raise_again`, Ctrl-C ends the process, if it runs the command and handles Ctrl-C as usual."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler and _runs_the_command():
        try:
            _signal.signal(_signal.SIGINT, _quit)
        except ValueError:
            pass  # only the main thread may do that


def raise_again() -> None:
    """Ctrl-C raises KeyboardInterrupt again."""
    if _signal.getsignal(_signal.SIGINT) is _quit:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


quit_quietly()
