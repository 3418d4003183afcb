"""Indexes built, and files verified, as tasks on every CPU of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import ray

from indexer.build import build_indexes as build_local_indexes
from indexer.build import find_targets
from indexer.files import is_url
from indexer.shards import expand_shards
from tfrecord.repair import verify as verify_local_files
from tfrecord.schema import SchemaCollector

__all__ = ["build_indexes", "verify"]

FileReport = dict[str, Any]
Progress = Callable[[FileReport], object]

# Small files share a task, up to so many bytes.
_TASK_BYTES = 64 << 20


def build_indexes(
    paths: Any,
    *,
    columns: Iterable[str] | None = None,
    force: bool = False,
    recursive: bool = True,
    format: str = "extended",
    places_only: bool = False,
    ray_remote_args: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[FileReport]:
    """Build the index of each file beside it, as `tfrecord.build_index` does, in Ray tasks.

    The files must be in folders that all workers share. A damaged file is a row with an error; it does not
    stop the others.

    Args:
        paths: files, globs and folders; of folders the files with the usual names.
        columns: features of one value in each record, kept in the indexes.
        force: also build an index again that fits its data.
        recursive: look into folders of folders.
        format: ``"extended"``, or ``"text"``, which holds positions alone.
        places_only: leave out the schema of the records.
        ray_remote_args: options of the tasks, as for `ray.remote`.
        progress: called with each row when it is there.

    Returns:
        A dict for each file, in order: ``path``, ``num_records`` (None where it failed), ``error`` (None, or
        text that says what is wrong and where), ``status`` (``"built"``, ``"fresh"`` or ``"failed"``).
    """
    places_only = places_only or format == "text"
    names = tuple((columns,) if isinstance(columns, str) else columns or ())
    if places_only and names:
        raise ValueError("columns are kept beside the schema: leave out places_only, and format='text'")
    collector = None if places_only else partial(SchemaCollector, names)
    work = partial(_build, collector=collector, force=force, format=format)
    return _run(work, find_targets(paths, recursive), ray_remote_args, progress)


def _build(paths: Sequence[str], **options: Any) -> list[FileReport]:
    collector = options.pop("collector")
    results = build_local_indexes(list(paths), collector_factory=collector, **options)
    return [
        {
            "path": result.path,
            "num_records": result.num_records,
            "error": None if result.error is None else str(result.error),
            "status": result.status,
        }
        for result in results
    ]


def verify(
    paths: Any,
    *,
    compression_type: str | None = None,
    record_type: str = "auto",
    parse: bool = True,
    ray_remote_args: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[FileReport]:
    """Check every byte of the files, as `tfrecord.verify` does, in Ray tasks.

    Args:
        paths, compression_type, record_type, parse: as for `tfrecord.verify`.
        ray_remote_args, progress: as for `build_indexes`.

    Returns:
        A dict for each file, in order: ``path``, ``num_records`` (the good ones), ``error`` (None, or the
        first damage with record and offset), ``num_damages``.
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
    work: Callable[[Sequence[str]], list[FileReport]],
    paths: Sequence[str],
    remote_args: dict[str, Any] | None,
    progress: Progress | None,
) -> list[FileReport]:
    """``work`` on groups of the files in tasks; its rows, in the order of the files."""
    task: Any = ray.remote(**(remote_args or {"num_cpus": 1}))(work)
    places = {task.remote(group): place for place, group in enumerate(_groups(paths))}
    found: dict[int, list[FileReport]] = {}
    waiting = list(places)
    while waiting:
        done, waiting = ray.wait(waiting)
        for reference in done:
            rows = found[places[reference]] = ray.get(reference)
            for row in rows if progress is not None else ():
                progress(row)  # type: ignore[misc]
    return [row for place in sorted(found) for row in found[place]]


def _groups(paths: Sequence[str]) -> list[list[str]]:
    """The files, several small ones together, but enough groups for all CPUs."""
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
