"""How the cost of each step grows: with records, features, shards and threads.

Everything runs in this process and is timed by its CPU time, so that other processes disturb little; threads
are timed by the clock. Each figure is the best of several rounds. A step whose cost per unit of work is twice
that of the sizes before it is marked.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from make_corpus import many_files, payloads, wide_shape

_BATCH = 1024
_DRAWN = 256
# Below this time a figure is that of the clock and of the call.
_LEAST = 2e-3
_TWICE = 2.0


class Point(NamedTuple):
    """The seconds of one step at one size, for so many units of work."""

    panel: str
    step: str
    size: int
    seconds: float
    units: int

    @property
    def each(self) -> float:
        """Nanoseconds per unit."""
        return self.seconds / self.units * 1e9


def _best(run: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time) -> float:
    """The least time of several runs; short ones are repeated until they can be measured."""
    found = float("inf")
    for _ in range(rounds):
        start, count = clock(), 0
        while True:
            run()
            count += 1
            spent = clock() - start
            if spent >= _LEAST:
                break
        found = min(found, spent / count)
    return found


def measure(
    folder: Path, most: dict[str, int], rounds: int = 3, tell: Callable[[str], object] = lambda text: None
) -> Iterator[Point]:
    """The points of all panels; ``most`` is the largest size of each."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    folder.mkdir(parents=True, exist_ok=True)
    for panel, steps in (("records", _records), ("features", _features), ("shards", _shards)):
        for size in _sizes(most[panel]):
            for step, units, run in steps(folder, size):
                tell(f"{panel}: {size:,}: {step}")
                yield Point(panel, step, size, _best(run, rounds), units)
    for threads in range(1, most["threads"] + 1):
        for step, units, run in _threads(folder, threads):
            tell(f"threads: {threads}: {step}")
            yield Point("threads", step, threads, _best(run, rounds, time.perf_counter), units)


def _sizes(most: int) -> list[int]:
    """Powers of ten up to ``most``, and ``most`` itself."""
    return sorted({10**power for power in range(9) if 10**power < most} | {most})


_Steps = Iterator[tuple[str, int, Callable[[], object]]]


def _rows(batches: Any) -> int:
    return sum(len(batch) for batch in batches)


def _table(folder: Path, records: int) -> Path:
    """A file of records with one number each, and its index."""
    import tfrecord

    path = folder / f"growth-{records}.tfrecord"
    if not path.exists():
        step = 1 << 18
        with tfrecord.TFRecordWriter(path, index=True) as writer:
            for start in range(0, records, step):
                writer.write_batch({"number": np.arange(start, min(start + step, records))})
    return path


