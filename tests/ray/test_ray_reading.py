"""`tfrecord.ray.read_tfrecords`: each record once, one schema, errors that name file and record."""

from __future__ import annotations

import importlib
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray_shards import write_shard

import tfrecord
from tfrecord import FixedLenFeature, RaggedFeature

pa = pytest.importorskip("pyarrow")

Shards = tuple[Path, int]


@pytest.fixture
def read(cluster: Any) -> Any:
    import tfrecord.ray

    return tfrecord.ray.read_tfrecords


def ids(dataset: Any) -> list[int]:
    """The numbers of all records, in order."""
    found = [row["id"] for row in dataset.select_columns(["id"]).take_all()]
    return sorted(int(number if np.isscalar(number) else number[0]) for number in found)


def schemas(dataset: Any) -> set[str]:
    """What the schemas of the blocks say."""
    import ray

    return {str(ray.get(block).schema) for block in dataset.to_arrow_refs()}


# ---- a data set of many shards -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["indexed", "plain"])
def test_each_record_once_and_one_schema(kind: str, read: Any, request: pytest.FixtureRequest) -> None:
    folder, count = request.getfixturevalue(kind)
    dataset = read(folder, override_num_blocks=12)
    assert ids(dataset) == list(range(count))
    blocks = dataset.materialize()
    assert blocks.num_blocks() == 12 and len(schemas(blocks)) == 1
    types = dict(zip(dataset.schema().names, dataset.schema().types, strict=True))
    words = pa.large_list(pa.large_binary())
    if kind == "indexed":
        assert types == {"id": pa.int64(), "pair": pa.list_(pa.float32(), 2), "words": words}
    else:
        assert types == {"id": pa.large_list(pa.int64()), "pair": pa.large_list(pa.float32()), "words": words}


def test_the_values_are_those_of_the_reader(indexed: Shards, read: Any) -> None:
    folder, count = indexed
    rows = sorted(read(folder).take_all(), key=lambda row: row["id"])
    batch = tfrecord.TFRecordReader(folder).read(range(count))
    assert [list(row["pair"]) for row in rows] == batch["pair"].tolist()
    for row, words, present in zip(rows, batch["words"].to_list(), batch.present["words"], strict=True):
        assert (row["words"] is not None) == present
        assert list(row["words"] if present else []) == words


def test_counting_reads_no_data(indexed: Shards, read: Any, tmp_path: Path) -> None:
    folder, count = indexed
    dataset = read(folder)
    executed = dataset.stats()
    assert dataset.count() == count and dataset.stats() == executed
    assert read(folder, on_error="skip").count() == count


def test_at_least_a_block_for_each_cpu(indexed: Shards, read: Any) -> None:
    assert read(indexed[0]).materialize().num_blocks() == 2
    assert read(indexed[0], override_num_blocks=1).materialize().num_blocks() == 1


def test_columns(indexed: Shards, read: Any) -> None:
    folder, count = indexed
    assert read(folder, columns=["id"]).schema().names == ["id"]
    chosen = read(folder).select_columns(["words", "id"])
    assert chosen.schema().names == ["words", "id"] and chosen.count() == count
    assert (
        read(folder).rename_columns({"id": "number"}).select_columns(["number"]).sum("number")
        == count * (count - 1) // 2
    )
    with pytest.raises(KeyError, match="did you mean 'words'"):
        read(folder, columns=["word"])


def test_filter_shuffle_and_limit(indexed: Shards, read: Any) -> None:
    from ray.data.expressions import col

    folder, count = indexed
    assert ids(read(folder).filter(expr=col("id") % 3 == 0)) == list(range(0, count, 3))
    shuffled = [row["id"] for row in read(folder).random_shuffle(seed=1).take_all()]
    assert sorted(shuffled) == list(range(count)) and shuffled != sorted(shuffled)
    assert [row["id"] for row in read(folder, override_num_blocks=3).limit(7).take_all()] == list(range(7))


