"""Metadata of a folder: what is read from it, and one clear error for each way that it is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from prepared import dict_of, tensor, write_folder

from indexer.errors import CorruptRecordError
from tfrecord import tfds
from tfrecord.torch import TFRecordDataset

FEATURES = dict_of(x=tensor("int64"))


def rows(*values: int) -> list[dict[str, Any]]:
    return [{"x": (value, "int")} for value in values]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    splits = {"train": [rows(0, 1, 2), rows(3, 4), rows(5, 6, 7, 8)], "test": [rows(10, 11)]}
    return write_folder(tmp_path / "things" / "1.0.0", FEATURES, splits)


def change(folder: Path, **fields: Any) -> None:
    path = folder / "dataset_info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def values(reader: Any) -> list[int]:
    return [int(example["x"]) for example in reader]


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train", list(range(9))),
        ("all", [*range(9), 10, 11]),
        ("test+train", [10, 11, *range(9)]),
        ("train[2:4]", [2, 3]),
        ("train[-3:]+test[:1]", [6, 7, 8, 10]),
        ("train[1shard]", [3, 4]),
        ("train[:50%]", [0, 1, 2, 3]),  # 4.5 rounds to even
        ("train[6:]+train[:2]+train[6:]", [6, 7, 8, 0, 1, 6, 7, 8]),
        ("train[4:4]", []),
    ],
)
def test_a_split_is_read_in_stored_order(folder: Path, split: str, expected: list[int]) -> None:
    reader = tfds.open(folder, split)
    assert len(reader) == len(expected)
    assert values(reader) == expected == [int(reader[i]["x"]) for i in range(len(expected))]
    assert reader[:]["x"].tolist() == expected
    batches = list(reader.batches(2))
    assert [value for batch in batches for value in batch["x"].tolist()] == expected


def test_even_splits(folder: Path) -> None:
    parts = tfds.even_splits("train+test", 2)
    assert [values(tfds.open(folder, part)) for part in parts] == [[0, 1, 2, 3, 4, 10], [5, 6, 7, 8, 11]]
    dropped = tfds.even_splits("train", 2, drop_remainder=True)
    assert [values(tfds.open(folder, part)) for part in dropped] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert values(tfds.open(folder, dropped[1] + "test")) == [4, 5, 6, 7, 10, 11]
    assert values(tfds.open(folder, "test" + tfds.even_splits(dropped[1], 4)[0])) == [10, 11, 4]
    with pytest.raises(ValueError, match="n is 0"):
        tfds.even_splits("train", 0)
    with pytest.raises(TypeError, match="not int"):
        tfds.open(folder, 3)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("nope", "no split 'nope'; there are 'train', 'test'"),
        ("train[:10]", "beyond the 9 examples"),
        ("train[5]", "need a slice"),
        ("train[10%]", "need a slice"),
        ("train[:101%]", "from -100 to 100"),
        ("all[:1]", "cannot have a slice"),
        ("train[1:2:3]", "not a slice"),
        ("train[:1.5]", "no valid numbers"),
        ("", "not valid"),
    ],
)
def test_what_tfds_refuses_is_refused(folder: Path, split: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        tfds.open(folder, split)


def test_info(folder: Path) -> None:
    reader = tfds.open(str(folder))
    assert {name: split.num_examples for name, split in reader.info.splits.items()} == {"train": 9, "test": 2}
    assert (reader.info.name, reader.info.version) == ("things", "1.0.0")
    assert repr(reader) == f"TFDSReader({str(folder)!r})"
    assert repr(tfds.open(folder, "test", decode=False)).endswith("split='test', decode=False)")
    with pytest.raises(TypeError, match="record_type follows from the folder"):
        tfds.open(folder, record_type="bytes")


def test_a_parent_says_what_there_is(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "things" / "small" / "2.0.0")
    (tmp_path / "things" / ".hidden").mkdir()
    with pytest.raises(FileNotFoundError, match=r"there are 1\.0\.0, small/2\.0\.0"):
        tfds.open(tmp_path / "things")
    with pytest.raises(FileNotFoundError, match=r"there are things/1\.0\.0, things/small/2\.0\.0"):
        tfds.open(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="not a folder prepared by TFDS"):
        tfds.open(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        tfds.open(tmp_path / "missing")


@pytest.mark.filterwarnings("ignore:.*has no index")
def test_urls(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/tfds-data/things/1.0.0/{path.name}", path.read_bytes())
    try:
        reader = tfds.open("memory://tfds-data/things/1.0.0/", "train[2:5]+test")
        assert values(reader) == [2, 3, 4, 10, 11] and int(reader[-1]["x"]) == 11
        with pytest.raises(FileNotFoundError, match=r"there are things/1\.0\.0"):
            tfds.open("memory://tfds-data")
        with pytest.raises(FileNotFoundError, match="memory://tfds-none: no dataset_info.json"):
            tfds.open("memory://tfds-none")
        memory.rm("/tfds-data/things/1.0.0/things-train.tfrecord-00001-of-00003")
        with pytest.raises(FileNotFoundError, match="1 of 3 shards .* are missing: memory://"):
            tfds.open("memory://tfds-data/things/1.0.0")
    finally:
        memory.rm("/tfds-data", recursive=True)


def test_damage_is_skipped(folder: Path) -> None:
    path = folder / "things-train.tfrecord-00000-of-00003"
    data = bytearray(path.read_bytes())
    data[len(data) // 3 - 5] ^= 1
    path.write_bytes(data)
    reader = tfds.open(folder, on_error="skip")
    assert values(reader) == list(range(1, 9)) and reader.num_skipped == 1
    assert [x for batch in reader.batches(4) for x in batch["x"].tolist()] == list(range(1, 9))
    assert reader[:3]["x"].tolist() == [1, 2]


def test_a_missing_shard_raises_at_once(folder: Path) -> None:
    (folder / "things-train.tfrecord-00001-of-00003").unlink()
    with pytest.raises(FileNotFoundError, match="1 of 3 shards .* are missing: .*-00001-of-00003"):
        tfds.open(folder)
    assert values(tfds.open(folder, "train[:1shard]+test")) == [0, 1, 2, 10, 11]


def test_a_count_that_disagrees_raises_when_it_is_met(folder: Path) -> None:
    lengths = [{"name": "train", "shardLengths": ["3", "3", "3"]}]
    change(folder, splits=lengths)
    reader = tfds.open(folder)
    message = "00001-of-00003: the file holds 2 records, not 3 as its data set says"
    assert len(reader) == 9 and int(reader[2]["x"]) == 2
    for read in (
        lambda: reader[3],
        lambda: reader[[0, 5]],
        lambda: list(reader),
        lambda: list(reader.batches(4)),
    ):
        with pytest.raises(CorruptRecordError, match=message):
            read()
    seen: list[int] = []
    with pytest.raises(CorruptRecordError, match=message):
        for batch in TFRecordDataset(reader, batch_size=1, rank=0, world_size=1):
            seen += batch["x"].tolist()
    assert seen[:3] == [0, 1, 2]


def test_counts_that_no_file_has_room_for(folder: Path) -> None:
    change(
        folder, splits=[{"name": "test", "shardLengths": [2**61]}, {"name": "more", "shardLengths": [2**62]}]
    )
    assert len(tfds.open(folder, "test")) == 2**61
    with pytest.raises(tfds.TFDSError, match="more than fit into the file"):
        tfds.open(folder, "test[1:]")
    (folder / "things-more.tfrecord-00000-of-00001").write_bytes(b"")
    with pytest.raises(tfds.TFDSError, match="claims 6,917"):
        tfds.open(folder, "all")


def test_shard_lengths_of_zero_have_no_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, FEATURES, {"train": [rows(1), [], rows(2)], "none": []})
    (folder / "things-train.tfrecord-00001-of-00003").unlink()
    assert values(tfds.open(folder)) == [1, 2]
    assert values(tfds.open(folder, "all")) == [1, 2]
    with pytest.raises(ValueError, match="no examples"):
        tfds.open(folder, "none")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fileFormat": "array_record"}, "have the format 'array_record'; only 'tfrecord'"),
        ({"file_format": "riegeli"}, "'riegeli'"),
        ({"splits": {}}, "splits is not a list"),
        ({"splits": [3]}, "a split is a JSON int"),
        ({"splits": [{"shardLengths": ["1"]}]}, "has no name"),
        ({"splits": [{"name": "train", "shardLengths": ["x"]}]}, "'x', not a number of records"),
        ({"splits": [{"name": "train", "shardLengths": [-1]}]}, "'-1', not a number"),
        ({"splits": [{"name": "train", "shardLengths": [True]}]}, "'True', not a number"),
        ({"splits": [{"name": "train", "shardLengths": ["9" * 5000]}]}, "not a number"),
        ({"splits": [{"name": "train", "shardLengths": [2**62, 2**62]}]}, "claims 9,223"),
        ({"splits": [{"name": "train", "shardLengths": "12"}]}, "is not a list"),
        ({"splits": [{"name": "train", "numShards": "4"}]}, "has no shardLengths"),
        ({"splits": [{"name": "train", "shardLengths": ["1"]}] * 2}, "occurs twice"),
        ({"name": 3}, "name is a JSON int"),
    ],
)
def test_damaged_metadata(folder: Path, fields: dict[str, Any], message: str) -> None:
    change(folder, **fields)
    with pytest.raises(tfds.TFDSError, match=message):
        tfds.open(folder)


@pytest.mark.parametrize("name", ["dataset_info.json", "features.json"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": ', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[1]", "holds a JSON list"),
        (b"\xff\xfe", "not valid UTF-8 at byte 0"),
        (b'{"a":' * 100_000, "nested too deep|not valid JSON"),
    ],
)
def test_files_that_are_no_json(folder: Path, name: str, text: bytes, message: str) -> None:
    (folder / name).write_bytes(text)
    with pytest.raises(tfds.TFDSError, match=f"{name}: .*({message})"):
        tfds.open(folder)


def test_missing_features(folder: Path) -> None:
    (folder / "features.json").unlink()
    with pytest.raises(tfds.TFDSError, match=r"features\.json is missing"):
        tfds.open(folder)


@pytest.mark.parametrize(
    "template",
    [
        "../{SPLIT}-{SHARD_INDEX}",
        "/etc/passwd",
        "a/../../{SPLIT}",
        "..\\{SPLIT}",
        "c:{SPLIT}",
        "s3://bucket/{SPLIT}",
        "{SPLIT}/",
        "x\0y",
    ],
)
def test_templates_that_lead_out_of_the_folder(folder: Path, template: str) -> None:
    change(folder, splits=[{"name": "train", "shardLengths": ["3"], "filepathTemplate": template}])
    with pytest.raises(tfds.TFDSError, match="leads out of the folder"):
        tfds.open(folder)


def test_templates(folder: Path) -> None:
    def read(template: str, name: str) -> list[int]:
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(folder / "things-test.tfrecord-00000-of-00001", target)
        change(folder, splits=[{"name": "test", "shardLengths": ["2"], "filepathTemplate": template}])
        return values(tfds.open(folder, "test"))

    assert read("{SPLIT}/{DATASET}.{FILEFORMAT}-{SHARD_X_OF_Y}", "test/things.tfrecord-00000-of-00001") == [
        10,
        11,
    ]
    assert read("{SHARD_INDEX}_{NUM_SHARDS}", "00000_00001") == [10, 11]
    with pytest.raises(tfds.TFDSError, match=r"unknown part '\{SPLIT.__class__\}'"):
        read("{SPLIT.__class__}", "other")
    change(folder, name="../things", splits=[{"name": "test", "shardLengths": ["2"]}])
    with pytest.raises(tfds.TFDSError, match="leads out"):
        tfds.open(folder, "test")


def test_a_batch_shows_its_columns_short(tmp_path: Path) -> None:
    features = dict_of(x=tensor("int64"), inner=dict_of(y=tensor("float32", 100)))
    row = {"x": (1, "int"), "inner/y": ([0.5] * 100, "float")}
    batch = tfds.open(write_folder(tmp_path / "nested" / "1.0.0", features, {"train": [[row, row]]})).read(
        [0, 1]
    )
    assert repr(batch).startswith("NestedBatch: 2 rows, 2 columns") and "'inner/y'" in repr(batch)
    assert len(repr(batch)) < 1000
    assert "NestedBatch: 2 rows" in batch._repr_html_()


@pytest.mark.parametrize("table", ["to_arrow", "to_pandas", "to_polars"])
def test_nested_features_do_not_make_a_table(folder: Path, table: str) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip(table.removeprefix("to_").replace("arrow", "pyarrow"))
    with pytest.raises(TypeError, match="nested features do not make a table"):
        getattr(tfds.open(folder), table)()
