"""What requests to a store cost, and how far apart ranges may lie to share one."""

from __future__ import annotations

import threading
from collections import deque
from statistics import median

from indexer.stores.pieces import NEAR

__all__ = ["RequestCosts"]

_LEAST = 16 << 10
# So many of the last requests are looked at; without this many, or where small and large ones differ by fewer
# bytes than this, they say nothing.
_KEPT, _ENOUGH, _APART = 64, 16, 64 << 10


class RequestCosts:
    """How long the last requests took. Thread-safe.

    A request for n bytes takes `latency + n / rate`, where the rate is what one request of many gets. To read
    a gap between two ranges takes `gap / rate` and saves one `latency`, so it pays up to `latency * rate`.
    Beyond 128 KiB it does not pay: requests that could run side by side would become one that takes longer.
    """

    def __init__(self) -> None:
        self._last: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def add(self, size: int, seconds: float) -> None:
        """A request for so many bytes took so long."""
        with self._lock:
            self._last.append((size, seconds))

    @property
    def gap(self) -> int:
        """The largest gap worth reading, in bytes: 16 to 128 KiB; 128 KiB as long as nothing is known."""
        with self._lock:
            found = sorted(self._last)
        if len(found) < _ENOUGH:
            return NEAR
        middle = len(found) // 2
        (small, soon), (large, late) = (
            (median(size for size, _ in half), median(seconds for _, seconds in half))
            for half in (found[:middle], found[middle:])
        )
        if large - small < _APART:
            return NEAR
        per_byte = max(late - soon, 0) / (large - small)
        latency = max(soon - small * per_byte, 0)
        return NEAR if per_byte * NEAR <= latency else max(_LEAST, int(latency / per_byte))
