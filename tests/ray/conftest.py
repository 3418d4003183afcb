"""One Ray for all tests of this folder; starting it takes long."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_shards import write_shard

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 40


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All on one worker of xdist, which has the one Ray."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("ray"))
            # What Ray says of its own settings and of processes and pipes that it leaves to the system.
            for quiet in ("ignore::DeprecationWarning:ray[.]", "ignore::FutureWarning:ray[.]"):
                item.add_marker(pytest.mark.filterwarnings(quiet))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Ray with two CPUs. Its worker processes import this checkout."""
    pytest.importorskip("ray.data")  # without Ray, this folder would be found as "ray"
    import ray

    here = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": here}},
    )
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def make_shards(tmp_path_factory: Any) -> Callable[..., tuple[Path, int]]:
    """Makes 40 uneven shards, some gzip, one empty, some without a feature; gives (folder, records)."""

    def make(*, index: bool) -> tuple[Path, int]:
        folder = tmp_path_factory.mktemp("shards")
        sizes = np.random.default_rng(0).integers(1, 120, SHARDS).tolist()
        sizes[7] = 0
        first = 0
        for place, count in enumerate(sizes):
            compression = "GZIP" if place % 9 == 4 else None
            name = f"part-{place:05d}.tfrecord{'.gz' if compression else ''}"
            write_shard(
                folder / name, first, count, odd=place % 5 == 3, index=index, compression_type=compression
            )
            first += count
        return folder, first

    return make


@pytest.fixture(scope="session")
def indexed(make_shards: Any) -> tuple[Path, int]:
    return make_shards(index=True)


@pytest.fixture(scope="session")
def plain(make_shards: Any) -> tuple[Path, int]:
    return make_shards(index=False)
