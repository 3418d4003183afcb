"""Work in the background that tells how far it is and can be stopped and continued."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator


class Job:
    """Steps on a thread of its own: each item of ``steps`` is how much more is done, of ``total``.

    ``state`` is "new", "running", "stopped", "done" or "failed". A stopped job continues where it was.
    """

    def __init__(self, steps: Iterator[int], total: int) -> None:
        self.total = total
        self.done = 0
        self.state = "new"
        self.error = ""
        self._steps = steps
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, or continue after a stop; nothing if it runs, or has ended."""
        with self._lock:
            if self.state == "running" or self.has_ended:
                return
            before = self._thread
            self.state = "running"
            self._thread = threading.Thread(target=self._run, args=(before,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current step."""
        with self._lock:
            if self.state == "running":
                self.state = "stopped"

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.state in ("done", "failed")

    def wait(self, seconds: float) -> None:
        """Give it some time, so that short work is done before the first answer."""
        end = time.monotonic() + seconds
        while self.state == "running" and time.monotonic() < end:
            time.sleep(0.002)

    def _run(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        me = threading.current_thread()
        try:
            for amount in self._steps:
                self.done += amount
                if self.state != "running" or self._thread is not me:
                    return
                time.sleep(0.0005)  # let the threads that answer requests have their turn
            state = "done"
        except Exception as error:  # told on the page
            told = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
            self.error, state = str(told), "failed"
        with self._lock:
            self.state = state