def test_torch_batches(indexed: Shards, read: Any) -> None:
    torch = pytest.importorskip("torch")
    folder, count = indexed
    batches = list(read(folder, columns=["id", "pair"]).iter_torch_batches(batch_size=100))
    assert sum(len(batch["id"]) for batch in batches) == count
    assert batches[0]["pair"].shape == (100, 2) and batches[0]["pair"].dtype == torch.float32
    assert batches[0]["id"].dtype == torch.int64


def test_parquet(indexed: Shards, read: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    folder, count = indexed
    read(folder).write_parquet(str(tmp_path / "out"))
    table = pyarrow.parquet.read_table(tmp_path / "out")
    assert sorted(table["id"].to_pylist()) == list(range(count))
    absent = tfrecord.TFRecordReader(folder).read(range(count)).present["words"]
    assert table["words"].null_count == count - np.count_nonzero(absent) > 0


def test_paths(indexed: Shards, read: Any, tmp_path: Path) -> None:
    folder, count = indexed
    rows = read(folder, include_paths=True, override_num_blocks=5).take_all()
    reader = tfrecord.TFRecordReader(folder)
    assert {row["id"]: row["path"] for row in rows} == {
        place: reader.locate(place)[0] for place in range(count)
    }
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write({"path": ("x", "bytes")})
    with pytest.raises(ValueError, match="a feature has that name"):
        read(tmp_path / "a.tfrecord", include_paths=True)


# ---- what may be read ----------------------------------------------------------------------------------


def test_features(indexed: Shards, read: Any) -> None:
    features = {"id": FixedLenFeature((), "int32"), "words": RaggedFeature("bytes")}
    schema = read(indexed[0], features=features).schema()
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "id": pa.int32(),
        "words": pa.large_list(pa.large_binary()),
    }


def test_names_alone_take_the_types_of_the_data(indexed: Shards, read: Any) -> None:
    for index in ("auto", False):
        table = read(indexed[0], features=["words", "id"], index=index)
        words, number = table.schema().types
        assert (words, number) == (pa.large_list(pa.large_binary()), pa.large_list(pa.int64()))
        assert table.count() == indexed[1]


def test_a_view_of_a_reader(indexed: Shards, read: Any) -> None:
    order = np.random.default_rng(0).permutation(indexed[1])[:100]
    view = tfrecord.TFRecordReader(indexed[0], features={"id": FixedLenFeature((), "int64")}).select(order)
    assert [row["id"] for row in read(view, override_num_blocks=3).take_all()] == order.tolist()
    with pytest.raises(TypeError, match="give features when you make the reader"):
        read(view, features={"id": "int"})


def test_examples_of_tfds_are_no_table(read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    tfds = pytest.importorskip("tfrecord.tfds")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "tfds"))
    importlib.import_module("documented").write_all(tmp_path)
    with pytest.raises(TypeError, match="make_splits"):
        read(tfds.open(tmp_path / "digits" / "3.0.1"))


def test_records_of_bytes(read: Any, make_file: Any) -> None:
    payloads = [bytes([255, number]) for number in range(50)]
    dataset = read(make_file(payloads), record_type="bytes", include_paths=True)
    assert [row["record"] for row in dataset.take_all()] == payloads
    assert dataset.select_columns(["path"]).count() == 50
    with pytest.raises(ValueError, match="no columns"):
        read(make_file(payloads), record_type="bytes", columns=["x"])


def test_sequence_examples(read: Any, tmp_path: Path) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for number in range(30):
            writer.write({"id": (number, "int")}, {"steps": ([[number, 1], [2]], "int")})
    dataset = read(tmp_path, override_num_blocks=4)
    assert dataset.schema().names == ["context/id", "feature_lists/steps"]
    assert len(schemas(dataset.materialize())) == 1
    chosen = dataset.select_columns(["feature_lists/steps"])
    assert [[list(step) for step in row["feature_lists/steps"]] for row in chosen.take(2)] == [
        [[0, 1], [2]],
        [[1, 1], [2]],
    ]
    assert read(tmp_path, columns=["steps"]).schema().names == ["feature_lists/steps"]


