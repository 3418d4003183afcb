"""Building the indexes of many files."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import Any, Literal, NamedTuple

from . import formats
from .build import Format, build_index, check_index, object_version
from .errors import TFRecordError
from .files import is_url, local_path, path_name
from .index import RecordIndex
from .inflaters import WINDOW_BITS, finds_blocks
from .options import check_threads
from .paths import expand_paths, sidecar_path, walk_folder
from .progress import shown
from .scanning import Collector
from .stores import StoreOptions

__all__ = ["BuildResult", "build_indexes", "find_targets"]


class BuildResult(NamedTuple):
    """The outcome for one file; ``error`` is the exception if ``status`` is ``"failed"``."""

    path: str
    index_path: str
    status: Literal["built", "fresh", "failed"]
    num_records: int | None
    error: Exception | None


def find_targets(paths: Any, recursive: bool, store: StoreOptions | None = None) -> list[str]:
    """The data files meant; of folders only those with the usual names, as each gets an index beside it.

    URLs are listed with the options ``store``, and keep them.
    """
    items = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
    if not items:
        raise ValueError("no paths were given: the list is empty")
    found: dict[str, str] = {}
    for item in items:
        path = path_name(item)
        if os.path.isdir(path):
            names = walk_folder(path, recursive=recursive, usual_only=True)
            if not names:
                raise FileNotFoundError(f"no data files with the usual names in folder {path}")
        else:
            names = expand_paths(item, usual_only=is_url(path), store=store)
        for name in names:
            found.setdefault(name if is_url(name) else os.path.realpath(name), name)
    return list(found.values())


def _is_fresh(path: str, target: str, format: str, collector: Any) -> int | None:
    """Number of records of an index that can stay, None if it must be built.

    Unless the modification time shows that the data has not changed, all of the data is checked.
    """
    try:
        index = formats.load_index(target, path)
        satisfied = getattr(collector, "satisfied_by", None)
        lacks_points = index.compression in WINDOW_BITS and index.points is None and finds_blocks()
        if lacks_points or index.format != format or (satisfied is not None and not satisfied(index)):
            return None
        if _is_settled(path, index):
            formats.verify_arrays(target)
            index.check_all()
        else:
            check_index(path, target)
    except (TFRecordError, OSError):
        return None
    return len(index)


def _is_settled(path: str, index: RecordIndex) -> bool:
    """Whether time or ETag say that the data is what the index was built for."""
    local = local_path(path)
    if local is not None:
        return index.settled and index.mtime_ns == os.stat(local).st_mtime_ns
    return index.etag is not None and index.etag == object_version(path)


def build_indexes(
    paths: Any,
    *,
    jobs: int = 1,
    format: Format = "extended",
    force: bool = False,
    recursive: bool = True,
    collector_factory: Callable[[], Collector] | None = None,
    progress: bool | Callable[[BuildResult], object] | None = None,
    drop_columns: bool = False,
    num_threads: int = 1,
    compression_type: str | None = None,
    store: StoreOptions | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> list[BuildResult]:
    """Build the indexes of files, globs and folders, each beside its data; one result per file, in order.

    Of folders, only files with the usual names are taken. An index that matches its data stays as it is,
    unless ``force``; if size and time do not show that the data is unchanged, the data is checked. A file
    that fails does not stop the others. ``jobs`` threads work at once (checks release the GIL). ``progress``:
    True shows a bar of files; a callable gets each result as it becomes available, in the calling thread.
    ``drop_columns``, ``num_threads``, ``compression_type``: as for `build_index`. ``store``: the options for
    URLs. ``on_bytes`` gets the bytes of data done since its last call, from any thread.
    """
    jobs = check_threads(jobs, "jobs")
    targets = find_targets(paths, recursive, store)

    def build_one(path: str) -> BuildResult:
        target = sidecar_path(path)
        try:
            collector = None if collector_factory is None else collector_factory()
            if not force:
                fresh = _is_fresh(path, target, format, collector)
                if fresh is not None:
                    return BuildResult(path, target, "fresh", fresh, None)
            index = build_index(
                path,
                target,
                format=format,
                collector=collector,
                num_threads=num_threads,
                compression_type=compression_type,
                drop_columns=drop_columns,
                progress=False if on_bytes is None else _steps(on_bytes),
            )
        except (TFRecordError, OSError, ValueError, ImportError) as error:
            return BuildResult(path, target, "failed", None, error)
        return BuildResult(path, target, "built", len(index), None)

    results: dict[int, BuildResult] = {}
    with (
        shown(progress is True, "index", unit=" files") as report,
        closing(_completed(build_one, targets, jobs)) as completed,
    ):
        for place, result in completed:
            results[place] = result
            report(len(results), len(targets))
            if callable(progress):
                progress(result)
    return [results[place] for place in range(len(targets))]


def _completed(
    build_one: Callable[[str], BuildResult], targets: list[str], jobs: int
) -> Generator[tuple[int, BuildResult], None, None]:
    """The results with their places, as they become available. Closed early, it begins no more of them."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(build_one, path): place for place, path in enumerate(targets)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _steps(told: Callable[[int], object]) -> Callable[[int, int], None]:
    """Reports of how much of one file is done, as steps."""
    before = 0

    def report(done: int, total: int) -> None:
        nonlocal before
        told(done - before)
        before = done

    return report