def _records(folder: Path, records: int) -> _Steps:
    """Passes over a whole file, and reads that should cost the same in a file of any size."""
    import tfrecord

    path = _table(folder, records)
    features = {"number": tfrecord.FixedLenFeature((), "int64")}
    reader = tfrecord.TFRecordReader(path, features=features)
    drawn = np.random.default_rng(0).integers(0, records, (64, _DRAWN))
    turns = iter(range(1 << 62))
    yield "open with an index, read one record", 1, lambda: tfrecord.TFRecordReader(path)[records // 2]
    yield f"read {_DRAWN} random records", _DRAWN, lambda: reader.read(drawn[next(turns) % 64])
    yield "validated index build", records, lambda: tfrecord.build_index(path, f"{path}.again")
    yield "header scan", records, lambda: len(tfrecord.TFRecordReader(path, index=False))
    yield "epoch in batches", records, lambda: _rows(reader.batches(_BATCH))
    if records <= 10**7:  # one cache miss a record: ten million take ten seconds
        yield (
            "shuffled epoch in batches",
            records,
            lambda: _rows(reader.batches(_BATCH, shuffle=True, seed=0)),
        )


def _features(folder: Path, features: int) -> _Steps:
    """Batches of 256 records, whose columns have one number each."""
    import tfrecord

    count = 256
    records = list(payloads(wide_shape(features, count)))
    found = tfrecord.parse_example(records[:1])
    specs = {
        name: tfrecord.FixedLenFeature((), "int64" if column.values.dtype.kind == "i" else "float32")
        for name, column in found.items()
    }
    values = count * features
    yield "parse_example, every feature named", values, lambda: tfrecord.parse_example(records, specs)
    yield "parse_example, nothing named", values, lambda: tfrecord.parse_example(records)
    yield "parse_single_example", features, lambda: tfrecord.parse_single_example(records[0], specs)
    batch = dict(tfrecord.parse_example(records, specs).items())
    yield "encode columns", values, lambda: _encoded(folder, batch)


def _encoded(folder: Path, batch: dict[str, Any]) -> None:
    import tfrecord

    with tfrecord.TFRecordWriter(folder / "growth-encoded.tfrecord") as writer:
        writer.write_batch(batch)


def _shards(folder: Path, shards: int) -> _Steps:
    """Files of one record each, with and without indexes. The work of each step is one unit per file."""
    import tfrecord

    plain = many_files(folder, shards)
    indexed = folder / f"growth-indexed-{shards}"
    if not indexed.exists():
        indexed.mkdir()
        for file in plain.iterdir():
            (indexed / file.name).hardlink_to(file)
        tfrecord.build_indexes(indexed)
    reader = tfrecord.TFRecordReader(indexed)
    kept = pickle.dumps(reader)
    yield "open", shards, lambda: tfrecord.TFRecordReader(plain)
    yield "open with indexes", shards, lambda: tfrecord.TFRecordReader(indexed)
    yield "open with indexes, read one record", shards, lambda: tfrecord.TFRecordReader(indexed)[0]
    yield "pickle", shards, lambda: pickle.dumps(reader)
    yield "unpickle", shards, lambda: pickle.loads(kept)
    positions = np.random.default_rng(0).integers(0, shards, _DRAWN)
    yield f"read {_DRAWN} random records", min(shards, _DRAWN), lambda: reader.read(positions)


def _threads(folder: Path, threads: int) -> _Steps:
    """Batches of 4 MB, by the clock. Threads beyond the CPUs must not cost anything."""
    import tfrecord

    vectors = {"vector": np.random.default_rng(0).standard_normal((_BATCH, 1024), np.float32)}
    path = folder / "growth-vectors.tfrecord"
    if not path.exists():
        with tfrecord.TFRecordWriter(path, index=True) as writer:
            for _ in range(16):
                writer.write_batch(vectors)
    features = {"vector": tfrecord.FixedLenFeature((1024,), "float32")}
    reader = tfrecord.TFRecordReader(path, features=features, num_threads=threads)
    records = reader.read_raw(range(_BATCH))
    yield "epoch in batches", 16 * _BATCH, lambda: _rows(reader.batches(_BATCH))
    yield (
        "parse_example",
        _BATCH,
        lambda: tfrecord.parse_example(records, features, num_threads=threads),
    )


def faster_than_work(points: list[Point]) -> list[tuple[Point, float]]:
    """Each largest size whose cost per unit is more than twice the least of smaller sizes, and the factor."""
    found = []
    for key in dict.fromkeys((point.panel, point.step) for point in points):
        *smaller, largest = (point for point in points if (point.panel, point.step) == key)
        least = min((point.each for point in smaller), default=largest.each)
        if largest.each > _TWICE * least:
            found.append((largest, largest.each / least))
    return found


def lines(points: list[Point]) -> list[str]:
    """A table for each panel: nanoseconds per unit of each step at each size."""
    out = []
    for panel in dict.fromkeys(point.panel for point in points):
        chosen = [point for point in points if point.panel == panel]
        sizes = sorted({point.size for point in chosen})
        out += [f"growth: {panel}, ns per unit", "  " + " " * 38 + "".join(f"{size:>13,}" for size in sizes)]
        for step in dict.fromkeys(point.step for point in chosen):
            each = {point.size: point.each for point in chosen if point.step == step}
            cells = "".join(f"{each[size]:>13,.0f}" if size in each else f"{'-':>13}" for size in sizes)
            out.append(f"  {step:<38}{cells}")
        out.append("")
    marked = faster_than_work(points)
    for point, factor in marked:
        out.append(
            f"grows: {point.panel} {point.size:,}: {point.step}: {factor:.1f} times the least per unit"
        )
    return out if marked else [*out, "no step grows faster than its work"]


def plot(points: list[Point], path: Path) -> None:
    """One picture of all panels: seconds over the size, both in powers of ten."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys(point.panel for point in points))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.8), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        chosen = [point for point in points if point.panel == panel]
        for step in dict.fromkeys(point.step for point in chosen):
            line = [point for point in chosen if point.step == step]
            axis.plot([p.size for p in line], [p.seconds for p in line], marker="o", ms=3, lw=1, label=step)
        if panel == "threads":
            axis.set_xticks(sorted({point.size for point in chosen}))
        else:
            axis.set_xscale("log")
        axis.set(yscale="log", xlabel=panel, ylabel="seconds" if panel == panels[0] else "")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=72)
    pyplot.close(figure)
