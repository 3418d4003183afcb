"""What each subcommand compares, and which ratios were promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from make_corpus import SHAPES, Shape, corpus_file, many_files, vector_shape, wide_shape

from benchlib.common import drop_pages
from benchlib.harness import Case, Contender, Target

TF_FORMS = ("fixed", "varlen", "ragged")


@cache
def warm(path: Path) -> None:
    """Bring a file into the page cache as a reader of files does, from its start.

    How a file got there decides how large the pieces are in which the kernel holds it, and with that the
    speed of everybody who maps or reads it, by a factor of two: so it is dropped and read back first.
    """
    with suppress(OSError):  # it stays in memory where another process maps it
        drop_pages(str(path))
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


@dataclass(frozen=True)
class Plan:
    """Where the files are and how much of everything is wanted."""

    folder: Path
    shapes: tuple[str, ...]
    scale: float = 1.0
    seed: int = 0

    def shape(self, name: str) -> Shape:
        """The shape at this plan's size."""
        return SHAPES[name].scaled(self.scale)

    def some(self, count: int) -> int:
        """``count`` at this plan's size, for work of which a part is enough."""
        return max(64, int(count * self.scale))

    def spec(self, shape: Shape, **more: Any) -> dict[str, Any]:
        """The fields of a request about one shape's file."""
        path = corpus_file(self.folder, shape, self.seed)
        warm(path)
        features = [[column.name, column.kind, column.length] for column in shape.columns]
        base = {
            "path": str(path),
            "records": shape.records,
            "bytes": path.stat().st_size,
            "features": features,
        }
        return {**base, "batch": shape.batch, "seed": self.seed, **more}

    def chosen(self, *names: str) -> Iterator[Shape]:
        """Those of the named shapes that were asked for."""
        return (self.shape(name) for name in names if name in self.shapes)


def _index_builds(plan: Plan) -> Iterator[Case]:
    for shape in plan.chosen("small", "tab", "img"):
        # Index files go to memory where the system has such a folder: a build waits for the disk twice (fsync
        # of the file and of its folder), which tells of the disk. One row and one target keep that in view.
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
            # The promise compares passes over a file in page cache: both map it afresh. A sum over an array
            # that is in memory already shows what the map itself costs.
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


DECODE_TARGETS = {"small": 10.0, "tab": 5.0, "tok": 3.0, "ids": 3.0, "vec": 1.6, "img": 50.0}


def parsers(plan: Plan, spec: dict[str, Any], tf_forms: tuple[str, ...] = TF_FORMS) -> tuple[Contender, ...]:
    """Everybody who parses a batch in memory (and DALI, which only parses what it reads), on one CPU.

    Each gets the batch in its own container: a BytesColumn, a string tensor, a list of bytes.
    """
    return (
        Contender("ours", "parse_example", "tfrecord", "decode", spec),
        Contender("list", "parse_example, list of bytes", "tfrecord", "decode", spec | {"source": "list"}),
        Contender("ragged", "parse_example, ragged", "tfrecord", "decode", spec | {"form": "ragged"}),
        *(
            Contender(
                f"tf_{form}", f"tf.io.parse_example, {form}", "tensorflow", "decode", spec | {"form": form}
            )
            for form in tf_forms
        ),
        Contender("bsl", "RecordBatch decoder", "tfx_bsl", "decode", spec),
        Contender(
            "bsl_schema", "RecordBatch decoder, schema", "tfx_bsl", "decode", spec | {"form": "schema"}
        ),
        Contender("dali", "readers.tfrecord from the file", "dali", "read", spec),
    )


