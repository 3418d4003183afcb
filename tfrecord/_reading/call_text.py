"""The repr of readers and datasets: the call that made them, the same in every process."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

from indexer.stores import clean_url

__all__ = ["array_text", "call_text", "function_text"]

_MOST_ITEMS = 8
_HIDDEN = ("storage_options", "token", "tls_roots")  # may hold secrets


def call_text(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """The call of `function`, under the name `name`, with the arguments that are not at their defaults.

    It does not depend on the process or on what was read since, so it can be compared.
    """
    shown = []
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument in ("self", "cls"):
            continue
        value = given[argument]
        if parameter.kind is parameter.VAR_KEYWORD:
            shown += [f"{key}={_option_text(key, item)}" for key, item in value.items()]
        elif parameter.default is parameter.empty:
            shown.append(_text(value))
        elif value is not parameter.default and _text(value) != _text(parameter.default):
            shown.append(f"{argument}={_option_text(argument, value)}")
    return f"{name}({', '.join(shown)})"


def array_text(array: Any) -> str:
    """An array by its size and a checksum."""
    return f"<{len(array):,} positions, checksum {crc32(array.tobytes()):08x}>"


def function_text(function: Any) -> str:
    """A function by its name, another callable by its type."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _option_text(name: str, value: Any) -> str:
    return "..." if name in _HIDDEN else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        return repr(clean_url(os.fspath(value)))
    if isinstance(value, Mapping):
        return "{" + _joined([f"{_text(key)}: {_text(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        inside = _joined([_text(item) for item in value])
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    if inspect.isroutine(value) or inspect.isclass(value):
        return function_text(value)
    if hasattr(value, "tobytes") and getattr(value, "ndim", None):
        return array_text(value)
    # A default repr contains the object's address, which differs between processes.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _joined(items: list[str]) -> str:
    if len(items) > _MOST_ITEMS:
        left_out = f"... {len(items) - 3:,} more, checksum {crc32(repr(items).encode()):08x}"
        items = [*items[:3], left_out]
    return ", ".join(items)
