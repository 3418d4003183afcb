"""Writers of objects behind URLs that fail: what was there before stays, and nothing half is left."""

from __future__ import annotations

from typing import Any, BinaryIO

import pytest

import tfrecord
from indexer.stores.urls import FsspecStore

fsspec = pytest.importorskip("fsspec")

SHARDS = [f"t-{number:05d}-of-00003" for number in range(3)]


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A new folder of the memory file system."""
    return f"memory://writer-urls/{request.node.name}"


def there(folder: str) -> dict[str, bytes]:
    """The objects of a folder by name."""
    files = fsspec.filesystem("memory")
    return {path.rsplit("/", 1)[1]: files.cat_file(path) for path in files.find(folder[len("memory:/") :])}


def write_set(folder: str, first: int) -> None:
    with tfrecord.ShardedTFRecordWriter(f"{folder}/t", 3, index=True) as writer:
        for number in range(first, first + 30):
            writer.write({"id": (number, "int")})


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on the store refuses to take the object of this name."""
    real = FsspecStore._upload

    def upload(self: FsspecStore, key: str, file: BinaryIO) -> None:
        if key.endswith(name):
            raise PermissionError(13, "refused", key)
        real(self, key, file)

    monkeypatch.setattr(FsspecStore, "_upload", upload)


@pytest.mark.parametrize("refused", SHARDS)
def test_a_set_whose_shard_is_refused_is_not_there(
    folder: str, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    refuse(monkeypatch, refused)
    with pytest.raises(PermissionError, match="refused"):
        write_set(folder, 0)
    assert there(folder) == {}


def test_shards_of_before_that_were_not_replaced_stay(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(folder, 0)
    before = there(folder)
    assert sorted(before) == sorted([*SHARDS, *(f"{name}.tfindex" for name in SHARDS)])
    refuse(monkeypatch, SHARDS[1])
    with pytest.raises(PermissionError, match="refused"):
        write_set(folder, 100)
    assert there(folder) == {name: before[name] for name in (SHARDS[1], f"{SHARDS[1]}.tfindex")}


@pytest.mark.parametrize("index", [None, True])
def test_an_object_whose_replacement_fails_keeps_its_index(folder: str, index: Any) -> None:
    path = f"{folder}/a.tfrecord"
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        writer.write({"id": (1, "int")})
    before = there(folder)
    with pytest.raises(KeyError, match="the caller's"), tfrecord.TFRecordWriter(path, index=index) as writer:
        writer.write({"id": (2, "int")})
        raise KeyError("the caller's")
    assert there(folder) == before
