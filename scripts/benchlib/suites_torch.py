"""What is compared of training loops: epochs through a DataLoader, and a cold page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan


def torch(plan: Plan) -> Iterator[Case]:
    """A shuffled epoch through a DataLoader; shuffled against sequential; a cold cache."""
    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape, batch=1024 if shape.name == "tab" else 64, shuffle=True)
        queue = spec | {"shuffle": 1024}
        contenders = []
        for workers in (0, 2):
            ours = spec | {"workers": workers}
            text = f"{workers} workers"
            contenders += [
                Contender(
                    f"ours_{workers}", f"shuffled, {text}", "tfrecord", "torch_epoch", ours, one_cpu=False
                ),
                Contender(
                    f"order_{workers}",
                    f"sequential, {text}",
                    "tfrecord",
                    "torch_epoch",
                    ours | {"shuffle": False},
                    one_cpu=False,
                ),
                Contender(
                    f"lineage_{workers}",
                    f"queue of 1,024, {text}",
                    "lineage",
                    "torch_epoch",
                    queue | {"workers": workers},
                    one_cpu=False,
                ),
            ]
        contenders += [
            Contender(
                "tf", "tf.data shuffle(1024), batch, parse", "tensorflow", "read", queue, one_cpu=False
            ),
            Contender(
                "tf_all",
                "tf.data the same, parallel, prefetch",
                "tensorflow",
                "read",
                queue | {"parallel": True},
                one_cpu=False,
            ),
        ]
        factor = 20.0 if shape.name == "tab" else 2.0
        targets = []
        for workers in (0, 2):
            ours_key = f"ours_{workers}"
            targets += [
                Target(
                    f"shuffled epoch, {workers} workers, against the lineage",
                    ours_key,
                    (f"lineage_{workers}",),
                    factor,
                ),
                Target(f"shuffled epoch, {workers} workers, against tf.data", ours_key, ("tf", "tf_all"), 2),
                Target(
                    f"shuffled against sequential, {workers} workers",
                    ours_key,
                    (f"order_{workers}",),
                    1.5,
                    at_most=True,
                ),
            ]
        yield Case(
            "torch",
            shape.name,
            f"an epoch in batches of {spec['batch']:,}",
            tuple(contenders),
            tuple(targets),
        )
    yield from _cold_reads(plan)


def _kernel_readahead(path: Path) -> str:
    """How much the kernel reads around a fault on the file's device."""
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