def test_no_records_have_a_schema_all_the_same(read: Any, tmp_path: Path) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord"):
        pass
    dataset = read(tmp_path, features={"x": FixedLenFeature((2,), "float32")})
    assert dataset.count() == 0 and dataset.schema().names == ["x"] and dataset.take_all() == []


def test_only_the_first_records_know_a_feature(read: Any, tmp_path: Path) -> None:
    """Blocks without it have the column all the same."""
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for number in range(400):
            writer.write({"id": (number, "int"), **({"rare": (1.5, "float")} if number == 3 else {})})
    dataset = read(tmp_path, override_num_blocks=4).materialize()
    assert len(schemas(dataset)) == 1
    assert [row["id"][0] for row in dataset.take_all() if row["rare"] is not None] == [3]


# ---- records that do not fit ---------------------------------------------------------------------------


def late(folder: Path, record: dict[str, Any]) -> Path:
    """A file with a record that the first ones do not tell of."""
    with tfrecord.TFRecordWriter(folder / "late.tfrecord") as writer:
        for number in range(200):
            writer.write({"id": (number, "int")} if number != 150 else record)
    return folder / "late.tfrecord"


@pytest.mark.parametrize(
    ("record", "error", "key"),
    [
        ({"id": (1, "int"), "new": (2.5, "float")}, tfrecord.DecodeError, "new"),
        ({"id": (2.5, "float")}, tfrecord.FeatureKindError, "id"),
    ],
)
@pytest.mark.parametrize("blocks", [1, 5])
def test_a_record_that_does_not_fit(
    record: Any, error: type[Exception], key: str, blocks: int, read: Any, tmp_path: Path
) -> None:
    path = late(tmp_path, record)
    with pytest.raises(error) as caught:
        read(path, override_num_blocks=blocks).materialize()
    assert all(part in str(caught.value) for part in (str(path), "record 150", repr(key)))
    # An index knows all of them.
    tfrecord.build_index(path)
    if error is tfrecord.DecodeError:
        assert read(path).count() == 200


def test_two_kinds_in_the_first_records(read: Any, tmp_path: Path) -> None:
    for name, kind in (("a", "int"), ("b", "float")):
        with tfrecord.TFRecordWriter(tmp_path / f"{name}.tfrecord") as writer:
            writer.write({"x": (1, kind)})
    with pytest.raises(tfrecord.FeatureKindError, match=r"x.*a\.tfrecord"):
        read(tmp_path)


# ---- damage and failures -------------------------------------------------------------------------------


def damage(path: Path, record: int) -> None:
    index = tfrecord.TFRecordReader(path)._view.store.index(0)
    data = bytearray(path.read_bytes())
    data[int(index.offsets[record]) + 13] ^= 1
    path.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    for place in range(4):
        write_shard(tmp_path / f"{place}.tfrecord", place * 50, 50, index=True)
    damage(tmp_path / "1.tfrecord", 7)
    damage(tmp_path / "2.tfrecord", 30)
    return tmp_path


def test_damage_names_file_and_record(damaged: Path, read: Any) -> None:
    with pytest.raises(tfrecord.ChecksumError) as caught:
        read(damaged / "1.tfrecord").materialize()
    assert str(damaged / "1.tfrecord") in str(caught.value) and "record 7" in str(caught.value)
    assert (caught.value.path, caught.value.record) == (str(damaged / "1.tfrecord"), 7)


def test_damage_that_is_skipped_is_counted(damaged: Path, read: Any) -> None:
    dataset = read(damaged, on_error="skip", override_num_blocks=5)
    for _ in range(2):
        with pytest.warns(
            UserWarning, match=r"2 damaged records were skipped; the first: .*tfrecord: record"
        ):
            found = ids(dataset)
        assert found == [number for number in range(200) if number not in (57, 130)]
    with pytest.warns(UserWarning, match="2 damaged records"):
        assert dataset.count() == 198


