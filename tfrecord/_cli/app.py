"""The command line itself: the list of commands, and exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import click

from indexer.errors import RemoteError, TFRecordError
from indexer.options import near_matches
from tfrecord._cli.terminal import any_text, complain, say

# Command -> one line for the overview. The module of that name is imported when the command runs.
_COMMANDS = {
    "info": "Summarize files: records, features, index, shards.",
    "head": "Show the first records.",
    "show": "Show the records at some positions.",
    "stats": "Show counts, ranges, lengths and top values of every column.",
    "verify": "Check every byte: checksums, streams, messages.",
    "salvage": "Write the good records of a damaged file to a new one.",
    "index": "Build, refresh or check indexes.",
    "convert": "Convert to and from Parquet, Arrow, JSON lines, npz, tar, gzip.",
    "split": "Cut into shards.",
    "merge": "Join files into one.",
    "shuffle": "Write all records in a random order, each once.",
    "select": "Write the records at positions, or where a column has a value.",
    "view": "View records in the browser.",
    "serve": "Serve data sets to readers on this host or others.",
    "bench": "Measure how fast this machine reads files.",
    "completion": "Print the completion script of a shell.",
}


class _ReaderGone(Exception):
    """The reader of our output has closed it."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"tfrecord._cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{near_matches(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without arguments, the overview; click's own answer depends on its version."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would end the process, in a way that depends on its version."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ReaderGone from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Only the commands, so that the overview fits a screen of 24 lines."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Paths: files, globs, folders, - for standard input. Exit code: 0 fine, 1 bad data, 2 usage. "
    "More: tfrecord COMMAND --help",
)
@click.version_option(package_name="tfrecord", prog_name="tfrecord")
def app() -> None:
    """Look at TFRecord files, check, repair and convert them."""


class _Terminated(SystemExit):
    """SIGTERM as an exception, so that incomplete outputs are removed."""


def _terminate(number: int, frame: Any) -> None:
    raise _Terminated(128 + number)


def run(args: Sequence[str] | None = None) -> int:
    """The exit code of the command with these arguments."""
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if in_main else None
    try:
        with any_text(), warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *place: complain(str(message))
            return _run(args)
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


def _run(args: Sequence[str] | None) -> int:
    try:
        code = app.main(None if args is None else list(args), prog_name="tfrecord", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        complain("interrupted; no partial output was left")
        return 130
    except (_ReaderGone, BrokenPipeError):
        _give_up_output()  # the reader of our output closed it, which is fine
        return 0
    except ImportError as error:
        # For a package that is installed but broken, its own message says most.
        if error.name is not None and "pip install" not in str(error):
            raise
        complain(str(error.msg))
        return 2
    except RemoteError as error:  # wrong data it is not
        complain(str(error))
        return 2
    except TFRecordError as error:
        complain(str(error))
        return 1
    except OSError as error:
        complain(_os_text(error))
        return 2
    except MemoryError:
        complain("out of memory")
        return 2


def _show(error: click.ClickException) -> None:
    """Print a usage error: the usage line and what is wrong."""
    context = getattr(error, "ctx", None)
    if context is not None:
        for line in context.get_usage().splitlines():
            say(line, err=True)
        say(f"Try '{context.command_path} --help' for help.", err=True)
    text = (
        error.format_message().replace(":\n\t", ": ").replace(",\n\t", ", ")
    )  # click lists choices in lines
    say(f"Error: {text}", err=True)


def _give_up_output() -> None:
    """Detach standard output, which takes no more data: Python would try to flush it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _os_text(error: OSError) -> str:
    if not error.strerror:
        return str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    try:  # the first error discarded the buffer: only more output tells whether writing works
        os.write(sys.stdout.fileno(), b"\n")
    except (OSError, ValueError):
        _give_up_output()
        return f"standard output: {error.strerror}"
    return error.strerror
