"""Comparisons on files: indexes, raw records, columns, random positions, writing."""

from __future__ import annotations

from collections.abc import Iterator

from make_corpus import Shape, many_files

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan


def _index_builds(plan: Plan) -> Iterator[Case]:
    for shape in plan.chosen("small", "tab", "img"):
        # Index files go to memory if the system has such a folder: a build waits for the disk twice (fsync of
        # the file and of its folder), which measures the disk. One row and one target show that too.
        disk = plan.spec(shape)
        spec = disk | {"in_memory": True}
        contenders = [
            Contender("ours", "build_index, validated", "tfrecord", "index", spec),
            Contender("disk", "build_index, validated, synced to disk", "tfrecord", "index", disk),
            Contender("text", "build_index, validated, text", "tfrecord", "index", spec | {"format": "text"}),
            Contender("schema", "build_index, with schema", "tfrecord", "index", spec | {"schema": True}),
            Contender("lineage", "create_index, not validating", "lineage", "index", spec),
        ]
        targets = [
            Target("validated index build", "ours", ("lineage",), 20),
            Target("validated index build, synced to disk", "disk", ("lineage",), 20),
        ]
        if shape.name == "img":
            # The target compares passes over a file in the page cache: both map it anew. The sum over an
            # array that is already in memory shows what the map itself costs.
            for source, label in (("map", "sum as uint64, from a map"), ("memory", "sum as uint64, array")):
                more = spec | {"source": source}
                contenders.append(Contender(f"sum_{source}", label, "numpy", "sum", more))
            targets = [Target("validated index build against a NumPy sum", "ours", ("sum_map",), 0.5)]
        yield Case("index", shape.name, "build an index", tuple(contenders), tuple(targets))


def _raw_reads(plan: Plan) -> Iterator[Case]:
    for shape in plan.chosen("small", "tab"):
        spec = plan.spec(shape)
        part = spec | {"limit": plan.some(20_000)}
        tf = [
            ("tf_auto", "TFRecordDataset.batch", {"autotune": True}),
            ("tf_fixed", "TFRecordDataset.batch, no autotuning", {"autotune": False}),
            ("tf_ahead", "TFRecordDataset.batch.prefetch", {"autotune": True, "prefetch": True}),
        ]
        contenders = (
            Contender("batches", "batches, verified", "tfrecord", "raw", spec),
            Contender("indexed", "batches, verified, index", "tfrecord", "raw", spec | {"index": True}),
            Contender("iterator", "tfrecord_iterator, verified", "tfrecord", "raw_one", spec),
            Contender("reader", "for record in reader, verified", "tfrecord", "iterate", spec),
            *(Contender(k, label, "tensorflow", "raw", spec | more, one_cpu=False) for k, label, more in tf),
            Contender(
                "tf_one", "TFRecordDataset, record by record", "tensorflow", "raw_one", part, one_cpu=False
            ),
            Contender("lineage", "tfrecord_iterator, unverified", "lineage", "raw_one", part),
        )
        best = tuple(key for key, _, _ in tf)
        targets = (
            Target("raw records in batches", "batches", best, 5),
            Target("raw records in batches, index", "indexed", best, 5),
            Target("raw records one by one, iterator", "iterator", best, 2),
            Target("raw records one by one, reader", "reader", best, 2),
        )
        yield Case("index", shape.name, "raw records in order", contenders, targets)


