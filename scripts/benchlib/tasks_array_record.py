"""array_record's side: the same payloads in its own file, read at random positions."""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from typing import Any

from array_record.python import array_record_module  # type: ignore[import-not-found, unused-ignore]
from array_record.python.array_record_data_source import (  # type: ignore[import-not-found, unused-ignore]
    ArrayRecordDataSource,
)

from benchlib.common import Run, Spec, Task, draws, read_payloads


def version() -> str:
    """array_record's version."""
    return importlib.metadata.version("array_record")


def random(spec: Spec) -> Run:
    """``ArrayRecordDataSource.__getitems__`` of each list of positions."""
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "data.array_record")
    writer: Any = array_record_module.ArrayRecordWriter(path, spec["options"])
    for payload in read_payloads(spec["path"]):
        writer.write(payload)
    writer.close()
    source: Any = ArrayRecordDataSource([path])
    positions = draws(spec)

    def run() -> int:
        assert folder.name
        return sum(len(source.__getitems__(take)) for take in positions)

    return run


TASKS: dict[str, Task] = {"random": random}
