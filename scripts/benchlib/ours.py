"""What the tasks of this library share: its requests and readers, made from a spec."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

import indexer
import tfrecord
from benchlib.common import Run, Spec

DTYPE_NAMES = {"bytes": "bytes", "float": "float32", "int": "int64"}


def features_of(spec: Spec) -> dict[str, Any]:
    wanted = spec.get("columns")
    out: dict[str, Any] = {}
    for name, kind, length in spec["features"]:
        if wanted is not None and name not in wanted:
            continue
        if spec.get("form", "fixed") == "fixed":
            out[name] = tfrecord.FixedLenFeature(() if length == 1 else (length,), DTYPE_NAMES[kind])
        else:
            out[name] = tfrecord.RaggedFeature(DTYPE_NAMES[kind])
    return out


def own_index(path: str) -> tuple[tempfile.TemporaryDirectory[str], str]:
    folder = tempfile.TemporaryDirectory()
    index_path = os.path.join(folder.name, "data.tfindex")
    indexer.build_index(path, index_path)
    return folder, index_path


def reader_of(spec: Spec, **options: Any) -> tuple[Any, Any]:
    """The reader of a request, and an object that must live as long as the reader."""
    keep: Any = None
    index: Any = False
    if spec.get("index"):
        keep, index = own_index(spec["path"])
    return tfrecord.TFRecordReader(spec["path"], index=index, **options), keep


def holding(keep: Any, run: Run) -> Run:
    """``run``, which also keeps a temporary folder alive."""

    def held() -> int | dict[str, Any]:
        return run() if keep is None or keep.name else 0

    return held


def rows_of(batches: Iterable[Any]) -> int:
    return sum(len(batch) if hasattr(batch, "buffers") else batch.num_rows for batch in batches)
