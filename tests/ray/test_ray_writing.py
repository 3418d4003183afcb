"""`tfrecord.ray.write_tfrecords`: whole files, each record once, also where a task is retried."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from indexer.build import check_index
from tfrecord import FixedLenFeature

pa = pytest.importorskip("pyarrow")

Shards = tuple[Path, int]


@pytest.fixture
def tfr(cluster: Any) -> Any:
    import tfrecord.ray

    return tfrecord.ray


def numbers(cluster: Any, count: int, blocks: int = 3) -> Any:
    return cluster.data.range(count, override_num_blocks=blocks)


def ids(folder: Path) -> list[int]:
    reader = tfrecord.TFRecordReader(folder, features={"id": FixedLenFeature((), "int64")})
    return sorted(reader.read(range(len(reader)))["id"].tolist())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".tfindex")


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_read_back_equal(compression: str | None, indexed: Shards, tfr: Any, tmp_path: Path) -> None:
    folder, count = indexed
    dataset = tfr.read_tfrecords(folder, override_num_blocks=4)
    written = tfr.write_tfrecords(dataset, tmp_path / "out", compression_type=compression)
    assert [Path(path).parent for path in written] == [tmp_path / "out"] * 4
    suffix = {None: "", "GZIP": r"\.gz", "ZLIB": r"\.zz"}[compression]
    assert all(
        re.fullmatch(rf"part-[0-9]{{6}}-000000\.tfrecord{suffix}", Path(path).name) for path in written
    )
    for path in written:
        assert len(check_index(path)) > 0
    before, after = tfrecord.TFRecordReader(folder), tfrecord.TFRecordReader(written)
    assert after.has_index and after.schema["pair"].shape == (2,)
    assert ids(tmp_path / "out") == list(range(count))
    order = np.argsort(after.read(range(count))["id"])
    assert after.read(order).equals(before.read(range(count)))


def test_without_indexes(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    tfr.write_tfrecords(numbers(cluster, 10), tmp_path, index=False)
    assert not list(tmp_path.glob("*.tfindex")) and ids(tmp_path) == list(range(10))


def test_sequence_examples_and_bytes(tfr: Any, tmp_path: Path, make_file: Any) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for number in range(9):
            writer.write({"id": (number, "int")}, {"steps": ([[number, 1], [2]], "int")})
    payloads = [bytes([255, number]) for number in range(50)]
    raw = make_file(payloads, "raw.tfrecord")
    for path, kind in ((tmp_path / "a.tfrecord", "sequence_example"), (raw, "bytes")):
        dataset = tfr.read_tfrecords(path, record_type=kind)
        # Rows of Python objects have lost the schema's own words.
        for given, said in ((dataset, "auto"), (dataset.map(lambda row: row), kind)):
            out = tmp_path / f"{kind}-{said}"
            tfr.write_tfrecords(given, out, record_type=said)
            before = tfrecord.TFRecordReader(path, record_type="bytes").read_raw(range(9))
            after = tfrecord.TFRecordReader(out, record_type="bytes").read_raw(range(9))
            assert sorted(after.to_list()) == sorted(before.to_list())


def test_modes(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    from ray.data.expressions import col

    first = tfr.write_tfrecords(numbers(cluster, 10), tmp_path)
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match="mode='append'"):
        tfr.write_tfrecords(numbers(cluster, 10), tmp_path)
    more = tfr.write_tfrecords(numbers(cluster, 10, 2), tmp_path, mode="append")
    assert not set(more) & set(first) and ids(tmp_path) == sorted([*range(10)] * 2)
    assert sorted([*first, *more]) == [*first, *more]
    # It may read what it replaces.
    again = tfr.read_tfrecords(tmp_path, columns=["id"]).filter(expr=col("id") < 4)
    written = tfr.write_tfrecords(again, tmp_path, mode="overwrite", index=False)
    assert ids(tmp_path) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert names(tmp_path) == sorted(["README.md", *map(os.path.basename, written)])
    assert not list(tmp_path.glob("*.tfindex"))


def test_no_rows_are_an_empty_data_set(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    from ray.data.expressions import col

    written = tfr.write_tfrecords(numbers(cluster, 5).filter(expr=col("id") < 0), tmp_path)
    assert len(written) == 1 and len(tfrecord.TFRecordReader(tmp_path)) == 0


def test_blocks_joined_to_files(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    assert len(tfr.write_tfrecords(numbers(cluster, 40, 8), tmp_path / "many")) == 8
    assert len(tfr.write_tfrecords(numbers(cluster, 40, 8), tmp_path / "few", min_rows_per_file=20)) == 2


def test_a_task_that_is_retried_leaves_nothing_twice(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    killed = tmp_path / "once"

    def kill_once(table: Any) -> Any:
        """The last of three batches of a task kills it, which writes batches as they come."""
        if 99 in table["id"].to_pylist() and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return table

    dataset = numbers(cluster, 100, 4).map_batches(kill_once, batch_format="pyarrow", batch_size=10)
    written = tfr.write_tfrecords(dataset, tmp_path / "out")
    assert killed.exists() and len(written) == 4
    assert ids(tmp_path / "out") == list(range(100))
    assert names(tmp_path / "out") == [Path(path).name for path in written]


def test_a_second_attempt_replaces_the_file_of_the_first(tmp_path: Path) -> None:
    pytest.importorskip("ray.data")
    from tfrecord.ray.writing import _FileOptions, _Sink

    sink = _Sink(str(tmp_path), _FileOptions(True, "", "auto"), None)
    for count in (50, 30):
        sink.put([pa.table({"id": list(range(count))})], 12)
    assert names(tmp_path) == ["part-000012-000000.tfrecord"] and ids(tmp_path) == list(range(30))


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_job_that_fails_leaves_the_folder_as_it_was(
    mode: str, cluster: Any, tfr: Any, tmp_path: Path
) -> None:
    if mode == "overwrite":
        tfr.write_tfrecords(numbers(cluster, 7), tmp_path)
    before = sorted(tmp_path.iterdir())

    def fail(row: Any) -> Any:
        if row["id"] == 60:
            raise RuntimeError("no such luck")
        return row

    with pytest.raises(Exception, match="no such luck"):
        tfr.write_tfrecords(numbers(cluster, 100, 5).map(fail), tmp_path, mode=mode)
    assert sorted(tmp_path.iterdir()) == before


def test_values_that_no_feature_holds(cluster: Any, tfr: Any, tmp_path: Path) -> None:
    dataset = numbers(cluster, 3).map(lambda row: {"where": {"x": 1.0}})
    with pytest.raises(TypeError, match="'where'"):
        tfr.write_tfrecords(dataset, tmp_path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "replace"}, "mode is 'replace'"),
        ({"record_type": "text"}, "record_type is 'text'"),
        ({"compression_type": "BZ2"}, "BZ2"),
        ({"folder": "memory://out"}, "memory://out"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str, cluster: Any, tfr: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=text):
        tfr.write_tfrecords(numbers(cluster, 3), options.pop("folder", tmp_path / "out"), **options)
    assert not (tmp_path / "out").exists()
