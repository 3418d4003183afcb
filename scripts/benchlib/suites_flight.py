"""What is compared of the reader service: random records and scans, against the same in this process, and
against Flight alone with the same payloads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

sys.path.append(str(Path(__file__).resolve().parents[2]))


def flight(plan: Plan) -> Iterator[Case]:
    """256 random records as columns, and a scan to columns; tf.data service scans the same file."""
    from tfrecord import build_index
    from tfrecord.flight import serve

    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape, take=256, draws=8, form="ragged" if shape.name == "img" else "fixed")
        build_index(spec["path"])
        with serve({"bench": spec["path"]}) as server:
            served = spec | {"url": server.url, "token": server.token}
            ways = (
                ("local", "in this process", "served_{}", spec),
                ("served", "served", "served_{}", served),
                ("flight", "payloads by Flight alone", "transport_{}", spec),
            )
            contenders = tuple(
                Contender(key, label, "tfrecord", task.format("random"), given, one_cpu=False)
                for key, label, task, given in ways
            )
            title = "256 random records as columns"
            targets: tuple[Target, ...] = (
                Target(f"{title}, served against local", "served", ("local",), 2.5, at_most=True),
            )
            yield Case("flight", shape.name, title, contenders, targets)
            contenders = tuple(
                Contender(key, label, "tfrecord", task.format("scan"), given, one_cpu=False)
                for key, label, task, given in ways
            )
            peer = Contender("service", "tf.data service", "tensorflow", "service", spec, one_cpu=False)
            targets = (
                Target("scan to columns, served against local", "served", ("local",), 0.8),
                Target("scan to columns, served against tf.data service", "served", ("service",), 5.0),
            )
            yield Case("flight", shape.name, "scan to columns", (*contenders, peer), targets)