def index(plan: Plan) -> Iterator[Case]:
    """Index builds, raw reads, opening a large index, many files under a low limit."""
    yield from _index_builds(plan)
    yield from _raw_reads(plan)
    large = plan.shape("tiny")
    few = Shape("tiny", 1_000, ())
    contenders = tuple(
        Contender(
            key,
            f"index of {s.records:,} records",
            "tfrecord",
            "open",
            plan.spec(s, position=s.records // 2),
            fresh=True,
        )
        for key, s in (("large", large), ("few", few))
    )
    targets = (
        Target("time to open and read one", "large", ("few",), 2, at_most=True),
        Target("memory to open and read one", "large", ("few",), 2, at_most=True, measure="rss"),
    )
    yield Case("index", "tiny", "open an index, read one record", contenders, targets, unit="open")
    files = max(300, int(2_000 * plan.scale))
    spec = {
        "path": str(many_files(plan.folder, files, plan.seed)),
        "files": files,
        "open_files": 256,
        "seed": plan.seed,
    }
    yield Case(
        "index",
        "many",
        f"{files:,} files, 256 may be open",
        (Contender("ours", "random order", "tfrecord", "many", spec, fresh=True),),
        (Target("files read", "ours", (), files, measure="records"),),
        unit="file",
    )


def read(plan: Plan) -> Iterator[Case]:
    """A file to columns, both checksums verified (DALI and the lineage verify none)."""
    for shape in plan.chosen("small", "tab", "tok", "ids", "vec", "img"):
        spec = plan.spec(shape)
        part = spec | {"limit": plan.some(max(200, shape.records // 20))}
        pinned = {"autotune": False, "one_thread": True}
        contenders = (
            Contender("ours", "batches of columns, no index", "tfrecord", "read", spec),
            Contender("indexed", "batches of columns, index", "tfrecord", "read", spec | {"index": True}),
            Contender("dicts", "tfrecord_loader, dicts", "tfrecord", "load", part),
            Contender("tf", "tf.data batch, parse", "tensorflow", "read", spec | pinned),
            Contender("tf_auto", "tf.data batch, parse, autotuning", "tensorflow", "read", spec),
            Contender(
                "tf_all",
                "tf.data, all CPUs, parallel, prefetch",
                "tensorflow",
                "read",
                spec | {"parallel": True},
                one_cpu=False,
            ),
            Contender("dali", "readers.tfrecord, unverified", "dali", "read", spec),
            Contender("lineage", "tfrecord_loader, unverified", "lineage", "read", part),
        )
        factor = 3.5 if shape.name in ("tok", "ids") else 5.0
        targets = (
            Target("file to columns", "ours", ("tf", "tf_auto"), factor),
            Target("file to columns, index", "indexed", ("tf", "tf_auto"), factor),
        )
        yield Case("read", shape.name, f"file to columns, batches of {shape.batch:,}", contenders, targets)


def random(plan: Plan) -> Iterator[Case]:
    """256 random positions at a time, raw and decoded, against array_record's raw records."""
    options = (("ar", "group_size:1"), ("ar_plain", "group_size:1,uncompressed"))
    # array_record reads with a pool of threads. The target is for one CPU; its best is shown too.
    for shape in plan.chosen("tab", "small", "tok", "ids", "vec", "img"):
        spec = plan.spec(
            shape, take=256, draws=max(2, int(plan.scale * (20 if shape.name == "img" else 100)))
        )
        contenders = (
            Contender("raw", "read_raw", "tfrecord", "random", spec | {"raw": True}),
            Contender("columns", "read, to columns", "tfrecord", "random", spec | {"raw": False}),
            *(
                Contender(key, f"__getitems__, {text}", "array_record", "random", spec | {"options": text})
                for key, text in options
            ),
            *(
                Contender(
                    f"{key}_all",
                    f"__getitems__, {text}, all CPUs",
                    "array_record",
                    "random",
                    spec | {"options": text},
                    one_cpu=False,
                )
                for key, text in options
            ),
        )
        against = tuple(key for key, _ in options)
        targets = (
            Target("256 random records, raw", "raw", against, 20),
            Target("256 random records, to columns", "columns", against, 20),
        )
        yield Case(
            "random", shape.name, "256 random positions", contenders, targets if shape.name == "tab" else ()
        )


def write(plan: Plan) -> Iterator[Case]:
    """Columns or dicts to a file (in memory if the system has such a folder, to avoid waiting for a disk)."""
    for shape in plan.chosen("tab", "small", "tok", "ids", "vec", "img"):
        spec = plan.spec(shape, limit=plan.some(min(shape.records, 20_000)), in_memory=True)
        part = spec | {"limit": plan.some(max(200, min(shape.records // 20, 5_000)))}
        contenders = (
            Contender("columns", "write_batch", "tfrecord", "write_columns", spec),
            Contender(
                "indexed", "write_batch, index=True", "tfrecord", "write_columns", spec | {"index": True}
            ),
            Contender("records", "write, one dict a record", "tfrecord", "write_records", part),
            Contender("lineage", "TFRecordWriter.write", "lineage", "write", part),
            Contender("tf", "tf.train.Example, TFRecordWriter", "tensorflow", "write", part),
        )
        targets = (
            Target("write from columns", "columns", ("lineage",), 20),
            Target("write record by record", "records", ("lineage",), 3),
        )
        yield Case("write", shape.name, "write a file", contenders, targets if shape.name == "tab" else ())
