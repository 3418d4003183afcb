"""Tables for the terminal, the same figures as JSON, and the plot."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchlib.harness import Case, Outcome, Verdict, median, ratios

NAMES = {
    "tfrecord": "this library",
    "numpy": "NumPy",
    "tensorflow": "TensorFlow",
    "tensorflow_datasets": "tensorflow-datasets",
    "tfx_bsl": "tfx-bsl",
    "dali": "DALI (CPU)",
    "array_record": "array_record",
    "lineage": "tfrecord 1.14.6",
    "ray": "this library on Ray",
    "ray_tensorflow": "Ray Data",
    "fsspec": "fsspec",
}


def machine() -> dict[str, Any]:
    """The machine on which the figures were measured."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": model, "cpus": cpus, "system": platform.platform(), "python": platform.python_version()}


def case_record(case: Case, outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One case as plain data: every round, medians, ratios to the first row, targets."""
    base = outcomes[0].cost if outcomes and not outcomes[0].error else []
    rows = []
    for outcome in outcomes:
        cost = [] if outcome.error else outcome.cost
        middle = median(cost)
        rows.append(
            {
                "key": outcome.contender.key,
                "library": outcome.contender.package,
                "label": outcome.contender.label,
                "records": outcome.records,
                "seconds_per_record": cost,
                "median": None if math.isnan(middle) else middle,
                "per_second": 1 / middle if cost else None,
                "ratio": median(ratios(base, [cost])) if base and cost else None,
                "rss": median(outcome.rss) if outcome.rss else None,
                "error": outcome.error or None,
            }
        )
    targets = [
        {
            "what": v.target.what,
            "factor": v.target.factor,
            "at_most": v.target.at_most,
            "measure": v.target.measure,
            "ratio": v.ratio,
            "met": v.met,
        }
        for v in verdicts
    ]
    head = {"suite": case.suite, "shape": case.shape, "title": case.title, "unit": case.unit}
    return {**head, "rows": rows, "targets": targets}


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _factor(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


Table = tuple[str, list[str], list[list[str]]]


def case_table(record: Mapping[str, Any]) -> Table:
    """Title, column heads and rows of one case."""
    unit = record["unit"]
    memory = any(row["rss"] for row in record["rows"])
    heads = ["library", "way", f"median a {unit}", f"{unit}s a second", "time to first row's"]
    rows = []
    for row in record["rows"]:
        cells = [NAMES[row["library"]], row["label"]]
        if row["error"]:
            cells += ["failed", "", row["error"][:60]]
        else:
            cells += [_time(row["median"]), _rate(row["per_second"]), _factor(row["ratio"])]
        if memory:
            cells.append(f"{row['rss'] / 1e6:.1f} MB" if row["rss"] else "-")
        rows.append(cells)
    return f"{record['suite']}: {record['shape']}, {record['title']}", heads + ["peak memory"] * memory, rows


def target_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """All targets of the run, with the measurements."""
    rows = []
    for record in records:
        for target in record["targets"]:
            count = target["measure"] in ("records", "rate")
            show: Callable[[float | None], str] = _rate if count else _factor
            sign = "at most" if target["at_most"] else "at least"
            verdict = {True: "met", False: "not met", None: "not measured"}[target["met"]]
            wanted = f"{sign} {target['factor']:g}" + ("" if count else "x")
            place = [record["suite"], record["shape"], target["what"]]
            rows.append([*place, wanted, show(target["ratio"]), verdict])
    heads = ["suite", "shape", "what", "target", "measured", ""]
    return "targets (medians of the ratios of each round)", heads, rows


def print_table(table: Table, *, plain: bool = False) -> None:
    """Print a table with rich if it is installed, else in plain columns."""
    title, heads, rows = table
    if not plain:
        try:
            from rich.console import Console
            from rich.table import Table as RichTable
        except ImportError:
            pass
        else:
            pretty = RichTable(title=title, title_justify="left")
            for i, head in enumerate(heads):
                numeric = i > 1 and bool(rows) and rows[0][i][:1].isdigit()
                pretty.add_column(head, justify="right" if numeric else "left")
            for row in rows:
                pretty.add_row(*row)
            # Redirected output has no terminal width: use a width that truncates nothing.
            Console(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False).print(pretty)
            return
    widths = [max(len(str(line[i])) for line in [heads, *rows]) for i in range(len(heads))]
    print(title)
    for line in [heads, ["-" * width for width in widths], *rows]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print()


def plot(sweeps: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Throughput against batch size, record size and number of features, one panel each; log axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(str(point["panel"]) for point in sweeps))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(6 * len(panels), 5), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in sweeps:
            if point["panel"] != panel:
                continue
            for row in point["case"]["rows"]:
                if row["per_second"]:
                    name = f"{NAMES[row['library']]}: {row['label']}"
                    lines.setdefault(name, []).append((float(point["x"]), row["per_second"]))
        for name, places in lines.items():
            ours = name.startswith(NAMES["tfrecord"])
            axis.plot(*zip(*places, strict=True), marker="o", label=name, linewidth=2.5 if ours else 1.2)
        axis.set(xscale="log", yscale="log", xlabel=panel, ylabel="records per second (one CPU)")
        axis.grid(True, which="major", alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=max(1, len(labels)), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