def decode(plan: Plan) -> Iterator[Case]:
    """Serialized records in memory to columns; one record to a dict; one column of many."""
    for shape in plan.chosen("small", "tab", "tok", "ids", "vec", "img"):
        spec = plan.spec(shape, limit=16 * shape.batch if shape.name != "img" else 4 * shape.batch)
        best = tuple(f"tf_{form}" for form in TF_FORMS)
        targets = (
            Target("parse_example against tf.io", "ours", best, DECODE_TARGETS[shape.name]),
            Target("parse_example of a list against tf.io", "list", best, DECODE_TARGETS[shape.name]),
            Target("parse_example of a list against tfx-bsl", "list", ("bsl", "bsl_schema"), 1),
            Target("parse_example against DALI", "ours", ("dali",), 1),
        )
        yield Case("decode", shape.name, f"batches of {shape.batch:,}", parsers(plan, spec), targets)
    for shape in plan.chosen("tab"):
        spec = plan.spec(shape, limit=plan.some(5_000))
        yield Case(
            "decode",
            shape.name,
            "one record to a dict",
            (
                Contender("ours", "parse_single_example", "tfrecord", "decode_one", spec),
                Contender(
                    "all",
                    "parse_single_example, undescribed",
                    "tfrecord",
                    "decode_one",
                    spec | {"described": False},
                ),
                Contender("lineage", "ParseFromString and dict", "lineage", "decode_one", spec),
                Contender("tf", "tf.io.parse_single_example", "tensorflow", "decode_one", spec),
            ),
            (Target("one record to a dict", "ours", ("lineage",), 6),),
        )
        spec = plan.spec(shape, limit=16 * shape.batch)
        one = spec | {"columns": [shape.columns[len(shape.columns) // 2].name]}
        yield Case(
            "decode",
            shape.name,
            "1 of 40 columns",
            (
                Contender("one", "1 of 40", "tfrecord", "decode", one),
                Contender("all", "all 40", "tfrecord", "decode", spec),
                Contender("tf", "tf.io.parse_example, 1 of 40", "tensorflow", "decode", one),
                Contender(
                    "bsl", "RecordBatch decoder, 1 of 40", "tfx_bsl", "decode", one | {"form": "schema"}
                ),
            ),
            (Target("1 of 40 columns against all 40", "one", ("all",), 3),),
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
    # array_record reads with a pool of threads; the promise is about one CPU, its best is shown too.
    for shape in plan.chosen("tab", "small", "tok", "ids", "vec", "img"):
        spec = plan.spec(shape, take=256, draws=20 if shape.name == "img" else plan.some(100))
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
    """Columns or dicts to a file (in memory where the system has such a folder: no waiting for a disk)."""
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


def _cold_reads(plan: Plan) -> Iterator[Case]:
    for shape in plan.chosen("tab", "img"):
        spec = plan.spec(shape, batch=1024 if shape.name == "tab" else 64)
        contenders, targets = [], []
        for through, label in (("torch", "dataset"), ("reader", "reader's batches")):
            for ahead in (True, False):
                key = f"{through}_{'ahead' if ahead else 'without'}"
                text = f"{label}, shuffled, {'' if ahead else 'no '}readahead"
                more = spec | {"readahead": ahead, "through": through}
                contenders.append(Contender(key, text, "tfrecord", "cold", more, fresh=True))
            what = f"cold shuffled {through}, readahead against none"
            targets.append(Target(what, f"{through}_ahead", (f"{through}_without",), 2))
        yield Case("torch", shape.name, "cold page cache", tuple(contenders), tuple(targets))


SUITES: dict[str, Callable[[Plan], Iterator[Case]]] = {
    "index": index,
    "decode": decode,
    "read": read,
    "random": random,
    "write": write,
    "torch": torch,
}


def sweeps(plan: Plan) -> Iterator[tuple[str, float, Case]]:
    """Parsing against batch size, record size and number of features: panel, place on its axis, case."""
    tab = plan.shape("tab")
    for size in (1, 4, 16, 64, 256, 1024, 4096, 16384):
        spec = plan.spec(tab, batch=size, limit=plan.some(min(16_384, 256 * size)))
        yield (
            "records in a batch",
            size,
            Case("plot", "tab", f"batches of {size:,}", parsers(plan, spec, ("fixed",))),
        )
    for width in (1, 8, 64, 512, 4096, 32_768):
        shape = vector_shape(width, plan.some(min(16_384, max(256, (16 << 20) // width))))
        spec = plan.spec(shape, batch=min(1024, max(16, shape.records // 4)))
        yield (
            "floats in a record",
            width,
            Case("plot", "vec", f"{width:,} floats", parsers(plan, spec, ("fixed",))),
        )
    for count in (1, 3, 10, 30, 100, 300, 1000):
        shape = wide_shape(count, plan.some(min(16_384, max(512, 1_000_000 // count))))
        spec = plan.spec(shape, batch=min(1024, shape.records))
        yield (
            "features in a record",
            count,
            Case("plot", "wide", f"{count:,} features", parsers(plan, spec, ("fixed",))),
        )
