"""`make_splits`: each record in one split, of equal bytes, read in another process as the reader would."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfrecord
from indexer.framing import FRAME_OVERHEAD, frame_record

MakeFile = Callable[..., Path]

MakeFile = Callable[..., Path]

MakeFile = Callable[..., Path]

COUNTS = [10, 0, 300, 37, 1, 200]
TOTAL = sum(COUNTS)


def write(path: Path, first: int, count: int, *, index: bool = True, compression: str | None = None) -> None:
    rng = np.random.default_rng(first)
    with tfrecord.TFRecordWriter(path, index=index, compression_type=compression) as writer:
        for number in range(first, first + count):
            values = rng.random(rng.integers(0, 200))
            writer.write({"id": (number, "int"), "x": (values, "float")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of uneven sizes: one empty, one gzip, every other one without an index."""
    first = 0
    for place, count in enumerate(COUNTS):
        compression = "GZIP" if place == 3 else None
        name = f"part-{place}.tfrecord" + (".gz" if compression else "")
        write(tmp_path / name, first, count, index=place % 2 == 0, compression=compression)
        first += count
    return tmp_path


def ids(batch: Any) -> list[int]:
    column = batch["id"]
    return [int(value) for value in (column.values if isinstance(column, tfrecord.Ragged) else column)]


def read(split: tfrecord.Split) -> list[int]:
    return [number for batch in split.batches(64) for number in ids(batch)]


def shipped(splits: list[tfrecord.Split]) -> list[tfrecord.Split]:
    return [pickle.loads(pickle.dumps(split)) for split in splits]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 50, TOTAL, 5000])
def test_each_record_is_in_one_split(folder: Path, count: int) -> None:
    splits = shipped(tfrecord.make_splits(folder, count))
    assert len(splits) == min(count, TOTAL)
    assert all(split.num_rows == len(split) > 0 for split in splits)
    assert [len(read(split)) for split in splits] == [split.num_rows for split in splits]
    assert [number for split in splits for number in read(split)] == list(range(TOTAL))


@pytest.mark.parametrize("count", [2, 7, 50])
def test_splits_are_of_equal_bytes_to_a_record(folder: Path, count: int) -> None:
    largest = FRAME_OVERHEAD + max(
        len(payload) for payload in tfrecord.TFRecordReader(folder).read_raw(range(TOTAL))
    )
    splits = tfrecord.make_splits(folder, count)
    assert max(split.num_bytes for split in splits) - min(split.num_bytes for split in splits) < 2 * largest
    total = sum(split.num_bytes for split in splits)
    assert total == sum(
        len(payload) + FRAME_OVERHEAD for payload in tfrecord.TFRecordReader(folder).read_raw(range(TOTAL))
    )
    for split in splits:
        assert split.num_bytes == sum(
            len(raw) + FRAME_OVERHEAD for raw in split.reader().read_raw(range(len(split)))
        )


def test_target_bytes(folder: Path) -> None:
    assert len(tfrecord.make_splits(folder)) == 1
    splits = tfrecord.make_splits(folder, target_bytes=20_000)
    assert len(splits) > 5 and all(split.num_bytes < 22_000 for split in splits)
    assert len(tfrecord.make_splits(folder, 3, target_bytes=20_000)) == 3


def test_a_split_holds_the_end_of_a_file_and_the_beginning_of_the_next(folder: Path) -> None:
    splits = tfrecord.make_splits(folder, 2)
    assert len(splits[0].paths) > 1 and splits[0].paths[-1] == splits[1].paths[0]
    assert all(os.path.isabs(path) for split in splits for path in split.paths)
    # A file without records is in no split.
    assert not any("part-1" in path for split in splits for path in split.paths)


def test_a_record_larger_than_a_split_leaves_the_others_one_each(make_file: MakeFile) -> None:
    path = make_file([b"x" * 10, b"y" * 100_000, b"z" * 10, b"", b"w"])
    splits = tfrecord.make_splits(path, 5, record_type="bytes")
    assert [[record for record in split] for split in splits] == [
        [b"x" * 10],
        [b"y" * 100_000],
        [b"z" * 10],
        [b""],
        [b"w"],
    ]


def test_no_records_make_no_splits(make_file: MakeFile) -> None:
    assert tfrecord.make_splits(make_file([]), 4) == []


