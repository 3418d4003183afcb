from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import example, ids, sequence, write

from indexer.build import build_index as build_plain_index
from indexer.errors import FeatureKindError, MissingFeatureError, TFRecordError
from tfrecord.columns import BytesColumn, ColumnBatch, SequenceBatch
from tfrecord.features import FixedLenFeature
from tfrecord.reader import TFRecordReader, build_index


@pytest.fixture(params=["plain", "indexed", "text index", "pread", "gzip", "zlib", "indexed gzip", "many"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> TFRecordReader:
    """Twenty records with ids 0 to 19, stored in all the ways there are."""
    kind = request.param
    payloads = [example(number) for number in range(20)]
    if kind == "many":
        for number, (start, stop) in enumerate([(0, 0), (0, 7), (7, 7), (7, 8), (8, 20), (20, 20)]):
            suffix = ".gz" if number == 3 else ""
            path = write(tmp_path / f"a-{number}.tfrecord{suffix}", payloads[start:stop])
            if number % 2:
                build_index(path)
        return TFRecordReader(tmp_path)
    suffix = ".gz" if "gzip" in kind else ".zz" if kind == "zlib" else ""
    path = write(tmp_path / f"a.tfrecord{suffix}", payloads)
    if kind.startswith("indexed"):
        build_index(path)
    if kind == "text index":
        build_plain_index(path, tmp_path / "a.tfindex", format="text")
    return TFRecordReader(path, mmap=kind != "pread")


def test_every_record_at_every_position(reader: TFRecordReader) -> None:
    assert len(reader) == 20
    for position in [*range(20), *range(19, -1, -1), 7, 7]:
        assert reader[position]["id"].tolist() == [position]
        assert reader[position - 20]["id"].tolist() == [position]
        assert bytes(reader.raw(position)) == example(position)
    assert reader[np.int64(3)]["name"] == b"n3"
    assert ids(reader) == list(range(20))
    assert ids(reader) == list(range(20))  # again


def test_columns_in_the_order_asked(reader: TFRecordReader) -> None:
    asked = [5, 1, 5, -1, 0]
    batch = reader.read(asked)
    assert isinstance(batch, ColumnBatch)
    assert ids(batch) == [5, 1, 5, 19, 0]
    names = [b"n5", b"n1", b"n5", b"n19", b"n0"]
    assert batch["name"].to_list() in (names, [[name] for name in names])
    assert batch["list"].to_list() == [[2.5], [0.5], [2.5], [9.5] * 3, []]
    assert ids(reader[asked]) == ids(batch)
    assert ids(reader[np.array(asked)]) == ids(batch)
    assert ids(reader[3:17:4]) == [3, 7, 11, 15]
    assert ids(reader[::-1]) == list(range(19, -1, -1))
    mask = np.zeros(20, bool)
    mask[[2, 9]] = True
    assert ids(reader[mask]) == [2, 9]
    assert ids(reader.read(range(4, 6))) == [4, 5]
    assert reader.read([]).num_rows == 0
    assert list(reader.read([1], columns=["id"])) == ["id"]
    raw = reader.read_raw(asked)
    assert isinstance(raw, BytesColumn)
    assert raw.to_list() == [example(number) for number in (5, 1, 5, 19, 0)]


def test_outside_the_range(reader: TFRecordReader) -> None:
    for position in (20, -21):
        for way in (
            reader.__getitem__,
            reader.raw,
            lambda p: reader.read([0, p]),
            lambda p: reader.read_raw([p]),
        ):
            with pytest.raises(
                IndexError, match=f"position {position} is out of range: there are 20 records"
            ):
                way(position)
    with pytest.raises(TypeError):
        reader["id"]
    with pytest.raises(TypeError):
        reader.read([0.5])
    with pytest.raises(IndexError, match="mask"):
        reader.read([True, False])


def test_batches(reader: TFRecordReader) -> None:
    assert [ids(batch) for batch in reader.batches(8)] == [
        list(range(8)),
        list(range(8, 16)),
        list(range(16, 20)),
    ]
    assert [ids(batch) for batch in reader.batches(8, drop_last=True)] == [list(range(8)), list(range(8, 16))]
    assert [ids(batch) for batch in reader.batches(100)] == [list(range(20))]
    assert [list(batch) for batch in reader.batches(20, ["id"])] == [["id"]]
    shuffled = [ids(batch) for batch in reader.batches(8, shuffle=True, seed=1)]
    assert [len(batch) for batch in shuffled] == [8, 8, 4]
    assert sorted(sum(shuffled, [])) == list(range(20))
    assert shuffled == [ids(batch) for batch in reader.batches(8, shuffle=True, seed=1)]
    assert shuffled != [ids(batch) for batch in reader.batches(8, shuffle=True, seed=1, epoch=1)]
    assert shuffled != [ids(batch) for batch in reader.batches(8, shuffle=True, seed=2)]
    assert len(list(reader.batches(8, shuffle=True, drop_last=True))) == 2


@pytest.mark.parametrize("size", [0, -1, 1.5])
def test_bad_batch_size_fails_at_the_call(tmp_path: Path, size: int) -> None:
    reader = TFRecordReader(write(tmp_path / "a", [example(0)]))
    with pytest.raises(ValueError, match="batch_size is"):
        reader.batches(size)


def test_views_of_chosen_records(reader: TFRecordReader) -> None:
    view = reader.select([5, 3, 3, -1])
    assert len(view) == 4
    assert ids(view) == [5, 3, 3, 19]
    assert ids(view.read([3, 0])) == [19, 5]
    assert view[1]["name"] == b"n3"
    assert bytes(view.raw(-1)) == example(19)
    assert [ids(batch) for batch in view.batches(3)] == [[5, 3, 3], [19]]
    assert sorted(sum((ids(batch) for batch in view.batches(3, shuffle=True)), [])) == [3, 3, 5, 19]
    assert ids(view.select([3, 1])) == [19, 3]
    assert view.locate(0) == reader.locate(5)
    assert ids(pickle.loads(pickle.dumps(view))) == [5, 3, 3, 19]
    assert len(reader) == 20
    assert ids(reader.select([])) == []


def test_iter_file_streams_a_share(reader: TFRecordReader) -> None:
    starts = reader.file_starts
    assert starts[-1] == 20
    for number in range(reader.num_files):
        count = int(starts[number + 1] - starts[number])
        for start in (0, 1, 3, 50):
            for step in (1, 2, 3, 30):
                found = [
                    (place, bytes(payload))
                    for place, payload in reader.iter_file(number, start=start, step=step)
                ]
                expected = range(start, count, step)
                assert found == [(place, example(int(starts[number]) + place)) for place in expected]
    with pytest.raises(IndexError, match="there are"):
        reader.iter_file(reader.num_files)
    with pytest.raises(ValueError, match="step at least 1"):
        reader.iter_file(0, step=0)


def test_it_pickles_without_handles(reader: TFRecordReader) -> None:
    expected = list(reader.read_raw(range(20)))
    data = pickle.dumps(reader)
    assert len(data) < 5000
    again = pickle.loads(data)
    assert again.paths == reader.paths
    assert list(again.read_raw(range(20))) == expected
    assert ids(again) == list(range(20))


def test_it_pickles_after_its_schema_was_read(reader: TFRecordReader) -> None:
    schema = reader.schema
    again = pickle.loads(pickle.dumps(reader))
    assert again.schema == schema == pickle.loads(pickle.dumps(schema))
    assert ids(again) == list(range(20))


def test_views_outlive_the_reader(reader: TFRecordReader) -> None:
    views = [reader.raw(position) for position in range(20)]
    column = reader.read_raw(range(20))
    streamed = [payload for number in range(reader.num_files) for _, payload in reader.iter_file(number)]
    reader.close()
    for number, view in enumerate(views):
        assert view.readonly
        assert view == example(number) == column[number] == streamed[number]
        with pytest.raises(TypeError):
            view[0] = 1
    reader.close()
    reader.close()
    del reader
    assert views[19] == example(19)


def test_several_threads_share_a_reader(reader: TFRecordReader) -> None:
    def work(seed: int) -> list[int]:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            asked = rng.integers(0, 20, 5)
            assert ids(reader.read(asked)) == asked.tolist()
            position = int(asked[0])
            assert reader[position]["id"].tolist() == [position]
        return ids(reader)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [[*range(20)]] * 8


def test_features_of_a_reader(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(number) for number in range(8)])
    reader = TFRecordReader(path, features={"id": FixedLenFeature((), "int32"), "list": "float"})
    batch = reader.read([4, 2])
    assert list(batch) == ["id", "list"]
    assert batch["id"].tolist() == [4, 2]
    assert batch["id"].dtype == np.int32
    assert reader[3]["list"].tolist() == [1.5] * 3
    assert reader[4]["list"].tolist() == []
    with pytest.raises(KeyError, match="name"):
        reader.read([0], columns=["name"])
    with pytest.raises(KeyError, match="name"):
        reader.batches(2, ["name"])


def test_wrong_requests_name_key_file_and_record(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}", [example(4 * i + j) for j in range(4)]) for i in range(2)]
    asking: dict[type[TFRecordError], dict[str, Any]] = {
        FeatureKindError: {"name": "int"},
        MissingFeatureError: {"nothing": FixedLenFeature((), "int64")},
    }
    for kind, features in asking.items():
        reader = TFRecordReader(paths, features=features, on_error="skip")  # it is not skipped
        key = next(iter(features))
        for way in (
            lambda r=reader: r[6],
            lambda r=reader: r.read([6, 0]),
            lambda r=reader: r.decode(r.read_raw([6]), [6]),
        ):
            with pytest.raises(kind) as caught:
                way()
            assert (caught.value.key, caught.value.path, caught.value.record) == (key, reader.paths[1], 2)
            assert key in str(caught.value) and reader.paths[1] in str(caught.value)
        for way in (lambda r=reader: list(r), lambda r=reader: list(r.batches(3))):
            with pytest.raises(kind) as caught:
                way()
            assert (caught.value.key, caught.value.path, caught.value.record) == (key, reader.paths[0], 0)
        assert reader.num_skipped == 0


def test_record_types(tmp_path: Path) -> None:
    examples = write(tmp_path / "e", [b"", example(1)])
    assert TFRecordReader(examples).record_type == "example"
    sequences = write(tmp_path / "s", [sequence(0), sequence(4)])
    reader = TFRecordReader(sequences)
    assert reader.record_type == "sequence_example"
    context, lists = reader[1]
    assert context["id"].tolist() == [4]
    assert [step.tolist() for step in lists["tokens"]] == [[0, 4]]
    batch = reader.read([1, 0])
    assert isinstance(batch, SequenceBatch)
    assert batch.context["id"].to_list() == [[4], [0]]
    assert batch.feature_lists["tokens"].to_list() == [[[0, 4]], []]
    assert [context["id"][0] for context, _ in reader] == [0, 4]

    blobs = write(tmp_path / "b", [b"\xff\xff", b"x" * 40])
    with pytest.warns(UserWarning, match="given as bytes"):
        reader = TFRecordReader(blobs)
        assert reader.record_type == "bytes"
    assert list(reader) == [b"\xff\xff", b"x" * 40]
    quiet = TFRecordReader(blobs, record_type="bytes")
    assert quiet[1] == b"x" * 40
    assert isinstance(quiet.read([1, 0]), BytesColumn)
    assert quiet.read([1, 0]).to_list() == [b"x" * 40, b"\xff\xff"]
    assert [batch.to_list() for batch in quiet.batches(1)] == [[b"\xff\xff"], [b"x" * 40]]
    with pytest.raises(ValueError, match="no columns"):
        quiet.read([0], columns=["a"])


def test_an_empty_file_and_empty_records(tmp_path: Path) -> None:
    empty = TFRecordReader(write(tmp_path / "empty", []))
    assert (len(empty), list(empty), list(empty.batches(4))) == (0, [], [])
    assert empty.record_type == "example"
    assert empty.read([]).num_rows == 0
    blank = TFRecordReader(write(tmp_path / "blank", [b"", b""]))
    assert list(blank) == [{}, {}]
    assert blank.read([1, 0]).num_rows == 2


def test_a_reader_is_a_random_access_data_source(tmp_path: Path) -> None:
    """What Grain asks of one: len, [i] with any integer type, a repr without an address."""
    reader = TFRecordReader(write(tmp_path / "a", [example(number) for number in range(3)]))
    assert [int(reader[np.int32(i)]["id"][0]) for i in range(len(reader))] == [0, 1, 2]
    assert " at 0x" not in repr(reader)
    assert reader[np.array(2)]["id"].tolist() == [2]


def test_a_scalar_tensor_is_a_position(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    reader = TFRecordReader(write(tmp_path / "a", [example(number) for number in range(3)]))
    assert reader[torch.tensor(2)]["id"].tolist() == [2]
    assert ids(reader[torch.tensor([2, 0])]) == [2, 0]


def test_the_functions_are_where_the_lineage_has_them() -> None:
    from tfrecord import loaders, process, reader

    for name in ("tfrecord_iterator", "tfrecord_loader", "example_loader", "sequence_loader"):
        assert getattr(reader, name) is getattr(loaders, name)
    assert reader.multi_tfrecord_loader is loaders.multi_tfrecord_loader
    assert reader.process_feature is process.process_feature


@pytest.mark.parametrize("engine_array", ["numpy", "torch"])
def test_what_is_no_position_is_refused(tmp_path: Path, engine_array: str) -> None:
    reader = TFRecordReader(write(tmp_path / "a", [example(i) for i in range(3)]))
    true: Any = np.array(True)
    if engine_array == "torch":
        true = pytest.importorskip("torch").tensor(True)
    calls: list[Any] = [reader.raw, reader.locate, reader.__getitem__]
    for call in calls:
        for wrong in (True, np.True_, true):
            with pytest.raises(TypeError, match="bool|ndarray"):
                call(wrong)
    for strange in ({1, 2}, {1: 2}, [[0], [1, 2]], "1", b"1", iter([1]), None, 1.0, [1.0], [None]):
        with pytest.raises(TypeError, match="integer"):
            reader.read(strange)
    for far in ([2**63], [2**70], [-(2**70)], np.array([2**64 - 1], np.uint64), [-4], [0, 3]):
        with pytest.raises(IndexError, match="there are 3 records"):
            reader.read(far)
    with pytest.raises(IndexError, match=f"position {2**70} is out of range: there are 3 records"):
        reader[2**70]


def test_positions_that_are_given_are_left_alone(tmp_path: Path) -> None:
    reader = TFRecordReader(write(tmp_path / "a", [example(i) for i in range(3)]))
    asked = np.array([-1, 0, -3])
    view = reader.select(asked)
    assert ids(reader.read(asked)) == [2, 0, 0] == ids(view)
    asked[:] = 1
    assert ids(view) == [2, 0, 0]
    assert asked.flags.writeable


@pytest.mark.parametrize("size", [0, -1, 1.5, 2.0, True, "3", None, float("nan"), float("inf")])
def test_batch_sizes_that_are_none(tmp_path: Path, size: Any) -> None:
    reader = TFRecordReader(write(tmp_path / "a", [example(0)]))
    with pytest.raises(ValueError, match="an integer of at least 1"):
        reader.batches(size)
