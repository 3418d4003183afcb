"""What a server counts, in memory that its processes share."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["METHODS", "Counters"]

METHODS = ("do_get", "do_exchange", "do_action", "get_flight_info", "list_flights")
# Upper bounds of the latency buckets in seconds; the last bucket is for all that took longer.
_BOUNDS = tuple(round(0.0001 * 2**power, 7) for power in range(22))
_SUMS = ("requests", "errors", "rows", "bytes", "microseconds")
_SIZE = len(_SUMS) + len(_BOUNDS) + 1
_OTHERS = ("refused", "unauthenticated", "open_calls")


class Counters:
    """Counters of each of some processes; every process adds to its own and reads all.

    A request is a call, and each message of an exchange. Its seconds are those until its answer was made.
    """

    def __init__(self, processes: int = 1) -> None:
        words = len(METHODS) * _SIZE + len(_OTHERS)
        self._memory = mmap.mmap(-1, 8 * words * processes)
        self._table: npt.NDArray[np.int64] = np.frombuffer(self._memory, np.int64).reshape(processes, words)
        self._lock = threading.Lock()
        self.process = 0

    def add(self, method: str, seconds: float, rows: int, num_bytes: int, failed: bool) -> None:
        """Count one request."""
        first = METHODS.index(method) * _SIZE
        bucket = int(np.searchsorted(_BOUNDS, seconds))
        with self._lock:
            row = self._table[self.process]
            row[first : first + 5] += (1, failed, rows, num_bytes, int(seconds * 1e6))
            row[first + 5 + bucket] += 1

    def count(self, name: str, change: int = 1) -> None:
        """Change one of the other counters: ``refused``, ``unauthenticated``, ``open_calls``."""
        with self._lock:
            self._table[self.process, _OTHERS.index(name) - len(_OTHERS)] += change

    def read(self) -> dict[str, Any]:
        """All counters; latencies in seconds, each the upper bound of its bucket."""
        total = self._table.sum(axis=0)
        found: dict[str, Any] = {name: int(total[n - len(_OTHERS)]) for n, name in enumerate(_OTHERS)}
        found["methods"] = {}
        for method, values in self._by_method(total):
            buckets = values[5:]
            entry = dict(zip(_SUMS[:4], values[:4].tolist(), strict=True))
            entry["seconds"] = int(values[4]) / 1e6
            ends = np.cumsum(buckets)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                place = int(np.searchsorted(ends, share * ends[-1]))
                entry[name] = _BOUNDS[min(place, len(_BOUNDS) - 1)] if ends[-1] else 0.0
            found["methods"][method] = entry
        return found

    def prometheus(self) -> str:
        """All counters in the text format of Prometheus."""
        total = self._table.sum(axis=0)
        lines = []
        for name, kind in (("refused", "counter"), ("unauthenticated", "counter"), ("open_calls", "gauge")):
            full = f"tfrecord_{name}" + "_total" * (kind == "counter")
            lines += [f"# TYPE {full} {kind}", f"{full} {int(total[_OTHERS.index(name) - len(_OTHERS)])}"]
        for place, name in enumerate(_SUMS[:4]):
            lines.append(f"# TYPE tfrecord_{name}_total counter")
            for method, values in self._by_method(total):
                lines.append(f'tfrecord_{name}_total{{method="{method}"}} {int(values[place])}')
        lines.append("# TYPE tfrecord_request_seconds histogram")
        for method, values in self._by_method(total):
            ends = np.cumsum(values[5:]).tolist()
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), ends, strict=True):
                lines.append(f'tfrecord_request_seconds_bucket{{method="{method}",le="{bound}"}} {count}')
            lines.append(f'tfrecord_request_seconds_sum{{method="{method}"}} {int(values[4]) / 1e6}')
            lines.append(f'tfrecord_request_seconds_count{{method="{method}"}} {ends[-1]}')
        return "\n".join(lines) + "\n"

    def _by_method(self, total: npt.NDArray[np.int64]) -> list[tuple[str, npt.NDArray[np.int64]]]:
        return [(name, total[n * _SIZE : (n + 1) * _SIZE]) for n, name in enumerate(METHODS)]
