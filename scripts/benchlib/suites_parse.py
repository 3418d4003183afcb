"""Comparisons on parsing bytes in memory, and the sweeps for the plot."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from make_corpus import vector_shape, wide_shape

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan

TF_FORMS = ("fixed", "varlen", "ragged")
# Batches of about 4 MB, which two threads share.
SHARED = {"tab": 8192, "tok": 1024, "vec": 1024}
DECODE_TARGETS = {"small": 10.0, "tab": 5.0, "tok": 3.0, "ids": 3.0, "vec": 1.6, "img": 50.0}


def parsers(spec: dict[str, Any]) -> tuple[Contender, ...]:
    """All libraries that parse a batch in memory (and DALI, which only parses what it reads), on one CPU.

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
            for form in TF_FORMS
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
        yield Case("decode", shape.name, f"batches of {shape.batch:,}", parsers(spec), targets)
    yield from lists(plan)
    yield from sizes(plan)
    yield from threads(plan)
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


def lists(plan: Plan) -> Iterator[Case]:
    """Lists of bytes, as users have them, against the same bytes in one buffer, in batches of all sizes."""
    for shape in plan.chosen("small", "tab", "tok", "vec"):
        for size in (1, 32, 1024, 8192):
            if size > shape.records:
                break
            spec = plan.spec(shape, batch=size, limit=max(size, min(shape.records, 256 * size, 8192)))
            yield Case(
                "decode",
                shape.name,
                f"a list of {size:,}",
                (
                    Contender("list", "a list of bytes", "tfrecord", "decode", spec | {"source": "list"}),
                    Contender("buffer", "one buffer", "tfrecord", "decode", spec),
                ),
                (Target("a list costs what one buffer does", "list", ("buffer",), 1.25, at_most=True),),
            )


def sizes(plan: Plan) -> Iterator[Case]:
    """The same records in large batches, whose columns fit no near cache, and in small ones."""
    for shape in plan.chosen("small", "tab", "tok", "vec"):
        for form in ("fixed", "ragged"):
            small, large = (
                plan.spec(shape, batch=size, limit=min(shape.records, 8192))
                | {"source": "list", "form": form}
                for size in (1024, 8192)
            )
            yield Case(
                "decode",
                shape.name,
                f"batches of 8,192 beside 1,024, {form}",
                (
                    Contender("large", "batches of 8,192", "tfrecord", "decode", large),
                    Contender("small", "batches of 1,024", "tfrecord", "decode", small),
                ),
                (Target("large batches against small", "large", ("small",), 1.1, at_most=True),),
            )


def threads(plan: Plan) -> Iterator[Case]:
    """Two threads beside one: plain C, which shows what there is to gain; over large batches in memory, and
    over passes of batches of two sizes."""
    for shape in islice(plan.chosen("tab", "tok", "vec"), 1):
        spec = plan.spec(shape, limit=shape.batch)
        yield Case(
            "decode",
            shape.name,
            "threads, plain C",
            tuple(
                Contender(key, text, "numpy", "busy", spec | {"threads": number}, one_cpu=False)
                for number, key, text in ((1, "one", "1 thread"), (2, "two", "2 threads"))
            ),
            (Target("two threads of plain C against one", "two", ("one",), 1.8),),
        )
    for shape in plan.chosen("tab", "tok", "vec"):
        size = min(SHARED[shape.name], shape.records)
        passes = [("read", batch, "of a file") for batch in (shape.batch // 4, shape.batch)]
        for task, batch, what in (("decode", size, "in memory"), *passes):
            spec = plan.spec(shape, batch=batch, limit=8 * size)
            yield Case(
                "decode",
                shape.name,
                f"threads, batches of {batch:,} {what}",
                (
                    Contender("one", "1 thread", "tfrecord", task, spec, one_cpu=False),
                    Contender("two", "2 threads", "tfrecord", task, spec | {"threads": 2}, one_cpu=False),
                ),
                (Target("two threads against one", "two", ("one",), 1.6),),
            )


def _drawn(spec: dict[str, Any]) -> tuple[Contender, ...]:
    """One line of the plot for each library: its fastest method."""
    return tuple(c for c in parsers(spec) if c.key in ("ours", "tf_fixed", "bsl_schema", "dali"))


def sweeps(plan: Plan) -> Iterator[tuple[str, float, Case]]:
    """Parsing against batch size, record size and number of features: panel, x value, case."""
    tab = plan.shape("tab")
    for size in (1, 4, 16, 64, 256, 1024, 4096, 16384):
        if size > tab.records:
            break
        spec = plan.spec(tab, batch=size, limit=max(size, plan.some(min(16_384, 256 * size))))
        yield (
            "records in a batch",
            size,
            Case("plot", "tab", f"batches of {size:,}", _drawn(spec)),
        )
    for width in (1, 8, 64, 512, 4096, 32_768):
        shape = vector_shape(width, plan.some(min(16_384, max(256, (16 << 20) // width))))
        spec = plan.spec(shape, batch=min(1024, max(16, shape.records // 4)))
        yield (
            "floats in a record",
            width,
            Case("plot", "vec", f"{width:,} floats", _drawn(spec)),
        )
    for count in (1, 3, 10, 30, 100, 300, 1000):
        shape = wide_shape(count, plan.some(min(16_384, max(512, 1_000_000 // count))))
        spec = plan.spec(shape, batch=min(1024, shape.records))
        yield (
            "features in a record",
            count,
            Case("plot", "wide", f"{count:,} features", _drawn(spec)),
        )
