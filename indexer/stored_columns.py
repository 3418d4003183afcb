"""The columns of an index file: checked when first used, and private copies from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .framing import crc32c

__all__ = ["StoredArray", "StoredColumns"]


class StoredArray(NamedTuple):
    """An array as stored in the index file, and its checksum."""

    values: npt.NDArray[Any]
    checksum: int

    def checked(self) -> npt.NDArray[Any] | None:
        """A read-only copy; None if the checksum does not match."""
        copy = np.array(self.values)
        copy.flags.writeable = False
        return copy if crc32c(copy.reshape(-1).view(np.uint8)) == self.checksum else None


class StoredColumns(Mapping[str, npt.NDArray[Any]]):
    """Columns by name.

    ``stored``: the values of each, and if some records lack a value, also which records have one (bool).
    ``before_read`` is called before an array of the file is read, ``before_use`` before a column is returned;
    both may raise. ``damaged`` makes the error for a column whose checksum does not match.
    """

    def __init__(
        self,
        stored: Mapping[str, tuple[StoredArray, StoredArray | None]],
        *,
        before_read: Callable[[], object],
        damaged: Callable[[str], Exception],
        before_use: Callable[[], object] | None = None,
    ) -> None:
        self._stored = dict(stored)
        self._before_read = before_read
        self._damaged = damaged
        self._before_use = before_use
        self._ready: dict[str, npt.NDArray[Any]] = {}

    def guarded(self, before_use: Callable[[], object]) -> StoredColumns:
        """The same columns, returned only after a call of ``before_use``."""
        return StoredColumns(
            self._stored, before_read=self._before_read, damaged=self._damaged, before_use=before_use
        )

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        stored = self._stored[name]
        if self._before_use is not None:
            self._before_use()
        found = self._ready.get(name)
        if found is None:
            found = self._ready[name] = self._checked(name, *stored)
        return found

    def _checked(self, name: str, values: StoredArray, present: StoredArray | None) -> npt.NDArray[Any]:
        self._before_read()
        copy = values.checked()
        if copy is None:
            raise self._damaged(f"the checksum of its column {name!r} does not match")
        if present is None:
            return copy
        mask = present.checked()
        if mask is None:
            raise self._damaged(f"the checksum of its column {name!r} does not match")
        return np.ma.MaskedArray(copy, ~mask)

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __repr__(self) -> str:
        return f"StoredColumns({list(self._stored)})"
