"""Records to run the command on."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.example_pb2 import Example, SequenceExample

Run = Callable[..., Any]
MakeFile = Callable[..., Any]

# What `convert` writes.
FORMATS = ["parquet", "arrow", "npz", "jsonl", "jsonl.gz", "tar", "tfrecord.gz"]

HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">\u2028"\'&'


def png(width: int = 3, height: int = 2) -> bytes:
    """A small picture."""
    rows = b"".join(b"\0" + bytes(3 * width) for _ in range(height))
    made = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        made += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return made


def wave(seconds: float = 0.1) -> bytes:
    """A short silence."""
    samples = bytes(2 * int(8000 * seconds))
    form = struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(samples))
        + b"WAVEfmt "
        + form
        + b"data"
        + struct.pack("<I", len(samples))
        + samples
    )


def examples(count: int = 20) -> list[bytes]:
    """Examples as people have them: a label, a picture, text, numbers, and now and then something missing."""
    made = []
    for i in range(count):
        datum: dict[str, Any] = {
            "label": (i % 4, "int"),
            "image/encoded": (png(3 + i % 3, 2), "bytes"),
            "caption": (f"picture number {i}, größer", "bytes"),
            "box": ([0.25 * i, 1.5], "float"),
        }
        if i % 5 == 0:
            datum["tags"] = ([b"red", b"blue\xff"][: i % 3], "bytes")
        made.append(encode_example(datum))
    return made


def odd_examples() -> list[bytes]:
    """Every way to have and not to have values: absent, no kind, empty, one, many, of one kind and of
    another."""
    silent = Example()
    silent.features.feature["n"].SetInParent()
    silent.features.feature["only silent"].SetInParent()
    nan = np.frombuffer(struct.pack("<4I", 0x7FC00000, 0x7FA00001, 0xFF800000, 0x80000000), np.float32)
    return [
        encode_example({"n": ([1, -(2**63), 2**63 - 1], "int"), "b": ([b"", b"a\0", b"\xff"], "bytes")}),
        silent.SerializeToString(),
        b"",
        encode_example({"n": ([], "int"), "b": ([], "bytes"), "f": ([], "float")}),
        encode_example({"n": (7, "int"), "f": (nan, "float")}),
        encode_example({"n": (0.5, "float"), "b": (3, "int")}) + silent.SerializeToString()[:0],
        encode_example({"n": ("text", "bytes"), "../../etc/passwd": (b"x", "bytes"), "": (1, "int")}),
        encode_example(
            {"b": (b"\x1f\x8b\x08\0\0\0", "bytes"), "a/values": ([1, 2], "int"), "a": ([3], "int")}
        ),
    ]


def odd_sequences() -> list[bytes]:
    """The same for feature lists, with steps without a kind and of several."""
    silent, mixed = SequenceExample(), SequenceExample()
    silent.context.feature["c"].SetInParent()
    silent.feature_lists.feature_list["t"].feature.add()
    silent.feature_lists.feature_list["t"].feature.add().int64_list.value.append(4)
    silent.feature_lists.feature_list["none"].SetInParent()
    mixed.feature_lists.feature_list["t"].feature.add().int64_list.value.append(4)
    mixed.feature_lists.feature_list["t"].feature.add().bytes_list.value.append(b"x")
    return [
        encode_sequence_example(
            {"c": (1, "int")}, {"t": ([[1], [2, 3], []], "int"), "w": ([[b"a"], [b"b", b"c"]], "bytes")}
        ),
        silent.SerializeToString(),
        encode_sequence_example({"c": (2, "int"), "t": ("same name", "bytes")}, {"t": ([], "int")}),
        mixed.SerializeToString(),
        encode_sequence_example({}, {"f": ([[0.5, 1.5], [2.5]], "float")}),
    ]
