"""A stream like a slow pipe."""

from __future__ import annotations

import io


class Trickle(io.RawIOBase):
    """At most ``most`` bytes at a time, and no seeking."""

    def __init__(self, data: bytes, most: int = 7) -> None:
        self._data = io.BytesIO(data)
        self._most = most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(self._most, size) if size >= 0 else self._most)
