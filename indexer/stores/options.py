"""Options for access to stores, including credentials, and where credentials may appear."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import get_spawning_popen
from typing import Any

from indexer.options import check_count

__all__ = ["StoreOptions", "Url", "clean_url"]

Given = Mapping[str, Any] | Callable[[], Mapping[str, Any]]

_USER = re.compile(r"(?<=://)[^/@\s]*@")
_QUERY = re.compile(r"(?<=\w)(https?://[^\s?]*)?\?[^\s'\"]*")
_UNITS = {unit + "B": 1000**power for power, unit in enumerate(("", "K", "M", "G", "T"))}
_UNITS |= {unit + "IB": 1024**power for power, unit in enumerate("KMGT", 1)}
# Environment variables whose values must not be shown either.
_SECRET_NAME = re.compile(r"(?i)secret|token|password|passwd|key|credential|signature|sas")


def clean_url(url: str) -> str:
    """The URL without user, password and query, as messages show it. Other text stays as it is."""
    return _QUERY.sub("", _USER.sub("", url)) if "://" in url else url


@dataclass(frozen=True)
class StoreOptions:
    """Options for reading and writing URLs.

    ``storage_options``: the store's own settings, named as in the object_store library (``endpoint``,
    ``region``, ``access_key_id``, ``secret_access_key``, ``skip_signature``, ...), or a function that returns
    them. ``io_concurrency``: simultaneous requests; the process has one pool, as large as the largest value.
    ``max_retries`` per request; ``request_timeout`` in seconds. ``cache``: None, ``"auto"`` or a folder;
    ``cache_bytes``: a number, or text such as ``"20GB"``.

    repr does not show credentials. A pickle holds ``storage_options`` only while a child process is being
    spawned. Otherwise they come from the environment, or from the function, which is pickled by name.
    """

    storage_options: Given | None = field(default=None, repr=False)
    io_concurrency: int = 64
    max_retries: int = 5
    request_timeout: float = 30.0
    cache: str | None = None
    cache_bytes: int | str = "20GB"

    def __post_init__(self) -> None:
        check_count(self.io_concurrency, "io_concurrency")
        retries, timeout = self.max_retries, self.request_timeout
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ValueError(f"max_retries is {retries!r}; it must be an integer of at least 0")
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise ValueError(f"request_timeout is {timeout!r}; it must be a number of seconds above 0")
        given = self.storage_options
        if given is not None and not callable(given) and not isinstance(given, Mapping):
            raise TypeError(f"storage_options must be a dict or a function, not {type(given).__name__}")
        object.__setattr__(self, "cache_bytes", as_bytes(self.cache_bytes, "cache_bytes"))

    def settings(self) -> dict[str, Any]:
        """The store's settings; calls the function if one was given."""
        given = self.storage_options
        found = given() if callable(given) else given
        return dict(found or {})

    def redact(self, text: str) -> str:
        """The text without credentials: those given, those of the environment, and any in a URL."""
        text = clean_url(text)
        given = {} if callable(self.storage_options) else dict(self.storage_options or {})
        named = {**{n: v for n, v in os.environ.items() if _SECRET_NAME.search(n)}, **given}
        for name, value in named.items():
            if _SECRET_NAME.search(name) and isinstance(value, str) and len(value) >= 4:
                text = text.replace(value, "***")
        return text

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if get_spawning_popen() is None and not callable(self.storage_options):
            state["storage_options"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def as_bytes(value: int | str, what: str) -> int:
    """The bytes of the option ``what``: a number, or text such as ``20GB`` or ``512 MiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(value).strip())
    unit = match and _UNITS.get(match[2].upper().removesuffix("B") + "B")
    if isinstance(value, bool) or not match or unit is None:
        raise ValueError(
            f"{what} is {value!r}; it must be a number of bytes, or text such as '20GB' or '512MiB'"
        )
    return int(float(match[1]) * unit)


class Url(str):
    """A URL with the options to access it. Its text has no credentials; ``full`` is the URL as given.

    A pickle includes the options, and ``full`` only while a child process is being spawned.
    """

    full: str
    options: StoreOptions

    def __new__(cls, full: str, options: StoreOptions | None = None) -> Url:
        made = super().__new__(cls, clean_url(full))
        made.full = full
        made.options = options or getattr(full, "options", None) or _DEFAULT
        return made

    def __add__(self, suffix: str) -> Url:
        """The URL of a file beside this one: the suffix goes before the query, if there is one."""
        path, mark, query = self.full.partition("?")
        return Url(path + suffix + mark + query, self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (str(self) if get_spawning_popen() is None else self.full, self.options)


_DEFAULT = StoreOptions()
