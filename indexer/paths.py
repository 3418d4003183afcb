"""Which files a path, list, glob or folder means, the same on every machine, and where their indexes are."""

from __future__ import annotations

import glob as _glob
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Union

from .commits import settle
from .errors import printable
from .files import is_url, local_path, path_name
from .names import index_names, is_candidate, is_data_name, natural_key, shard_name, sharded_name
from .options import listed
from .stores import StoreOptions, Url, open_store

__all__ = [
    "Paths",
    "expand_paths",
    "find_index",
    "sidecar_path",
    "walk_folder",
]

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

# What `pathlib.Path` makes of a URL.
_LOST_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")
_NO_LISTING = ("http", "https")
_USUAL = (
    "*.tfrecord, *.tfrecords, *.tfrec, *.tfr, *.record, *-00000-of-00010, each also with .gz and the like"
)


def _usual(paths: Iterable[str]) -> list[str]:
    """Those with the usual names; if none has one, all that may be data."""
    candidates = sorted((path for path in paths if is_candidate(path)), key=natural_key)
    return [path for path in candidates if is_data_name(path)] or candidates


def walk_folder(folder: str, *, recursive: bool = False, usual_only: bool = False) -> list[str]:
    """The data files of a folder, sorted; ``recursive``: those of its subfolders too. Links are not followed.

    `OSError` if a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: list[str] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "_"))), key=natural_key)
        if not recursive:
            folders.clear()
        candidates = [os.path.join(root, name) for name in names if is_candidate(name)]
        paths = list(filter(os.path.isfile, candidates))
        found.extend([path for path in _usual(paths) if is_data_name(path)] if usual_only else paths)
    return found if usual_only else _usual(found)


def _chosen(given: str, found: list[str], beside: Iterable[str]) -> list[str]:
    """The shards of ``name@N`` in the order of their numbers; `ValueError` if they belong to several sets.

    ``beside``: all names in the folder, for the error if there are no such shards.
    """
    if not found:
        shards = map(shard_name, sorted(filter(is_candidate, beside), key=natural_key))
        others = dict.fromkeys(f"{one.base}@{int(one.total)}{one.tail}" for one in shards if one is not None)
        hint = f"; the folder has {listed(others)}" if others else ": none is named NAME-00000-of-0000N"
        raise FileNotFoundError(printable(f"no shards of {given}{hint}"))
    sets: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for path in found:
        shard = shard_name(os.path.basename(path))
        assert shard is not None
        sets.setdefault((shard.total, shard.tail), []).append((shard.number, path))
    if len(sets) > 1:
        names = ", ".join(sorted(min(members)[1] for members in sets.values()))
        hint = "say which: NAME@N, or with the suffix, as NAME@N.gz"
        raise ValueError(printable(f"{given} means several sets of shards ({names}, ...); {hint}"))
    return [path for _, path in sorted(next(iter(sets.values())))]


def _expand_url(given: Url, usual_only: bool) -> list[str]:
    """The objects that a URL means: itself, the shards of ``name@N``, the matches of a glob, or the objects
    in a folder."""
    scheme, _, rest = given.full.partition("://")
    magic = _glob.has_magic(rest.partition("?")[0] if scheme in _NO_LISTING else rest)
    name = rest.rsplit("/", 1)[-1]
    special = magic or given.endswith("/") or sharded_name(name) is not None
    if not special and (scheme in _NO_LISTING or is_data_name(name)):
        return [given]
    store, key = open_store(given)

    def urls(keys: Iterable[str]) -> list[str]:
        return [Url(store.url(key), given.options) for key in keys]

    if key and not key.endswith("/") and store.exists(key):
        return [given]  # an existing object wins over anything else the name could mean
    folder = key[: len(key) - len(name)] if key else ""
    sharded = sharded_name(name)
    if sharded is not None:
        names = {info.key: info.key.rsplit("/", 1)[-1] for info in store.list(folder)}
        return _chosen(given, urls(key for key, one in names.items() if sharded.has(one)), names.values())
    if magic:
        found = [info.key for info in store.list(key) if is_candidate(info.key.rsplit("/", 1)[-1])]
        return urls(sorted(found, key=natural_key))
    whole = f"{key}/" if key and not key.endswith("/") else key
    keys = [info.key for info in store.list(whole) if info.key != whole]
    return urls(one for one in _usual(keys) if not usual_only or is_data_name(one))


def _expand_one(item: Any, recursive: bool, usual_only: bool, store: StoreOptions | None) -> list[str]:
    if not isinstance(item, (str, bytes, os.PathLike)):
        raise TypeError(f"a path must be a str or os.PathLike, not {type(item).__name__}")
    path = os.fsdecode(item)
    if not path:
        raise ValueError("a path must not be an empty string")
    if is_url(path):
        local = local_path(path)
        if local is not None:
            return [f"file://{found}" for found in _expand_one(local, recursive, usual_only, store)]
        url = path if isinstance(path, Url) else Url(path, store)
        found = _expand_url(url, usual_only)
        if not found:
            raise FileNotFoundError(printable(f"no data files at {url}"))
        return found
    name = local_path(path) or path
    settle(name if os.path.isdir(name) else os.path.dirname(name))
    if os.path.isdir(path):
        found = walk_folder(path, recursive=recursive, usual_only=usual_only)
        if not found:
            also = "" if usual_only else ", then for any file that is not an index"
            raise FileNotFoundError(f"no data files in folder {printable(path)} (looked for {_USUAL}{also})")
        return found
    if _exists(path):  # an existing file wins over anything else the name could mean
        return [path]
    folder, name = os.path.split(path)
    sharded = sharded_name(name)
    if sharded is not None and os.path.isdir(folder or "."):
        beside = os.listdir(folder or ".")
        return _chosen(path, [os.path.join(folder, n) for n in beside if sharded.has(n)], beside)
    if _glob.has_magic(path):
        names = (
            name for name in _glob.glob(path, recursive=True) if is_candidate(name) and os.path.isfile(name)
        )
        found = sorted(names, key=natural_key)
        if not found:
            raise FileNotFoundError(printable(f"no data files match {path}"))
        return found
    hint = (
        "; a URL has two slashes, of which pathlib drops one: give it as text"
        if _LOST_SLASH.match(path)
        else ""
    )
    raise FileNotFoundError(printable(f"no such file or folder: {path}") + hint)


def _exists(path: str) -> bool:
    """Whether a path exists; `PermissionError` if this user may not look."""
    try:
        os.lstat(path)
    except PermissionError as error:
        raise PermissionError(error.errno, os.strerror(error.errno or 0), path) from None
    except (OSError, ValueError):
        return False
    return True


def expand_paths(
    paths: Any, *, recursive: bool = False, usual_only: bool = False, store: StoreOptions | None = None
) -> list[str]:
    """The files that ``paths`` means: a path, glob, folder or URL (str or PathLike), or a sequence of them.

    ``name@8`` is the set of shards ``name-00000-of-00008`` to ``name-00007-of-00008``, each with at most one
    further suffix. ``name@*`` is the only set, whatever its number of shards. ``name@8.gz`` is the set with
    this suffix.

    The files that a glob or folder yields are in natural order, without folders, index files, markers such
    as ``_SUCCESS``, and hidden or temporary files. A sequence keeps its order. A folder yields the files with
    the usual names (see `names.is_data_name`); if it has none, all others, unless ``usual_only``.

    URLs are listed with the options ``store``, and keep them; a `stores.Url` keeps its own.

    Raises:
        FileNotFoundError: nothing was found; the message says what was looked for.
        PermissionError: a path may not be looked into; the message names it.
        ValueError: there are no paths at all, or ``name@8`` matches several sets.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        return _expand_one(paths, recursive, usual_only, store)
    if hasattr(paths, "read") or not isinstance(paths, Iterable):
        kind = type(paths).__name__
        raise TypeError(f"expected a path or a list of paths, not {kind}; only the loaders take open files")
    items = list(paths)
    if not items:
        raise ValueError("no paths were given: the list is empty")
    return [path for item in items for path in _expand_one(item, recursive, usual_only, store)]


def sidecar_path(data_path: Any) -> str:
    """Where the index of a data file is by default: its full name plus ``.tfindex``."""
    path = path_name(data_path)
    return path + ".tfindex" if is_url(path) else index_names(path)[0]


def find_index(data_path: Any) -> str | None:
    """The index beside a data file: the sidecar, else ``a.tfindex`` for ``a.tfrecord``, as in 1.x."""
    path = path_name(data_path)
    local = local_path(path)
    if local is None:
        sidecar = sidecar_path(path)
        store, key = open_store(sidecar)
        try:
            return sidecar if store.exists(key) else None
        except PermissionError:  # what S3 says of objects that are not there to those who may not list
            return None
    for candidate in index_names(path):
        if os.path.isfile(local_path(candidate) or candidate):
            return candidate
    return None
