"""The command's frame: which commands there are, and how an outcome becomes an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import click

from indexer.errors import TFRecordError

# Command -> module and the one line that the overview shows; a module is imported when its command runs.
_COMMANDS = {
    "info": ("info", "What is in these files: records, features, index, shards."),
    "head": ("show", "The first records, as people read them."),
    "show": ("show", "The records at some positions."),
    "stats": ("stats", "Counts, ranges, lengths and top values of every column."),
    "verify": ("verify", "Check every byte: checksums, streams, messages."),
    "salvage": ("salvage", "Write what is good of a damaged file to a new one."),
    "index": ("index", "Build, refresh or check indexes."),
    "convert": ("convert", "To and from Parquet, Arrow, JSON lines, npz, tar, gzip."),
    "split": ("reshape", "Cut into shards."),
    "merge": ("reshape", "Join files into one."),
    "shuffle": ("reshape", "Write the records in a random order, each once."),
    "select": ("reshape", "Write the records at positions, or where a column has a value."),
    "view": ("view", "Look at records in the browser."),
    "bench": ("bench", "How fast this machine reads a file."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class _ReaderGone(Exception):
    """Nobody reads our output any more."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"tfrecord._cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """click itself would end the process in one way or another, by its version."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Only the commands, so that the overview fits a screen of 24 lines."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Paths: files, globs, folders, - for standard input. Exit code: 0 fine, 1 wrong data, 2 usage. "
    "More: tfrecord COMMAND --help",
)
@click.version_option(package_name="tfrecord", prog_name="tfrecord")
def app() -> None:
    """Look at TFRecord files, check, repair and convert them."""


class _Terminated(SystemExit):
    """SIGTERM, as an exception: outputs that are not whole are removed on its way out."""


def _terminate(number: int, frame: Any) -> None:
    raise _Terminated(128 + number)


def run(args: Sequence[str] | None = None) -> int:
    """The exit code of the command with these arguments."""
    strict = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started this
            setattr(sys, name, open(os.devnull, "w"))
        elif getattr(stream, "errors", "") == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names may have bytes that no encoding takes
            strict.append(stream)
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if in_main else None
    try:
        return _run(args)
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)
        for stream in strict:
            stream.reconfigure(errors="strict")


def _run(args: Sequence[str] | None) -> int:
    try:
        code = app.main(None if args is None else list(args), prog_name="tfrecord", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted; nothing half-written was left")
        return 130
    except (_ReaderGone, BrokenPipeError):
        return _unread()
    except ImportError as error:
        if error.name is not None and "pip install" not in str(
            error
        ):  # broken, which its own words tell best
            raise
        _say(str(error.msg))
        return 2
    except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        _say(_os_text(error))
        return 2
    except (TFRecordError, OSError) as error:
        _say(_os_text(error))
        return 1


def _unread() -> int:
    """The reader of our output has what it wanted, which is fine. Python would complain once more while it
    ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _os_text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _say(text: str) -> None:
    # As `common.safe`, which is not imported here, so that the overview comes at once.
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    print(f"tfrecord: {shown}", file=sys.stderr)
