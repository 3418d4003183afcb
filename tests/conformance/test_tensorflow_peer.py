"""TensorFlow reads the files of this library: the same bytes, and the same values of the parsed Examples.

TensorFlow runs in its own Python, which the variable TFRECORD_TF_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfrecord import example_pb2
from tfrecord.columns import BytesColumn, Ragged
from tfrecord.encode import encode_example, encode_sequence_example
from tfrecord.writer import ShardedTFRecordWriter, TFRecordWriter

PYTHON = os.environ.get("TFRECORD_TF_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TFRECORD_TF_PYTHON names no Python with TensorFlow")

SCRIPT = textwrap.dedent(
    """
    import json, sys
    import tensorflow as tf
    out = []
    for path, compression in json.load(sys.stdin):
        records = [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type=compression)]
        features = []
        for record in records:
            example = tf.train.Example.FromString(record)
            kinds = {k: (v, v.WhichOneof("kind")) for k, v in example.features.feature.items()}
            numbers = {k: (v, f) for k, (v, f) in kinds.items() if f != "bytes_list"}
            features.append({k: list(getattr(v, f).value) for k, (v, f) in numbers.items()})
        types = {"i": tf.int64, "f": tf.float32, "b": tf.string}
        spec = {k: tf.io.VarLenFeature(t) for k, t in types.items()}
        parsed = tf.io.parse_example(records, spec) if records else {}
        lists = {k: v.values.numpy().tolist() for k, v in parsed.items()}
        values = {k: [x.hex() if isinstance(x, bytes) else x for x in v] for k, v in lists.items()}
        out.append({"records": [r.hex() for r in records], "features": features, "values": values})
    sequence = bytes.fromhex(sys.argv[1])
    context, lists = tf.io.parse_single_sequence_example(
        sequence, {"n": tf.io.FixedLenFeature([], tf.int64)},
        {"t": tf.io.RaggedFeature(tf.int64), "w": tf.io.VarLenFeature(tf.string)})
    print(json.dumps({"files": out, "n": int(context["n"]), "t": lists["t"].to_list(),
                      "w": [w.hex() for w in lists["w"].values.numpy().tolist()]}))
    """
)


def write_records(
    path: str, compression: str, columns: dict[str, Any], present: dict[str, Any]
) -> list[bytes]:
    """Records of every way to write them; their bytes."""
    rows: list[bytes] = []
    with TFRecordWriter(path, compression_type=compression) as writer:
        datum = {
            "i": ([1, -1], "int"),
            "f": (0.5, "float"),
            "b": (["a\0", b"\xff\0"], "byte"),
            "e": ([], "int"),
        }
        writer.write(datum)
        rows.append(encode_example(datum))
        writer.write({})
        rows.append(encode_example({}))
        writer.write_bytes(b"")
        rows.append(b"")
        writer.write_batch(columns, present=present)
    for i in range(len(columns["b"])):
        row: dict[str, Any] = {"i": (columns["i"][i], "int"), "f": (columns["f"][i], "float")}
        row["b"] = (columns["b"][i], "byte")
        if not present["f"][i]:
            del row["f"]
        rows.append(encode_example(row))
    return rows


def test_tensorflow_reads_what_was_written(tmp_path: Path) -> None:
    assert PYTHON is not None
    rng = np.random.default_rng(0)
    n = 200
    ints = Ragged(rng.integers(-(2**63), 2**63 - 1, 3 * n), np.arange(n + 1) * 3)
    columns = {
        "i": ints,
        "f": rng.standard_normal((n, 4)).astype(np.float32),
        "b": BytesColumn.from_list([bytes(i % 5) + b"x" for i in range(n)]),
    }
    present = {"f": np.arange(n) % 3 > 0}
    files: list[tuple[str, str]] = []
    expected: list[list[bytes]] = []
    for compression in ("", "GZIP", "ZLIB"):
        path = str(tmp_path / f"a{compression}")
        files.append((path, compression))
        expected.append(write_records(path, compression, columns, present))
    with TFRecordWriter(files[1][0], mode="a", compression_type="GZIP") as writer:
        writer.write({"i": (7, "int")})
    expected[1].append(encode_example({"i": (7, "int")}))
    with ShardedTFRecordWriter(tmp_path / "shards", 3) as shards:
        shards.write({"i": (1, "int")})
    files += [(path, "") for path in shards.paths]
    expected += [[encode_example({"i": (1, "int")})], [], []]
    sequence = encode_sequence_example(
        {"n": (2, "int")}, {"t": ([[1, 2**40], [], [-1]], "int"), "w": (["a\0", "b"], "byte")}
    )

    run = subprocess.run(
        [PYTHON, "-c", SCRIPT, sequence.hex()],
        input=json.dumps(files),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    got = json.loads(run.stdout)
    assert (got["n"], got["t"]) == (2, [[1, 2**40], [], [-1]])
    assert got["w"] == [b"a\0".hex(), b"b".hex()]
    assert len(got["files"]) == len(expected) == 6
    for file, rows in zip(got["files"], expected, strict=True):
        assert file["records"] == [row.hex() for row in rows]
        for features, row in zip(file["features"], rows, strict=True):
            message = example_pb2.Example.FromString(row)
            for key, values in features.items():
                feature = message.features.feature[key]
                assert list(getattr(feature, feature.WhichOneof("kind")).value) == values
    values = got["files"][0]["values"]
    assert values["i"] == [1, -1, *ints.values.tolist()]
    assert values["f"] == [0.5, *columns["f"][present["f"]].reshape(-1).tolist()]
    assert values["b"] == [b"a\0".hex(), b"\xff\0".hex(), *(value.hex() for value in columns["b"].to_list())]
