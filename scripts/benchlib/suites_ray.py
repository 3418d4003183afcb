"""Comparisons on Ray Data: rows to the driver, rows within the workers, and the driver's memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan


def ray(plan: Plan) -> Iterator[Case]:
    """A data set through Ray on two CPUs, against Ray's own reader, and against our splits without Ray."""
    for shape in plan.chosen("tab"):
        warm = plan.spec(shape.scaled(0.01))["path"]
        small = plan.spec(shape.scaled(0.1), batch=8192, warm=warm)
        contenders = (
            _ray("ours", "tfrecord.ray.read_tfrecords", small),
            _ray("theirs", "ray.data.read_tfrecords", small, "ray_tensorflow"),
        )
        targets = (Target("read_tfrecords, against Ray's own", "ours", ("theirs",), 100),)
        yield Case("ray", shape.name, f"{small['records']:,} rows to the driver", contenders, targets)

        spec = plan.spec(shape, batch=8192, warm=warm)
        ways = (
            _ray("driver", "tfrecord.ray, to the driver", spec),
            _ray("workers", "tfrecord.ray, within the workers", spec | {"to": "workers"}),
            _splits("one", "make_splits, in one process", spec),
            _splits("two", "make_splits, multiprocessing, 2 processes", spec | {"processes": 2}),
        )
        targets = (Target("rows a second to the driver, two CPUs", "driver", (), 300_000, measure="rate"),)
        yield Case("ray", shape.name, f"{spec['records']:,} rows on two CPUs", ways, targets)

        passes = (
            _ray("once", "the file once", spec),
            _ray("often", "the file five times", spec | {"times": 5}),
        )
        growth = Target(
            "the driver's peak for five times the rows", "often", ("once",), 1.2, at_most=True, measure="rss"
        )
        yield Case("ray", shape.name, "memory of the driver", passes, (growth,))


def _ray(key: str, label: str, spec: dict[str, Any], package: str = "ray") -> Contender:
    return Contender(key, label, package, "read", spec, one_cpu=False)


def _splits(key: str, label: str, spec: dict[str, Any]) -> Contender:
    return Contender(key, label, "tfrecord", "splits", spec, one_cpu=False)
