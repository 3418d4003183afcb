"""Build indexes and verify files, as tasks on every CPU of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import ray

from indexer.build_many import BuildResult, find_targets
from indexer.build_many import build_indexes as build_local_indexes
from indexer.files import is_url
from indexer.options import suggests_options
from indexer.shards import expand_shards
from tfrecord._kernels.record_type import RecordTypeName
from tfrecord.repair import verify as verify_local_files
from tfrecord.schema import SchemaCollector

__all__ = ["build_in_tasks", "build_indexes", "verify"]

FileReport = dict[str, Any]
Row = TypeVar("Row")
Progress = Callable[[FileReport], object]

# Small files share a task, up to this many bytes.
_TASK_BYTES = 64 << 20


@suggests_options
def build_indexes(
    paths: Any,
    *,
    columns: Iterable[str] | None = None,
    force: bool = False,
    recursive: bool = True,
    format: str = "extended",
    ray_remote_args: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[FileReport]:
    """Build the index of each file beside it, as `tfrecord.build_indexes` does, in Ray tasks.

    The files must be in folders that all workers share. A damaged file is a row with an error; it does not
    stop the others.

    Args:
        paths, columns, force, recursive, format: as for `tfrecord.build_indexes`.
        ray_remote_args: options of the tasks, as for `ray.remote`.
        progress: called with each row as soon as it is ready.

    Returns:
        A dict for each file, in order: ``path``, ``num_records`` (None if it failed), ``error`` (None, or
        text that says what is wrong and where), ``status`` (``"built"``, ``"fresh"`` or ``"failed"``).
    """
    names = None if columns is None else tuple((columns,) if isinstance(columns, str) else columns)
    collector = partial(SchemaCollector, names) if format == "extended" else None
    told = None if progress is None else lambda result: progress(_row(result))
    options = {"collector_factory": collector, "force": force, "format": format}
    results = build_in_tasks(paths, options, recursive, ray_remote_args, told)
    return [_row(result) for result in results]


def _row(result: BuildResult) -> FileReport:
    error = None if result.error is None else str(result.error)
    return {"path": result.path, "num_records": result.num_records, "error": error, "status": result.status}


def build_in_tasks(
    paths: Any,
    options: dict[str, Any],
    recursive: bool = True,
    remote_args: dict[str, Any] | None = None,
    progress: Callable[[BuildResult], object] | None = None,
) -> list[BuildResult]:
    """`indexer.build_indexes` with these options, in Ray tasks."""
    return _run(partial(_build, options=options), find_targets(paths, recursive), remote_args, progress)


def _build(paths: Sequence[str], options: dict[str, Any]) -> list[BuildResult]:
    return build_local_indexes(list(paths), **options)


@suggests_options
def verify(
    paths: Any,
    *,
    compression_type: str | None = None,
    record_type: RecordTypeName = "auto",
    parse: bool = True,
    ray_remote_args: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[FileReport]:
    """Check every byte of the files, as `tfrecord.verify` does, in Ray tasks.

    Args:
        paths, compression_type, record_type, parse: as for `tfrecord.verify`.
        ray_remote_args, progress: as for `build_indexes`.

    Returns:
        A dict for each file, in order: ``path``, ``num_records`` (good records only), ``error`` (None, or the
        first damaged place with record and offset), ``num_damages``.
    """
    work = partial(_verify, compression_type=compression_type, record_type=record_type, parse=parse)
    return _run(work, expand_shards(paths), ray_remote_args, progress)


def _verify(paths: Sequence[str], **options: Any) -> list[FileReport]:
    return [
        {
            "path": file.path,
            "num_records": file.records,
            "error": str(file.damages[0]) if file.damages else None,
            "num_damages": file.num_damages,
        }
        for file in verify_local_files(list(paths), **options).files
    ]


def _run(
    work: Callable[[Sequence[str]], list[Row]],
    paths: Sequence[str],
    remote_args: dict[str, Any] | None,
    progress: Callable[[Row], object] | None,
) -> list[Row]:
    """Run ``work`` on groups of the files in tasks; returns its rows, in the order of the files."""
    task: Any = ray.remote(**(remote_args or {"num_cpus": 1}))(_call)
    places = {task.remote(work, group): place for place, group in enumerate(_groups(paths))}
    found: dict[int, list[Row]] = {}
    waiting = list(places)
    while waiting:
        done, waiting = ray.wait(waiting)
        for reference in done:
            found[places[reference]] = ray.get(reference)
            if progress is not None:
                for row in found[places[reference]]:
                    progress(row)
    return [row for place in sorted(found) for row in found[place]]


def _call(work: Callable[[Sequence[str]], list[Row]], paths: Sequence[str]) -> list[Row]:
    return work(paths)


def _groups(paths: Sequence[str]) -> list[list[str]]:
    """The files in groups: small ones together, but enough groups for all CPUs."""
    names = [path if is_url(path) else os.path.abspath(path) for path in paths]
    sizes = [os.path.getsize(path) if os.path.isfile(path) else _TASK_BYTES for path in names]
    cpus = int(ray.cluster_resources().get("CPU", 1))
    limit = min(_TASK_BYTES, sum(sizes) // (4 * cpus) + 1)
    groups: list[list[str]] = []
    room = 0
    for name, size in zip(names, sizes, strict=True):
        if not groups or size > room:
            groups.append([])
            room = limit
        groups[-1].append(name)
        room -= size
    return groups
