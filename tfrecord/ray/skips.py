"""Damaged records that workers skip: counted in one place and reported by the driver."""

from __future__ import annotations

import warnings
from typing import Any

import ray

from tfrecord._reading.damage import OnError

__all__ = ["SkipLog", "warn_after_each_pass"]


class _Skips:
    """The state of an actor. A record counts once, even if a task is retried or the data is read again."""

    def __init__(self) -> None:
        self._places: set[tuple[str | None, int | None]] = set()
        self._first = ""

    def add(self, path: str | None, record: int | None, text: str) -> int:
        self._places.add((path, record))
        self._first = self._first or text
        return len(self._places)

    def found(self) -> tuple[int, str]:
        return len(self._places), self._first


class SkipLog:
    """An ``on_error`` for readers in any process, which counts over all of them.

    ``on_error`` and ``max_skips`` are what the user gave; ``max_skips`` counts over all workers.
    """

    def __init__(self, on_error: OnError, max_skips: int | None) -> None:
        self._on_error = on_error
        self._max_skips = max_skips
        self._actor: Any = ray.remote(num_cpus=0)(_Skips).remote()

    def __call__(self, error: Any) -> None:
        count = ray.get(self._actor.add.remote(error.path, error.record, str(error)))
        if self._max_skips is not None and count > self._max_skips:
            raise error
        if callable(self._on_error):
            self._on_error(error)

    def warn(self) -> None:
        """Warn how many records were skipped so far, if any."""
        count, first = ray.get(self._actor.found.remote())
        if count:
            plural = "records were" if count > 1 else "record was"
            warnings.warn(f"{count} damaged {plural} skipped; the first: {first}", stacklevel=2)


def warn_after_each_pass(context: Any, skips: SkipLog) -> None:
    """Make the driver warn at the end of each pass over a dataset that has this DataContext."""
    from ray.data._internal.execution import execution_callback as hooks

    class Warn(hooks.ExecutionCallback):  # type: ignore[misc]
        def after_execution_succeeds(self, executor: Any) -> None:
            skips.warn()

    if hasattr(context, "custom_execution_callback_classes"):
        context.custom_execution_callback_classes = [*context.custom_execution_callback_classes, Warn]
    else:
        hooks.add_execution_callback(Warn(), context)
