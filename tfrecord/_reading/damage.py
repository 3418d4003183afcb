"""What happens to a damaged record: one rule for every way of reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from indexer.errors import CompressionError, CorruptRecordError, DecodeError, TFRecordError
from indexer.options import near_matches
from tfrecord._reading.locks import ForkSafeLock

__all__ = ["DAMAGE", "DamagePolicy", "OnError"]

OnError = Literal["raise", "skip"] | Callable[[TFRecordError], object]

# What counts as damage. A missing feature or one of another type is a wrong request, and a stale index a
# wrong file: neither is ever skipped.
DAMAGE = (CorruptRecordError, CompressionError, DecodeError)


class DamagePolicy:
    """Raise or skip, and count what was skipped.

    Args:
        on_error: ``"raise"``, ``"skip"``, or a callable that gets each error, once (its result is ignored and
            the record skipped; what it raises propagates).
        max_skips: how many damaged records may be skipped; the next one raises. None: any number.

    A record counts once, however often it is read: in several epochs, or by position and in order.

    Raises:
        ValueError: an option has an invalid value.
        TypeError: an option has the wrong type.
    """

    def __init__(self, on_error: OnError = "raise", max_skips: int | None = None) -> None:
        if not callable(on_error) and on_error not in ("raise", "skip"):
            near = near_matches(on_error, ("raise", "skip"))
            raise ValueError(f"on_error is {on_error!r}; it must be 'raise', 'skip' or a callable{near}")
        if max_skips is not None:
            if isinstance(max_skips, bool) or not hasattr(max_skips, "__index__"):
                raise TypeError(f"max_skips is {max_skips!r}; it must be an integer or None")
            if max_skips < 0:
                raise ValueError(f"max_skips is {max_skips}; it must not be negative")
        self.on_error = on_error
        self.max_skips = max_skips
        self.skips = on_error != "raise"
        self._lock = ForkSafeLock()
        self._seen: dict[str | None, bytearray] = {}  # one bit per record
        self._count = 0
        #: Called once with the place (path, record) of each skipped record.
        self.on_skip: Callable[[str | None, int], object] | None = None

    @property
    def num_skipped(self) -> int:
        """How many different damaged records were skipped; the lost rest of a file counts as one."""
        return self._count

    def handle(self, error: TFRecordError) -> None:
        """Return if the damage is to be skipped, else raise ``error``."""
        if not self.skips or not isinstance(error, DAMAGE):
            raise error
        with self._lock:
            if not self._is_new(error.path, error.record or 0):
                return
            if self.max_skips is not None and self._count >= self.max_skips:
                raise error
            self._mark(error.path, error.record or 0)
            self._count += 1
            if self.on_skip is not None:
                self.on_skip(error.path, error.record or 0)
        if not callable(self.on_error):
            return
        try:
            self.on_error(error)
        except BaseException:  # reading stops here: nothing was skipped
            with self._lock:
                self._seen[error.path][(error.record or 0) >> 3] ^= 1 << ((error.record or 0) & 7)
                self._count -= 1
            raise

    def _is_new(self, path: str | None, record: int) -> bool:
        seen = self._seen.get(path, b"")
        return record >> 3 >= len(seen) or not seen[record >> 3] & 1 << (record & 7)

    def _mark(self, path: str | None, record: int) -> None:
        seen = self._seen.setdefault(path, bytearray())
        if record >> 3 >= len(seen):
            seen.extend(bytes((record >> 3) + 1 - len(seen)))
        seen[record >> 3] |= 1 << (record & 7)

    def __getstate__(self) -> dict[str, Any]:
        return {"on_error": self.on_error, "max_skips": self.max_skips}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
