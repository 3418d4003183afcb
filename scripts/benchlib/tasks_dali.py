"""DALI's side: its CPU pipeline reads a file by a text index and parses; it checks no checksum."""

from __future__ import annotations

import os
import struct
import tempfile
from typing import Any

import nvidia.dali as dali  # type: ignore[import-not-found, unused-ignore]
import nvidia.dali.tfrecord as dali_record  # type: ignore[import-not-found, unused-ignore]
from nvidia.dali import fn, pipeline_def  # type: ignore[import-not-found, unused-ignore]

from benchlib.common import Run, Spec, Task

_DTYPE = {"bytes": dali_record.string, "float": dali_record.float32, "int": dali_record.int64}
_ZERO: dict[str, Any] = {"bytes": "", "float": 0.0, "int": 0}


def version() -> str:
    """DALI's version."""
    return str(dali.__version__)


def _text_index(path: str, out: str) -> int:
    count, size = 0, os.path.getsize(path)
    with open(path, "rb") as file, open(out, "w") as index:
        while file.tell() < size:
            start = file.tell()
            (length,) = struct.unpack("<Q", file.read(8))
            file.seek(start + length + 16)
            index.write(f"{start} {length + 16}\n")
            count += 1
    return count


def read(spec: Spec) -> Run:
    """Passes of ``fn.readers.tfrecord`` on the CPU, of whole batches."""
    folder = tempfile.TemporaryDirectory()
    index_path = os.path.join(folder.name, "text.idx")
    records = _text_index(spec["path"], index_path)
    wanted = spec.get("columns")
    features = {
        name: dali_record.FixedLenFeature(() if length == 1 else (length,), _DTYPE[kind], _ZERO[kind])
        for name, kind, length in spec["features"]
        if wanted is None or name in wanted
    }
    batch: int = min(spec["batch"], records)
    steps = records // batch

    @pipeline_def  # type: ignore[untyped-decorator, unused-ignore]
    def pipeline() -> tuple[Any, ...]:
        columns = fn.readers.tfrecord(path=spec["path"], index_path=index_path, features=features)
        return tuple(columns[name] for name in features)

    pipe: Any = pipeline(
        batch_size=batch, num_threads=spec.get("threads", 1), device_id=None, prefetch_queue_depth=1
    )
    pipe.build()

    def run() -> int:
        assert folder.name
        for _ in range(steps):
            pipe.run()
        return steps * batch

    return run


TASKS: dict[str, Task] = {"read": read}