@given(
    sizes=st.lists(st.lists(st.integers(0, 2000), max_size=12), min_size=1, max_size=4),
    count=st.integers(1, 20),
    seed=st.integers(0, 3),
)
@settings(max_examples=40)
def test_any_files_any_number_of_splits(
    tmp_path_factory: Any, sizes: list[list[int]], count: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    payloads = [[bytes([place]) * size for size in some] for place, some in enumerate(sizes)]
    for place, some in enumerate(payloads):
        path = folder / f"{place}.tfrecord"
        path.write_bytes(b"".join(map(frame_record, some)))
        if (place + seed) % 2:
            tfrecord.build_index(path)
    everything = [payload for some in payloads for payload in some]
    reader = tfrecord.TFRecordReader(folder, record_type="bytes")
    splits = shipped(tfrecord.make_splits(reader, count))
    assert [record for split in splits for record in split] == everything
    assert len(splits) == min(count, len(everything))
    order = np.random.default_rng(seed).permutation(len(everything))[: len(everything) // 2 + 1]
    splits = shipped(tfrecord.make_splits(reader.select(order), count))
    assert [record for split in splits for record in split] == [everything[place] for place in order]


# ---- what a split gives --------------------------------------------------------------------------------


def test_of_a_reader_with_its_options(folder: Path) -> None:
    features = {"id": tfrecord.FixedLenFeature((), "int32")}
    reader = tfrecord.TFRecordReader(folder, features=features)
    for split in shipped(tfrecord.make_splits(reader, 3)):
        batch = next(iter(split.batches(5)))
        assert list(batch) == ["id"] and batch["id"].dtype == np.int32 and batch["id"].shape == (5,)
        assert split.reader()[0]["id"] == batch["id"][0] and len(split.reader()) == len(split)
    with pytest.raises(TypeError, match="give verify, index when you make the reader"):
        tfrecord.make_splits(reader, 3, verify=False, index=False)


def test_of_a_view(folder: Path) -> None:
    order = np.random.default_rng(1).permutation(TOTAL)[:200]
    view = tfrecord.TFRecordReader(folder).select(order)
    splits = shipped(tfrecord.make_splits(view, 4))
    assert [number for split in splits for number in read(split)] == order.tolist()
    assert [int(record["id"][0]) for split in splits for record in split.reader()] == order.tolist()
    assert [
        number for split in tfrecord.make_splits(view.select(range(20, 50)), 2) for number in read(split)
    ] == order[20:50].tolist()
    assert tfrecord.make_splits(view.select([]), 2) == []


def test_columns_and_records(folder: Path) -> None:
    split = tfrecord.make_splits(folder, 3)[1]
    assert [list(batch) for batch in split.batches(100, columns=["id"])][0] == ["id"]
    assert [int(record["id"][0]) for record in split] == read(split)
    with pytest.raises(ValueError, match="batch_size"):
        split.batches(0)


def test_columns_are_the_same_in_every_split(tmp_path: Path) -> None:
    """The whole data set decides what is dense, not the files of one split."""
    for place, width in enumerate([2, 2, 3]):
        with tfrecord.TFRecordWriter(tmp_path / f"{place}.tfrecord", index=True) as writer:
            writer.write_batch({"x": np.zeros((10, width), np.float32), "y": np.zeros(10, np.int64)})
    for split in shipped(tfrecord.make_splits(tmp_path, 3)):
        batch = next(iter(split.batches(10)))
        assert isinstance(batch["x"], tfrecord.Ragged) and isinstance(batch["y"], np.ndarray)


def test_sequence_examples(tmp_path: Path) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for number in range(20):
            writer.write({"id": (number, "int")}, {"steps": ([[number, 1], [2]], "int")})
    splits = shipped(tfrecord.make_splits(tmp_path, 4))
    found = [(context["id"], lists["steps"]) for split in splits for context, lists in split]
    assert [int(number[0]) for number, _ in found] == list(range(20))
    batch = next(iter(splits[1].batches(3)))
    assert batch.num_rows == 3 and batch.feature_lists["steps"][0].to_list() == [[5, 1], [2]]


def test_of_a_tfds_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    tfds = pytest.importorskip("tfrecord.tfds")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "tfds"))
    importlib.import_module("documented").write_all(tmp_path)
    for split in ("train", "train[20:71]+test"):
        reader = tfds.open(tmp_path / "digits" / "3.0.1", split=split)
        splits = shipped(tfrecord.make_splits(reader, 3))
        assert [int(record["label"]) for part in splits for record in part] == [
            int(r["label"]) for r in reader
        ]
        batch = next(iter(splits[1].batches(4)))
        assert type(splits[1].reader()) is type(reader) and batch["image"].shape == (4, 28, 28, 1)


def test_a_split_is_small_and_holds_no_index(tmp_path: Path) -> None:
    with tfrecord.TFRecordWriter(tmp_path / "a.tfrecord", index=True) as writer:
        writer.write_batch({"id": np.arange(100_000)})
    for split in tfrecord.make_splits(tmp_path, 4):
        read(split)
        assert len(pickle.dumps(split)) < 4000


