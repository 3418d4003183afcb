"""The main task on one page: write a dataset, index it, read it at random positions, print the results."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import tfrecord

NUM_RECORDS = 20_000
BATCH = 256


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"tfrecord {tfrecord.__version__}, engine: {tfrecord.engine}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.tfrecord"

        started = time.perf_counter()
        with tfrecord.TFRecordWriter(path) as writer:
            for i in range(NUM_RECORDS):
                writer.write(
                    {
                        "id": (i, "int"),
                        "name": (f"record {i}", "byte"),
                        "vector": (rng.standard_normal(16, dtype=np.float32), "float"),
                    }
                )
        took = time.perf_counter() - started
        print(f"wrote   {NUM_RECORDS:,} records, {path.stat().st_size:,} bytes, in {took:.2f} s")

        started = time.perf_counter()
        index = tfrecord.build_index(path)
        took = time.perf_counter() - started
        print(f"indexed {len(index):,} records, all verified, in {took * 1e3:.1f} ms")

        reader = tfrecord.TFRecordReader(path)
        record = reader[-1]
        print(
            f"reader[-1]      = id {record['id']}, name {record['name']}, vector of {record['vector'].shape}"
        )

        positions = rng.permutation(len(reader))[:BATCH]
        started = time.perf_counter()
        batch = reader.read(positions)
        took = time.perf_counter() - started
        assert np.array_equal(batch["id"].ravel(), positions)
        print(f"reader.read(..) = {BATCH} records at random positions as columns in {took * 1e3:.2f} ms:")
        print(batch)


if __name__ == "__main__":
    main()
