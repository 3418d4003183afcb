"""fsspec, and s3fs through it: byte ranges as a user would read them."""

from __future__ import annotations

import itertools

import fsspec

from benchlib.common import Run, Spec, Task


def version() -> str:
    """fsspec's version."""
    return str(fsspec.__version__)


def cat_ranges(spec: Spec) -> Run:
    """The ranges of each draw in one call."""
    given = spec.get("storage")
    if given is None:
        filesystem, path = fsspec.filesystem("http"), spec["url"]
    else:
        options = {
            "key": given["access_key_id"],
            "secret": given["secret_access_key"],
            "endpoint_url": given["endpoint"],
            "client_kwargs": {"region_name": given["region"]},
        }
        filesystem, path = fsspec.filesystem("s3", **options), spec["url"].removeprefix("s3://")
    turns = itertools.cycle(spec["ranges"])

    def run() -> int:
        ranges = next(turns)
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        return len(filesystem.cat_ranges([path] * len(ranges), starts, ends, on_error="raise"))

    return run


TASKS: dict[str, Task] = {"cat_ranges": cat_ranges}
