"""`tfrecord completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tfrecord._cli.common import Choice


@click.command()
@click.argument("shell", type=Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL, to be sourced by it.

    \b
    Example:
      tfrecord completion bash > completion.sh
    """
    from tfrecord._cli.app import app

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(app, {}, "tfrecord", "_TFRECORD_COMPLETE").source())
