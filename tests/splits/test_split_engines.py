"""Splits in other engines: each record once."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parents[2]
COUNT = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place in range(4):
        with tfrecord.TFRecordWriter(tmp_path / f"{place}.tfrecord", index=place % 2 == 0) as writer:
            writer.write_batch({"id": np.arange(COUNT // 4) + place * (COUNT // 4)})
    return tmp_path


def ids(split: Any) -> list[int]:
    """Imports what it needs: it is run in other processes."""
    return [int(record["id"][0]) for record in split]


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """New processes find this checkout and this module."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(__file__).parent), *sys.path]))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask(scheduler: str, folder: Path, importable: None) -> None:
    dask = pytest.importorskip("dask")
    bag = pytest.importorskip("dask.bag")
    splits = tfrecord.make_splits(folder, 6)
    found = bag.from_sequence(splits, npartitions=6).map(ids).flatten().compute(scheduler=scheduler)
    assert sorted(found) == list(range(COUNT))
    parts = dask.compute(*[dask.delayed(ids)(split) for split in splits], scheduler=scheduler)
    assert [number for part in parts for number in part] == list(range(COUNT))


@pytest.fixture
def spark(importable: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is large and needs Java: tried where it is installed")
    from pyspark.sql import SparkSession

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_spark(folder: Path, spark: Any) -> None:
    rdd = spark.sparkContext.parallelize(tfrecord.make_splits(folder, 6), 6)
    assert rdd.flatMap(ids).collect() == list(range(COUNT))
