#!/usr/bin/env python3
"""Make TFRecord files with the benchmark's shapes; the same seed gives the same bytes.

This script has its own encoder (numpy, without protobuf or the library's writer), so that the code under test
does not also make the input. It needs only numpy and crc32c.

    python scripts/make_corpus.py --out FOLDER [--shapes small,tab] [--scale 0.1] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

CHUNK = 2048  # records encoded at a time; bounds memory at a few tens of MB for every shape but `img`
WRITE_SIZE = 1 << 20  # aligned writes, like those of a copy tool
_MASK_DELTA = 0xA282EAD8
_KIND_TAG = {"bytes": 0x0A, "float": 0x12, "int": 0x1A}


@dataclass(frozen=True)
class Column:
    """One feature: its key, kind (``bytes``, ``float``, ``int``) and how many values each record has."""

    name: str
    kind: str
    length: int = 1
    low: int = 0  # integers are drawn from [low, high); byte strings have a length in this range
    high: int = 100


@dataclass(frozen=True)
class Shape:
    """A named type of record, and how many of them the full-size file holds."""

    name: str
    records: int
    columns: tuple[Column, ...]
    batch: int = 1024

    def scaled(self, scale: float) -> Shape:
        """The same shape with ``scale`` times the records, at least 64."""
        return replace(self, records=max(64, int(self.records * scale)))


def _tab_columns() -> tuple[Column, ...]:
    # Vocabularies as in click logs: some ids take one byte, most take two or three.
    vocabulary = [int(3 * 1.7**i) for i in range(26)]
    floats = [Column(f"f{i:02d}", "float") for i in range(13)]
    ints = [Column(f"i{i:02d}", "int", high=size) for i, size in enumerate(vocabulary)]
    return (*floats, *ints, Column("label", "int", high=2))


def vector_shape(width: int, records: int) -> Shape:
    """Records of one float list of ``width`` values."""
    return Shape("vec", records, (Column("vector", "float", width),))


def wide_shape(features: int, records: int) -> Shape:
    """Records of ``features`` features of one value, two floats to one int."""
    kinds = ("float", "float", "int")
    columns = tuple(Column(f"feature_{i:04d}", kinds[i % 3], high=10_000) for i in range(features))
    return Shape("wide", records, columns)


SHAPES: dict[str, Shape] = {
    "small": Shape("small", 500_000, (Column("value", "bytes", low=4, high=13),)),
    "tab": Shape("tab", 100_000, _tab_columns()),
    "tok": Shape(
        "tok",
        20_000,
        (Column("input_ids", "int", 1024, high=50_257), Column("attention_mask", "int", 1024, high=2)),
    ),
    "vec": vector_shape(1024, 30_000),
    "img": Shape(
        "img",
        3_000,
        (
            Column("image", "bytes", low=20_000, high=180_000),
            Column("height", "int", high=4_000),
            Column("width", "int", high=4_000),
            Column("label", "int", high=1_000),
            Column("score", "float"),
            Column("name", "bytes", low=8, high=24),
        ),
        batch=256,
    ),
    # More than the five main shapes. `ids` is `tok` without its list of one-byte values.
    "ids": Shape(
        "ids",
        20_000,
        (Column("input_ids", "int", 1024, high=50_257), Column("labels", "int", 1024, high=50_257)),
    ),
    "wide": wide_shape(1000, 2_000),
    "tiny": Shape("tiny", 10_000_000, ()),
}
MAIN_SHAPES = ("small", "tab", "tok", "vec", "img")


def masked_crc(data: bytes) -> int:
    """The format's masked CRC-32C of ``data``."""
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame(payload: bytes) -> bytes:
    """``payload`` as one record of a TFRecord file."""
    head = struct.pack("<Q", len(payload))
    return b"".join(
        (head, struct.pack("<I", masked_crc(head)), payload, struct.pack("<I", masked_crc(payload)))
    )


