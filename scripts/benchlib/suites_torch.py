"""Comparisons on training loops: epochs through a DataLoader, and a cold page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

_WORKERS = (0, 2)


def torch(plan: Plan) -> Iterator[Case]:
    """A shuffled epoch through a DataLoader; shuffled against sequential; a cold cache."""
    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape, batch=1024 if shape.name == "tab" else 64, shuffle=True)
        contenders = tuple(_epochs(spec))
        targets = tuple(_epoch_targets(20.0 if shape.name == "tab" else 2.0))
        yield Case("torch", shape.name, f"an epoch in batches of {spec['batch']:,}", contenders, targets)
    yield from _overlaps(plan)
    yield from _cold_reads(plan)


def _overlaps(plan: Plan) -> Iterator[Case]:
    """Epochs whose steps take as long as loading, and need no CPU. Where `prefetch` hides all of the loading
    they take half as long; the target is what remains where it hides 0.6 of it."""
    for shape in plan.chosen("tab", "tok", "vec", "img"):
        spec = plan.spec(shape, batch=1024 if shape.name != "img" else 64)
        contenders = tuple(
            Contender(key, text, "tfrecord", "overlap", spec | {"prefetch": depth}, one_cpu=False)
            for depth, key, text in ((0, "after", "one after the other"), (2, "ahead", "prefetch=2"))
        )
        target = Target("prefetch against loading between the steps", "ahead", ("after",), 2 / 1.4)
        yield Case("torch", shape.name, "steps that need no CPU", contenders, (target,))


def _epochs(spec: dict[str, Any]) -> Iterator[Contender]:
    """An epoch by each contender: ours shuffled and in order, the lineage's queue, tf.data."""
    queue = spec | {"shuffle": 1024}
    for workers in _WORKERS:
        text = f"{workers} workers"
        for key, label, package, options in (
            ("ours", "shuffled", "tfrecord", spec),
            ("order", "sequential", "tfrecord", spec | {"shuffle": False}),
            ("lineage", "queue of 1,024", "lineage", queue),
        ):
            given = options | {"workers": workers}
            yield Contender(
                f"{key}_{workers}", f"{label}, {text}", package, "torch_epoch", given, one_cpu=False
            )
    parallel = queue | {"parallel": True}
    yield Contender("tf", "tf.data shuffle(1024), batch, parse", "tensorflow", "read", queue, one_cpu=False)
    yield Contender(
        "tf_all", "tf.data the same, parallel, prefetch", "tensorflow", "read", parallel, one_cpu=False
    )


def _epoch_targets(factor: float) -> Iterator[Target]:
    """`factor`: how many times as fast as the lineage."""
    for workers in _WORKERS:
        ours, text = f"ours_{workers}", f"{workers} workers"
        yield Target(f"shuffled epoch, {text}, against the lineage", ours, (f"lineage_{workers}",), factor)
        yield Target(f"shuffled epoch, {text}, against tf.data", ours, ("tf", "tf_all"), 2)
        yield Target(f"shuffled against sequential, {text}", ours, (f"order_{workers}",), 1.5, at_most=True)


def _kernel_readahead(path: Path) -> str:
    """How much the kernel reads around a page fault on the file's device."""
    device = path.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for folder in (place, place.resolve().parent):  # a partition has its disk's setting
        if (setting := folder / "queue" / "read_ahead_kb").exists():
            return f"{setting.read_text().strip()} kB"
    return "an unknown number"


def _cold_reads(plan: Plan) -> Iterator[Case]:
    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape, batch=1024 if shape.name == "tab" else 64)
        ways = {
            "ours": "readahead",
            "kernel": f"the kernel's own ({_kernel_readahead(Path(spec['path']))})",
            "none": "none at all",
        }
        contenders, targets = [], []
        for through, label in (("torch", "dataset"), ("reader", "reader's batches")):
            for which, text in ways.items():
                more = spec | {"readahead": which, "through": through}
                key = f"{through}_{which}"
                contenders.append(Contender(key, f"{label}, {text}", "tfrecord", "cold", more, fresh=True))
            for which in ("kernel", "none"):
                what = f"cold {label}, readahead against {ways[which]}"
                targets.append(Target(what, f"{through}_ours", (f"{through}_{which}",), 2))
        yield Case("torch", shape.name, "shuffled, cold page cache", tuple(contenders), tuple(targets))
