"""URLs on the command line, and the options of their stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from indexer.files import is_url
from indexer.stores import StoreOptions, Url, open_store

_PLACE = "tfrecord.store"
Command = TypeVar("Command", bound=Callable[..., Any])


def _setting(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` of the command line: true and false are booleans, and what begins with a brace is JSON.
    Messages never repeat the value, which may be a secret."""
    key, mark, value = text.partition("=")
    if not mark or not key.strip():
        raise click.BadParameter("write KEY=VALUE, such as endpoint=http://127.0.0.1:9000")
    found: Any = {"true": True, "false": False}.get(value.lower(), value)
    if value.startswith("{"):
        try:
            found = json.loads(value)
        except ValueError:
            raise click.BadParameter(f"the value of {key} is not valid JSON") from None
    return key.strip(), found


def _keep_settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta.setdefault(_PLACE, {})["storage_options"] = dict(map(_setting, value)) or None


def _keep_cache(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta.setdefault(_PLACE, {})["cache"] = value


def remote_options(command: Command) -> Command:
    """Adds ``--storage-option`` and ``--cache``; they reach the command within its paths that are URLs."""
    for add in (
        click.option(
            "--cache",
            metavar="auto|FOLDER",
            default=None,
            is_eager=True,
            expose_value=False,
            callback=_keep_cache,
            help="Of URLs: keep whole files in this folder.",
        ),
        click.option(
            "--storage-option",
            multiple=True,
            metavar="KEY=VALUE",
            is_eager=True,
            expose_value=False,
            callback=_keep_settings,
            help="Of URLs: a setting of the store, such as endpoint=... (repeat it for more).",
        ),
    ):
        command = add(command)
    return command


def reached(path: str) -> str:
    """A path of the command line: a URL takes the store's options along. A usage error where the store does
    not have them."""
    if not is_url(path) or path.startswith("file://"):
        return path
    meta = click.get_current_context().meta
    given = meta.setdefault(_PLACE, {})
    if "options" not in given:  # one for the whole command, since stores are kept by it
        given["options"] = StoreOptions(given.get("storage_options"), cache=given.get("cache"))
    url = Url(path, given["options"])
    try:
        open_store(url)
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"{url}: {error}") from None
    return url


def reach(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """The callback of arguments that are paths."""
    return reached(value) if isinstance(value, str) else tuple(map(reached, value))
