"""What is compared of compressed files: random records, scans, and threads that share one file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from make_corpus import corpus_file, vector_shape

from benchlib.harness import Case, Contender, Target
from benchlib.plan import Plan, warm

# 200 MB of floats, of which gzip leaves 183 MB.
_RECORDS = 48_000
_TAKE = 256


def compressed(plan: Plan) -> Iterator[Case]:
    """Random records of a gzip file, a scan with isal and with zlib, and one file in two threads."""
    records = plan.some(_RECORDS)
    path = _packed(corpus_file(plan.folder, vector_shape(1024, records), plan.seed))
    warm(path)
    spec = {"path": str(path), "records": records, "seed": plan.seed}
    yield _case(
        "256 random records",
        [
            ("points", "through points", "compressed_random", {"access": "points"}),
            ("points_zlib", "through points, zlib", "compressed_random", {"access": "points", "isal": False}),
            ("spool", "from the spool, with filling it", "compressed_random", {"access": "spool"}),
        ],
        spec | {"take": _TAKE, "draws": 1},
        # 256 records in a second.
        (Target("random records of a gzip file a second", "points", (), _TAKE, measure="rate"),),
    )
    yield _case(
        "a scan",
        [
            ("isal", "isal", "compressed_scan", {}),
            ("zlib", "zlib", "compressed_scan", {"isal": False}),
        ],
        spec,
        (Target("a scan with isal", "isal", ("zlib",), 1.6),),
    )
    yield _case(
        "one file in threads",
        [
            ("two", "2 threads, each half of the file", "compressed_halves", {"threads": 2}),
            ("one", "1 thread", "compressed_halves", {"threads": 1}),
        ],
        spec,
        (Target("two threads over one gzip file", "two", ("one",), 1.7),),
        one_cpu=False,
    )


def _case(
    title: str,
    rows: list[tuple[str, str, str, dict[str, Any]]],
    spec: dict[str, Any],
    targets: tuple[Target, ...],
    *,
    one_cpu: bool = True,
) -> Case:
    contenders = tuple(
        Contender(key, label, "tfrecord", task, spec | more, one_cpu=one_cpu)
        for key, label, task, more in rows
    )
    return Case("compressed", "vec", title, contenders, targets)


def _packed(plain: Path) -> Path:
    """The file as one gzip member, as any writer makes it."""
    target = plain.with_name(f"{plain.name}.gz")
    if not target.exists():
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        with plain.open("rb") as source, partial.open("wb") as out:
            while piece := source.read(1 << 20):
                out.write(packer.compress(piece))
            out.write(packer.flush())
        partial.replace(target)
    return target