def test_relative_paths_lead_to_the_files_from_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    splits = shipped(tfrecord.make_splits("part-*", 2))
    monkeypatch.chdir("/")
    assert [number for split in splits for number in read(split)] == list(range(TOTAL))


@pytest.mark.filterwarnings("ignore:.*has no index")
def test_urls(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/splits/{path.name}", path.read_bytes())
    splits = shipped(tfrecord.make_splits("memory://splits/", 5))
    assert [number for split in splits for number in read(split)] == list(range(TOTAL))
    memory.pipe("/splits/part-2.tfrecord", b"")
    with pytest.raises(tfrecord.StaleIndexError, match="memory://"):
        read(shipped(splits)[0])
    memory.rm("/splits", recursive=True)


# ---- files that changed --------------------------------------------------------------------------------


def _rewrite(path: Path) -> None:
    """Other records of the same sizes."""
    data = bytearray(path.read_bytes())
    size = FRAME_OVERHEAD + int.from_bytes(data[:8], "little")
    payload = bytearray(data[12 : size - 4])
    payload[-1] ^= 1
    path.write_bytes(frame_record(payload) + data[size:])


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + frame_record(b""))


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("change", [_grow, _rewrite])
def test_a_file_that_is_another_one_raises(
    tmp_path: Path, index: bool, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.tfrecord"
    with tfrecord.TFRecordWriter(path, index=index) as writer:
        writer.write({"x": (list(range(30)), "int")})
    split = pickle.loads(pickle.dumps(tfrecord.make_splits(path, 1)[0]))
    change(path)
    if index:
        tfrecord.build_index(path)
    with pytest.raises(tfrecord.StaleIndexError, match="a.tfrecord"):
        list(split.batches(10))


def test_a_gzip_file_that_is_another_one_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord.gz"
    write(path, 0, 10, index=False, compression="GZIP")
    split = pickle.loads(pickle.dumps(tfrecord.make_splits(path, 1)[0]))
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(tfrecord.StaleIndexError, match="content"):
        split.reader()


def test_an_index_that_is_built_again_is_no_change(folder: Path) -> None:
    splits = shipped(tfrecord.make_splits(folder, 3))
    tfrecord.build_index(folder / "part-0.tfrecord", columns=["id"])
    assert [number for split in splits for number in read(split)] == list(range(TOTAL))


def test_a_missing_file(folder: Path) -> None:
    split = tfrecord.make_splits(folder, 1)[0]
    (folder / "part-2.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match="part-2"):
        list(split)


# ---- damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [True, False])
def test_a_damaged_record_belongs_to_one_split(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, 0, 100, index=index)
    reader = tfrecord.TFRecordReader(path)
    place = int(reader._view.store.index(0).offsets[33]) + 20
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    failed = []
    for split in shipped(tfrecord.make_splits(path, 10)):
        try:
            read(split)
        except tfrecord.CorruptRecordError as error:
            assert (error.path, error.record) == (str(path), 33)
            failed.append(split)
    assert len(failed) == 1
    splits = shipped(tfrecord.make_splits(path, 10, on_error="skip"))
    assert [number for split in splits for number in read(split)] == [
        number for number in range(100) if number != 33
    ]
    assert [split.reader().num_skipped for split in splits].count(1) == 1
    assert sum(split.reader().num_skipped for split in splits) == 1


def test_a_cut_file_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, 0, 50, index=False)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(tfrecord.TruncatedRecordError, match="record 49"):
        tfrecord.make_splits(path, 5)
    splits = tfrecord.make_splits(path, 5, on_error="skip")
    assert [number for split in splits for number in read(split)] == list(range(49))


@pytest.mark.parametrize("options", [{"num_splits": 0}, {"num_splits": -1}, {"target_bytes": 0}])
def test_wrong_numbers(folder: Path, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        tfrecord.make_splits(folder, **options)


# ---- other processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(folder: Path, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(read, tfrecord.make_splits(folder, 6))
    assert [number for part in found for number in part] == list(range(TOTAL))


def test_an_error_comes_back_from_another_process(folder: Path) -> None:
    splits = tfrecord.make_splits(folder, 3)
    _grow(folder / "part-5.tfrecord")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        with pytest.raises(tfrecord.StaleIndexError, match="part-5"):
            pool.map(read, splits)


def test_a_misspelt_option_blames_make_splits(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"make_splits\(\) got .* 'target_byte'; did you mean 'target_bytes'"):
        tfrecord.make_splits(tmp_path, target_byte=3)
    with pytest.raises(TypeError, match=r"make_splits\(\) got .* 'feature'; did you mean 'features'"):
        tfrecord.make_splits(tmp_path, feature={})
