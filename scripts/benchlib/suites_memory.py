"""Peak memory of a pass, over data and over ten times as much of it."""

from __future__ import annotations

from collections.abc import Iterator

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

_WORK = {
    "epoch": "an epoch in batches",
    "shuffled": "a shuffled epoch in batches",
    "index": "a validated index build",
}


def memory(plan: Plan) -> Iterator[Case]:
    """The process's own memory at its peak. Mapped files do not count: they belong to the page cache."""
    for shape in plan.chosen("tab", "tok"):
        specs = {"small": plan.spec(shape.scaled(0.1)), "large": plan.spec(shape)}
        for work, title in _WORK.items():
            contenders = tuple(
                Contender(
                    key, f"{spec['records']:,} records", "tfrecord", "peak", spec | {"work": work}, fresh=True
                )
                for key, spec in specs.items()
            )
            text = f"memory of {title}, ten times the data"
            target = Target(text, "large", ("small",), 1.25, at_most=True, measure="rss")
            yield Case("memory", shape.name, title, contenders, (target,))
