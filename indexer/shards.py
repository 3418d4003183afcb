"""Sets of shards by their names, `base-00000-of-00010`: which are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from .errors import printable
from .files import is_url, path_name
from .options import warn_caller
from .paths import expand_paths

__all__ = ["ShardSet", "expand_shards", "shard_sets"]

_SHARD = re.compile(r"^(?P<base>.*)-(?P<number>\d+)-of-(?P<total>\d+)(?P<tail>(?:\.[A-Za-z0-9]+)*)$")
_LISTED = 20


class ShardSet(NamedTuple):
    """`pattern`: the names with `*` for the number. `total` shards belong to it, `present` are there.
    `missing` lists at most 20 numbers, `num_missing` counts all; `odd` are numbers that the total does not
    allow."""

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
        """What is there and what is missing, for people."""
        shards = f"{self.total:,} shard{'s' * (self.total != 1)}"
        if self.complete:
            return f"{self.pattern}: complete, {shards}"
        words = f"{self.pattern}: {self.present} of {shards}"
        if self.num_missing:
            more = ", …" if self.num_missing > len(self.missing) else ""
            words += f"; missing: {', '.join(f'{number:05d}' for number in self.missing)}{more}"
        if self.odd:
            words += f"; beyond the count: {', '.join(map(str, self.odd))}"
        return words


def shard_sets(paths: Iterable[str]) -> list[ShardSet]:
    """The shard sets that these files belong to, in the order of their first shards; shards that lie beside
    them count as present, whether they were given or not."""
    found: dict[tuple[str, str, str, str], set[int]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        match = _SHARD.match(name)
        if match is not None:
            found.setdefault((folder, match["base"], match["total"], match["tail"]), set()).add(
                int(match["number"])
            )
    for folder in {key[0] for key in found}:
        if not os.path.isdir(folder or "."):
            continue
        for name in os.listdir(folder or "."):
            match = _SHARD.match(name)
            key = (folder, match["base"], match["total"], match["tail"]) if match is not None else None
            if match is not None and key in found:
                found[key].add(int(match["number"]))
    return [_shard_set(key, numbers) for key, numbers in found.items()]


def expand_shards(paths: Any) -> list[str]:
    """`expand_paths`, with a `UserWarning` for each shard set that a glob or folder finds incomplete.

    Files that are named one by one are a choice, and those behind URLs are not looked for.
    """
    if isinstance(paths, Iterator) and not hasattr(paths, "read"):
        paths = list(paths)
    found = expand_paths(paths)
    items = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    given = {path_name(item) for item in items}
    for group in shard_sets(path for path in found if path not in given and not is_url(path)):
        if group.num_missing:
            warn_caller(printable(str(group)))
    return found


def _shard_set(key: tuple[str, str, str, str], numbers: set[int]) -> ShardSet:
    folder, base, text, tail = key
    total = int(text)
    inside = {number for number in numbers if number < total}
    missing = list(islice((number for number in range(total) if number not in inside), _LISTED))
    pattern = os.path.join(folder, f"{base}-*-of-{text}{tail}")
    return ShardSet(pattern, total, len(inside), missing, total - len(inside), sorted(numbers - inside))
