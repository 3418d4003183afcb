"""Sets of shards by their names, `base-00000-of-00010`: which are missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from .compression import detect, is_frame
from .errors import CompressionError, printable
from .files import is_url, path_name
from .framing import HEADER_SIZE
from .inputstream import open_stream
from .names import is_candidate, shard_name
from .options import warn_caller
from .paths import expand_paths
from .sniffing import HEAD_SIZE
from .stores import StoreOptions, Url

__all__ = ["ShardSet", "expand_shards", "shard_sets"]

_LISTED = 20
# How many ignored files of a folder are opened to see what they are.
_LOOKED_AT = 256


class ShardSet(NamedTuple):
    """`pattern`: the names with `*` for the number. `total`: how many shards belong to the set; `present`:
    how many exist. `missing` lists at most 20 numbers, `num_missing` counts all; `odd`: numbers above the
    total.
    """

    pattern: str
    total: int
    present: int
    missing: list[int]
    num_missing: int
    odd: list[int]

    @property
    def complete(self) -> bool:
        return not self.num_missing and not self.odd

    def __str__(self) -> str:
        """Which shards exist and which are missing, in words."""
        shards = f"{self.total:,} shard{'s' * (self.total != 1)}"
        if self.complete:
            return f"{self.pattern}: complete, {shards}"
        words = f"{self.pattern}: {self.present} of {shards}"
        if self.num_missing:
            more = ", …" if self.num_missing > len(self.missing) else ""
            words += f"; missing: {', '.join(f'{number:05d}' for number in self.missing)}{more}"
        if self.odd:
            words += f"; above the total: {', '.join(map(str, self.odd))}"
        return words


def shard_sets(paths: Iterable[str]) -> list[ShardSet]:
    """The shard sets that these files belong to, in the order of their first shards.

    Shards in the same folder count as present whether they were given or not.
    """
    found: dict[tuple[str, str, str, str], set[int]] = {}
    seen: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        shard = shard_name(name)
        if shard is not None:
            seen.setdefault(folder, set()).add(name)
            found.setdefault((folder, shard.base, shard.total, shard.tail), set()).add(shard.number)
    for folder, names in seen.items():
        if not os.path.isdir(folder or "."):
            continue
        for name in os.listdir(folder or "."):
            shard = None if name in names else shard_name(name)
            key = None if shard is None else (folder, shard.base, shard.total, shard.tail)
            if shard is not None and key in found:
                found[key].add(shard.number)
    return [_shard_set(key, numbers) for key, numbers in found.items()]


def expand_shards(paths: Any, store: StoreOptions | None = None) -> list[str]:
    """`expand_paths`, with a `UserWarning` for each incomplete shard set found by a glob or in a folder, and
    for a folder that holds two sets or ignored files that look like data.

    Files named one by one are taken as a deliberate choice.
    """
    if isinstance(paths, Iterator) and not hasattr(paths, "read"):
        paths = list(paths)
    found = expand_paths(paths, store=store)
    items = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    names = map(path_name, items)
    given = {Url(name) if is_url(name) else name for name in names}  # without the signature of a URL
    groups = shard_sets(path for path in found if path not in given)
    for group in groups:
        if not group.complete and is_url(group.pattern):
            group = _listed_set(group, store or getattr(found[0], "options", None))
        if not group.complete:
            warn_caller(printable(str(group)))
    for folder in given:
        if os.path.isdir(folder):
            _warn_of_folder(folder, found, groups)
    return found


def _listed_set(group: ShardSet, store: StoreOptions | None) -> ShardSet:
    """A set behind a URL, with the shards that the glob left out."""
    beside = shard_sets(expand_paths(os.path.dirname(group.pattern), usual_only=True, store=store))
    return next((other for other in beside if other.pattern == group.pattern), group)


def _warn_of_folder(folder: str, found: list[str], groups: list[ShardSet]) -> None:
    """Warn if the files of a folder may not be what the user means. ``groups``: the sets of those found."""
    base = folder.rstrip("/")
    sets = [group for group in groups if os.path.dirname(group.pattern) == base]
    if len(sets) > 1:
        names = ", ".join(group.pattern for group in sets[:_LISTED])
        hint = f"use a glob to choose one: {sets[0].pattern}"
        warn_caller(
            printable(f"folder {folder} holds {len(sets)} sets of shards ({names}); all are read; {hint}")
        )
    known = {os.path.basename(path) for path in found if os.path.dirname(path) == base}
    others = sorted(name for name in os.listdir(folder) if name not in known and is_candidate(name))
    left = [os.path.join(folder, name) for name in others[:_LOOKED_AT]]
    looking = list(filter(_looks_like_data, left))
    if looking:
        names = ", ".join(map(os.path.basename, looking[:_LISTED]))
        hint = "to read them, name them or use a glob"
        warn_caller(
            printable(
                f"folder {folder}: some files look like TFRecord but are ignored because of their names "
                f"({names}); {hint}"
            )
        )


def _looks_like_data(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            head = file.read(HEAD_SIZE)
        if is_frame(head):
            return True
        kind = detect(head)
        if kind is None:
            return False
        with open_stream(path, kind) as stream:
            return is_frame(stream.read_some(HEADER_SIZE))
    except (OSError, CompressionError, ImportError):
        return False


def _shard_set(key: tuple[str, str, str, str], numbers: set[int]) -> ShardSet:
    folder, base, text, tail = key
    total = int(text)
    inside = {number for number in numbers if number < total}
    missing = list(islice((number for number in range(total) if number not in inside), _LISTED))
    pattern = os.path.join(folder, f"{base}-*-of-{text}{tail}")
    return ShardSet(pattern, total, len(inside), missing, total - len(inside), sorted(numbers - inside))