def varint(value: int) -> bytes:
    """One unsigned base-128 varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_rows(values: npt.NDArray[np.int64]) -> list[bytes]:
    """Each row of a 2-D array of nonnegative integers as the concatenated bytes of its varints."""
    flat = values.reshape(-1).astype(np.uint64)
    sizes = np.ones(flat.shape, np.int64)
    for bits in range(7, 64, 7):
        sizes += flat >= np.uint64(1 << bits)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for byte in range(int(sizes.max(initial=0))):
        at = np.flatnonzero(sizes > byte)
        part = (flat[at] >> np.uint64(7 * byte)).astype(np.uint8) & np.uint8(0x7F)
        part |= np.where(sizes[at] > byte + 1, 0x80, 0).astype(np.uint8)
        out[starts[at] + byte] = part
    data = out.tobytes()
    cuts = [0, *ends.reshape(values.shape)[:, -1].tolist()]
    return [data[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def _delimited(tag: int, body: bytes) -> bytes:
    return bytes((tag,)) + varint(len(body)) + body


def _entry(name: bytes, kind: str, list_body: bytes) -> bytes:
    feature = _delimited(_KIND_TAG[kind], list_body)
    return _delimited(0x0A, _delimited(0x0A, name) + _delimited(0x12, feature))


def column_values(column: Column, count: int, rng: np.random.Generator) -> Any:
    """``count`` records' values of one column: an array ``(count, length)``, or a list of byte strings."""
    if column.kind == "float":
        return rng.standard_normal((count, column.length), np.float32)
    if column.kind == "int":
        return rng.integers(column.low, column.high, (count, column.length), np.int64)
    sizes = rng.integers(column.low, column.high, count)
    data = rng.bytes(int(sizes.sum()))
    cuts = [0, *np.cumsum(sizes).tolist()]
    return [data[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]


def encode_column(column: Column, values: Any) -> list[bytes]:
    """The map entry of ``column`` for each record."""
    name = column.name.encode()
    if column.kind == "bytes":
        return [_entry(name, "bytes", _delimited(0x0A, value)) for value in values]
    if column.kind == "float":
        rows = np.ascontiguousarray(values, "<f4").tobytes()
        width = 4 * column.length
        bodies = [rows[i : i + width] for i in range(0, len(rows), width)]
    else:
        bodies = varint_rows(values)
    # The bodies of a column have few different lengths, so the bytes before the values are built once per
    # length.
    prefixes: dict[int, bytes] = {}
    entries = []
    for body in bodies:
        prefix = prefixes.get(len(body))
        if prefix is None:
            whole = _entry(name, column.kind, _delimited(0x0A, body))
            prefix = prefixes[len(body)] = whole[: len(whole) - len(body)]
        entries.append(prefix + body)
    return entries


def example(entries: Iterable[bytes]) -> bytes:
    """A serialized Example of these map entries."""
    return _delimited(0x0A, b"".join(entries))


def payloads(shape: Shape, seed: int = 0) -> Iterator[bytes]:
    """The serialized Examples of one file of ``shape``, in order."""
    rng = np.random.default_rng([seed, *shape.name.encode()])
    step = CHUNK if shape.name != "img" else 64
    for start in range(0, shape.records, step):
        count = min(step, shape.records - start)
        columns = [encode_column(column, column_values(column, count, rng)) for column in shape.columns]
        if not columns:
            yield from [b""] * count
            continue
        for entries in zip(*columns, strict=True):
            yield example(entries)


def write_file(path: Path, shape: Shape, seed: int = 0) -> int:
    """Write one file beside ``path`` and move it there. Returns its size in bytes."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with open(partial, "wb", buffering=0) as file:
        pending = bytearray()
        frames: Iterable[bytes]
        if not shape.columns:  # one frame, so that ten million records take a second
            frames = [frame(b"")] * shape.records
        else:
            frames = map(frame, payloads(shape, seed))
        for one in frames:
            pending += one
            if len(pending) >= WRITE_SIZE:
                file.write(pending[:WRITE_SIZE])
                del pending[:WRITE_SIZE]
        file.write(pending)
    size = partial.stat().st_size
    os.replace(partial, path)
    return size


def corpus_file(folder: Path, shape: Shape, seed: int = 0) -> Path:
    """The file of ``shape`` in ``folder``, created if it does not exist yet."""
    columns = crc32c.crc32c(repr(shape.columns).encode())  # so that a changed shape gets a new file
    path = folder / f"{shape.name}-{shape.records}-{seed}-{columns:08x}.tfrecord"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, shape, seed)
    return path


def many_files(folder: Path, count: int, seed: int = 0) -> Path:
    """A folder of ``count`` files with one record each; record i's only feature is the integer i."""
    target = folder / f"many-{count}-{seed}"
    if not target.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        partial.mkdir(parents=True)
        column = Column("number", "int")
        entries = encode_column(column, np.arange(count, dtype=np.int64).reshape(-1, 1))
        for i, entry in enumerate(entries):
            name = f"one-{i:05d}-of-{count:05d}.tfrecord"
            (partial / name).write_bytes(frame(example([entry])))
        os.replace(partial, target)
    return target


def main(argv: Sequence[str] | None = None, out: Callable[[str], object] = print) -> int:
    """Make the requested files and print their paths."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the files")
    parser.add_argument("--shapes", default=",".join(MAIN_SHAPES), help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of records")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    names = [name for name in args.shapes.split(",") if name]
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        parser.error(f"unknown shapes {', '.join(unknown)}; there are {', '.join(SHAPES)}")
    for name in names:
        shape = SHAPES[name].scaled(args.scale)
        path = corpus_file(args.out, shape, args.seed)
        made = {"shape": name, "path": str(path), "records": shape.records, "bytes": path.stat().st_size}
        out(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
