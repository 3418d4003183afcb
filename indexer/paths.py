"""Which files a path, list, glob or folder means, the same on every machine; and where their indexes are."""

from __future__ import annotations

import glob as _glob
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Union

from .errors import printable
from .files import is_url, local_path, path_name, remote_filesystem

__all__ = [
    "Paths",
    "expand_paths",
    "find_index",
    "index_names",
    "is_data_name",
    "is_index_name",
    "natural_key",
    "sidecar_path",
    "split_compression",
    "walk_folder",
]

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

_DATA_NAME = re.compile(
    r"[.\-_](tfrecords?|tfrecs?)(-[0-9]+-of-[0-9]+)?(\.(gz|gzip|zz|zlib))?$", re.IGNORECASE
)
_COMPRESSION = {".gz": "gzip", ".gzip": "gzip", ".zz": "zlib", ".zlib": "zlib"}
_INDEX_NAME = re.compile(r"\.(tfindex|index|idx)$", re.IGNORECASE)
_TEMPORARY_NAME = re.compile(r"(\.(tmp|temp|partial|part|crdownload|crc|lock|swp)|~)$", re.IGNORECASE)
_INDEX_SUFFIX = ".tfindex"
_DIGITS = re.compile(r"([0-9]+)")


def is_data_name(name: str) -> bool:
    """Whether a file of this name is TFRecord data by one of the usual names.

    These are ``*.tfrecord``, ``*.tfrecords``, ``*.tfrec``, ``*.tfrecord-00000-of-00010``, each also with
    ``.gz``.
    """
    return _DATA_NAME.search(os.path.basename(name)) is not None


def split_compression(path: str) -> tuple[str, str]:
    """The name without a suffix of compression, and which one it says: ``"gzip"``, ``"zlib"`` or ``""``."""
    stem, suffix = os.path.splitext(path)
    kind = _COMPRESSION.get(suffix.lower(), "")
    return (stem, kind) if kind else (path, "")


def is_index_name(name: str) -> bool:
    """Whether a file of this name is an index."""
    return _INDEX_NAME.search(name) is not None


def natural_key(path: str) -> tuple[Any, ...]:
    """Sort key by which ``a-2`` comes before ``a-10``."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(path))), path


def _is_candidate(path: str) -> bool:
    """Whether a name that was found (not given) may be data: no index, marker, hidden or temporary file."""
    name = os.path.basename(path)
    if is_index_name(name) or _TEMPORARY_NAME.search(name) or name.startswith("."):
        return False
    return not name.startswith("_") or is_data_name(name)


def _usual(paths: Iterable[str]) -> list[str]:
    """Those with the usual names; where none has one, all that may be data."""
    candidates = sorted((path for path in paths if _is_candidate(path)), key=natural_key)
    return [path for path in candidates if is_data_name(path)] or candidates


def walk_folder(folder: str, *, recursive: bool = False, usual_only: bool = False) -> list[str]:
    """The data files of a folder, sorted; ``recursive``: of its folders too, links not followed."""
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if not name.startswith((".", "_"))), key=natural_key)
        if not recursive:
            folders.clear()
        paths = [path for path in (os.path.join(root, name) for name in names) if os.path.isfile(path)]
        found.extend([path for path in _usual(paths) if is_data_name(path)] if usual_only else paths)
    return found if usual_only else _usual(found)


def _expand_url(url: str) -> list[str]:
    if not _glob.has_magic(url.split("://", 1)[-1]) and not url.endswith("/"):
        return [url]
    filesystem, path = remote_filesystem(url)
    if url.endswith("/"):
        names = [entry["name"] for entry in filesystem.ls(path, detail=True) if entry["type"] == "file"]
        return [filesystem.unstrip_protocol(name) for name in _usual(names)]
    names = [name for name in filesystem.glob(path) if _is_candidate(name) and filesystem.isfile(name)]
    return [filesystem.unstrip_protocol(name) for name in sorted(names, key=natural_key)]


def _expand_one(item: Any, recursive: bool) -> list[str]:
    if not isinstance(item, (str, bytes, os.PathLike)):
        raise TypeError(f"a path is a str or os.PathLike, not {type(item).__name__}")
    path = os.fsdecode(item)
    if not path:
        raise ValueError("a path is an empty string")
    if is_url(path):
        found = _expand_url(path)
        if not found:
            raise FileNotFoundError(printable(f"no data files at {path}"))
        return found
    if os.path.isdir(path):
        found = walk_folder(path, recursive=recursive)
        if not found:
            raise FileNotFoundError(
                f"no data files in folder {printable(path)} (looked for *.tfrecord, *.tfrecords, *.tfrec, "
                "*.tfrecord-00000-of-00010, each also with .gz, and then for any file that is no index)"
            )
        return found
    if os.path.lexists(path):  # a literal name wins over what it would mean as a glob
        return [path]
    if _glob.has_magic(path):
        names = (
            name for name in _glob.glob(path, recursive=True) if _is_candidate(name) and os.path.isfile(name)
        )
        found = sorted(names, key=natural_key)
        if not found:
            raise FileNotFoundError(printable(f"no data files match {path}"))
        return found
    raise FileNotFoundError(printable(f"no such file or folder: {path}"))


def expand_paths(paths: Any, *, recursive: bool = False) -> list[str]:
    """The files that ``paths`` means: a path, glob, folder or URL (str or PathLike), or a sequence of them.

    What globs and folders find is sorted naturally and holds no folders, index files, ``_SUCCESS``-like
    markers, hidden or temporary files; a sequence keeps its order. Of a folder: the files with the usual
    names, or where none has one, all others. `FileNotFoundError` says what was looked for where nothing is
    found, `ValueError` where there are no paths at all.
    """
    if isinstance(paths, (str, bytes, os.PathLike)):
        return _expand_one(paths, recursive)
    if hasattr(paths, "read") or not isinstance(paths, Iterable):
        kind = type(paths).__name__
        raise TypeError(
            f"a path or a sequence of paths is needed, not {kind}; loaders read file objects forward"
        )
    items = list(paths)
    if not items:
        raise ValueError("no paths were given: the list is empty")
    return [path for item in items for path in _expand_one(item, recursive)]


def sidecar_path(data_path: Any) -> str:
    """Where the index of a data file is by default: its whole name and ``.tfindex``."""
    return path_name(data_path) + _INDEX_SUFFIX


def index_names(data_name: str) -> list[str]:
    """The names that the index of a file may have: the sidecar's, and the lineage's ``a.tfindex`` of
    ``a.tfrecord``."""
    stem, extension = os.path.splitext(data_name)
    return [sidecar_path(data_name), *([stem + _INDEX_SUFFIX] if extension == ".tfrecord" else [])]


def find_index(data_path: Any) -> str | None:
    """The index beside a data file: the sidecar, else the lineage's ``a.tfindex`` of ``a.tfrecord``."""
    path = path_name(data_path)
    local = local_path(path)
    if local is None:
        filesystem, name = remote_filesystem(path)
        return sidecar_path(path) if filesystem.exists(sidecar_path(name)) else None
    for candidate in index_names(path):
        if os.path.isfile(local_path(candidate) or candidate):
            return candidate
    return None