def test_no_warning_without_damage(indexed: Shards, read: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ids(read(indexed[0], on_error="skip"))) == indexed[1]


def test_max_skips_counts_over_all_workers(damaged: Path, read: Any) -> None:
    with pytest.warns(UserWarning, match="2 damaged records"):
        read(damaged, on_error="skip", max_skips=2, override_num_blocks=4).materialize()
    with pytest.raises(tfrecord.ChecksumError):
        read(damaged, on_error="skip", max_skips=1, override_num_blocks=4).materialize()


def test_a_callable_is_told(damaged: Path, read: Any, tmp_path_factory: Any) -> None:
    told = tmp_path_factory.mktemp("told")

    def tell(error: Any) -> None:
        (told / f"{Path(error.path).stem}-{error.record}").touch()

    with pytest.warns(UserWarning, match="2 damaged records"):
        read(damaged, on_error=tell).materialize()
    assert sorted(os.listdir(told)) == ["1-7", "2-30"]


def test_a_worker_that_is_killed_in_the_middle(damaged: Path, read: Any, tmp_path_factory: Any) -> None:
    """Its block is read again by another, and each record is there once."""
    killed = tmp_path_factory.mktemp("killed") / "once"

    def kill_once(error: Any) -> None:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.warns(UserWarning, match="2 damaged records"):
        found = ids(read(damaged, on_error=kill_once, override_num_blocks=4))
    assert killed.exists()
    assert found == [number for number in range(200) if number not in (57, 130)]


def test_a_worker_that_is_killed_behind_the_read(indexed: Shards, read: Any, tmp_path: Path) -> None:
    killed = tmp_path / "once"

    def kill_once(batch: Any) -> Any:
        if 100 in batch["id"] and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    assert ids(read(indexed[0], override_num_blocks=6).map_batches(kill_once)) == list(range(indexed[1]))
    assert killed.exists()


def test_a_file_that_changed_since(tmp_path: Path, read: Any) -> None:
    write_shard(tmp_path / "a.tfrecord", 0, 20, index=True)
    dataset = read(tmp_path)
    write_shard(tmp_path / "a.tfrecord", 0, 21, index=True)
    with pytest.raises(tfrecord.StaleIndexError, match=r"a\.tfrecord"):
        dataset.materialize()


# ---- without a cluster ---------------------------------------------------------------------------------


class _Failing:
    """A stand-in for a split whose file cannot be read the first so many times."""

    def __init__(self, split: Any, errors: Iterator[OSError]) -> None:
        self.split, self.errors = split, errors

    def __copy__(self) -> Any:
        for error in self.errors:
            raise error
        return self.split


@pytest.mark.parametrize(
    ("errors", "works"),
    [
        ([OSError(5, "input/output error")] * 3, True),
        ([OSError(5, "input/output error")] * 9, False),
        ([FileNotFoundError(2, "no such file")], False),
        ([PermissionError(13, "not permitted")], False),
    ],
)
def test_errors_of_the_system_are_tried_again(
    errors: list[OSError], works: bool, indexed: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray.data")
    from tfrecord.ray import blocks

    waits: list[float] = []
    monkeypatch.setattr(blocks.time, "sleep", waits.append)
    reader = tfrecord.TFRecordReader(indexed[0])
    plan = blocks.plan_blocks(reader, None, False)
    left = iter(errors)
    split: Any = _Failing(tfrecord.make_splits(reader, 1)[0], left)
    if works:
        assert blocks.read_block(split, plan).num_rows == indexed[1] and len(waits) == len(errors)
    else:
        with pytest.raises(type(errors[0])):
            blocks.read_block(split, plan)
        assert len(waits) == (4 if len(errors) > 1 else 0)
