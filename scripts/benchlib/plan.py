"""The files of a run, and how much work it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from make_corpus import SHAPES, Shape, corpus_file

from benchlib.common import drop_pages


@cache
def warm(path: Path) -> None:
    """Load a file into the page cache by reading it from the start.

    The way in which a file was loaded decides the size of the chunks in which the kernel holds it. This
    changes the speed of every later map or read by up to a factor of two. So the file is dropped and read
    back first.
    """
    with suppress(OSError):  # it stays in memory if another process maps it
        drop_pages(str(path))
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


@dataclass(frozen=True)
class Plan:
    """The folder of the files, and the size of the work."""

    folder: Path
    shapes: tuple[str, ...]
    scale: float = 1.0
    seed: int = 0

    def shape(self, name: str) -> Shape:
        """The shape at this plan's size."""
        return SHAPES[name].scaled(self.scale)

    def some(self, count: int) -> int:
        """``count`` scaled to this plan, for work that may be reduced."""
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
        """The requested shapes among the named ones."""
        return (self.shape(name) for name in names if name in self.shapes)
