from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from indexer.names import is_data_name, is_index_name, natural_key
from indexer.paths import expand_paths, walk_folder


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def names(paths: list[str]) -> list[str]:
    return [os.path.basename(path) for path in paths]


@pytest.mark.parametrize(
    "name",
    [
        "a.tfrecord",
        "a.tfrecords",
        "a.tfrec",
        "d.tfrecord-00000-of-00002",
        "a.tfrecord.gz",
        "b.TFRecord",
        "x/y.tfrecords.gz",
        "d.tfrecord-00000-of-00010.gz",
        "t.tfrec.gz",
        "toy-tfrecord-00000-of-00002",
        "a.tfr",
        "a.record",
        "a.record.zst",
        "a_tfrecord",
        "train-00000-of-00008",
        "x-00000-of-00012.gz",
        "x-00000-of-00012.zlib",
        "x-00000-of-00012.tfrecord.gzip",
        "x.tfrecord-00000-of-00012.zz",
        "x-00000-of-00012.tfexample",
        "mnist-train.tfrecord-0-of-1",
    ],
)
def test_usual_names(name: str) -> None:
    assert is_data_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "a.tfindex",
        "a.tfrecord.tfindex",
        "tfrecord",
        "a.txt",
        "a.gz",
        "a.tfrecord.tmp",
        "README",
        "part-1-of-3",
        "x-00000-of-00012.parquet",
        "x-00000-of-00012.csv.gz",
        "x.parquet-00000-of-00012",
        "x-00000-of-00012.tfindex",
        "model.ckpt.data-00000-of-00001",
        "x-00000-of-00012.tmp",
        "x-00000-of-00012.md5",
        "x-00000-of-00012.tfrecord.bak",
        "x-00000-of-00012.tfindex.bak",
        "record",
        "a.recordio.gz",
    ],
)
def test_other_names(name: str) -> None:
    assert not is_data_name(name)


def test_index_names() -> None:
    assert is_index_name("a.tfindex") and is_index_name("a.index") and is_index_name("a.idx")
    assert not is_index_name("index.tfrecord")


def test_a_folder_gives_data_files_in_natural_order(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "a-10.tfrecord",
        "a-9.tfrecord",
        "b.tfrecord-00001-of-00002",
        "b.tfrecord-00000-of-00002",
        "c.tfrec.gz",
        "a-9.tfrecord.tfindex",
        "a-9.tfindex",
        "_SUCCESS",
        ".hidden.tfrecord",
        "notes.txt",
        "d.tfrecord.tmp",
        "sub/e.tfrecord",
        ".a-9.tfrecord.tfindex.0.tmp",
    )
    expected = [
        "a-9.tfrecord",
        "a-10.tfrecord",
        "b.tfrecord-00000-of-00002",
        "b.tfrecord-00001-of-00002",
        "c.tfrec.gz",
    ]
    assert names(expand_paths(tmp_path)) == expected
    assert names(expand_paths(str(tmp_path))) == expected
    assert names(expand_paths(tmp_path, recursive=True)) == [*expected, "e.tfrecord"]


def test_a_folder_without_usual_names_gives_what_may_be_data(tmp_path: Path) -> None:
    touch(
        tmp_path, "part-00001", "part-00000", "part-00000.crc", "_SUCCESS", "part-00000.idx", "_temporary/x"
    )
    assert names(expand_paths(tmp_path)) == ["part-00000", "part-00001"]
    assert walk_folder(str(tmp_path), usual_only=True) == []


def test_globs(tmp_path: Path) -> None:
    touch(tmp_path, "x2", "x10", "x1.tfindex", "sub/x3", "_SUCCESS")
    assert names(expand_paths(tmp_path / "x*")) == ["x2", "x10"]
    assert names(expand_paths(str(tmp_path / "*"))) == ["x2", "x10"]
    assert names(expand_paths(str(tmp_path / "**" / "x*"))) == ["x3", "x2", "x10"]


def test_a_literal_name_wins_over_its_meaning_as_a_glob(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].tfrecord", "a1.tfrecord", "b{c}.tfrecord")
    assert names(expand_paths(tmp_path / "a[1].tfrecord")) == ["a[1].tfrecord"]
    assert names(expand_paths(tmp_path / "b{c}.tfrecord")) == ["b{c}.tfrecord"]


def test_a_list_keeps_its_order_and_its_repeats(tmp_path: Path) -> None:
    touch(tmp_path, "a", "b", "c.idx")
    given = [tmp_path / "b", str(tmp_path / "a"), tmp_path / "c.idx", str(tmp_path / "b")]
    assert names(expand_paths(given)) == ["b", "a", "c.idx", "b"]
    assert names(expand_paths(tuple(given[:2]))) == ["b", "a"]
    assert names(expand_paths([tmp_path / "[ab]", tmp_path / "a"])) == ["a", "b", "a"]


def test_urls(tmp_path: Path) -> None:
    assert expand_paths("s3://bucket/a.tfrecord") == ["s3://bucket/a.tfrecord"]
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("a-10.tfrecord", "a-2.tfrecord", "a-2.tfrecord.tfindex"):
        memory.pipe(f"/paths-test/{name}", b"")
    expected = ["memory:///paths-test/a-2.tfrecord", "memory:///paths-test/a-10.tfrecord"]
    assert [
        path.replace(":///", "://").replace("://", ":///") for path in expand_paths("memory://paths-test/*")
    ] == expected
    assert names(expand_paths("memory://paths-test/")) == ["a-2.tfrecord", "a-10.tfrecord"]
    with pytest.raises(FileNotFoundError, match="memory://paths-test/z"):
        expand_paths("memory://paths-test/z*")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for missing in (tmp_path / "absent.tfrecord", tmp_path / "*.tfrecord"):
        with pytest.raises(FileNotFoundError, match="absent|tfrecord"):
            expand_paths(missing)
        with pytest.raises(FileNotFoundError):
            expand_paths([missing])
    with pytest.raises(FileNotFoundError, match="no data files in folder"):
        expand_paths(tmp_path)
    with pytest.raises(FileNotFoundError, match="s3:/bucket/a; a URL has two slashes.*give it as text"):
        expand_paths(Path("s3://bucket/a"))
    for nothing in ([], "", [""]):
        with pytest.raises(ValueError, match="empty"):
            expand_paths(nothing)
    for wrong in (3, [3], None):
        with pytest.raises(TypeError):
            expand_paths(wrong)


def test_natural_order() -> None:
    order = ["a", "a1", "a2", "a02", "a10", "a10b", "b1"]
    assert sorted(reversed(order), key=natural_key) == ["a", "a1", "a02", "a2", "a10", "a10b", "b1"]


def test_odd_names(tmp_path: Path) -> None:
    touch(tmp_path, "spaß 1.tfrecord", "日本.tfrecord")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.tfrecord", os.O_CREAT))
    found = expand_paths(tmp_path)
    assert len(found) == 3 and all(os.path.exists(path) for path in found)
    assert expand_paths(os.fsencode(tmp_path)) == found


# ---- name@N ------------------------------------------------------------------------------------------


def sharded(folder: Path, base: str, total: int, tail: str = "") -> list[str]:
    found = [f"{base}-{number:05d}-of-{total:05d}{tail}" for number in range(total)]
    touch(folder, *found, *(name + ".tfindex" for name in found))
    return found


@pytest.mark.parametrize("tail", ["", ".gz", ".tfrecord"])
def test_a_set_of_shards_by_its_name(tail: str, tmp_path: Path) -> None:
    found = sharded(tmp_path, "train", 12, tail)
    touch(tmp_path, "train-extra", "train-00000-of-00012.tfrecord.tmp", "trainer-00000-of-00012")
    for name in ("train@12", "train@*", f"train@12{tail}", f"train@*{tail}"):
        assert names(expand_paths(tmp_path / name)) == found
    for name in ("train@8", "train@12.zz", "rain@12", "train@"):
        with pytest.raises(FileNotFoundError):
            expand_paths(tmp_path / name)
    touch(tmp_path, "train@12")
    assert names(expand_paths(tmp_path / "train@12")) == ["train@12"]


def test_a_set_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    sharded(tmp_path, "train", 3)
    sharded(tmp_path, "test", 2, ".gz")
    with pytest.raises(
        FileNotFoundError, match="no shards of .*train@8; the folder has 'test@2.gz', 'train@3'$"
    ):
        expand_paths(tmp_path / "train@8")


def test_several_sets_of_one_name_are_an_error(tmp_path: Path) -> None:
    sharded(tmp_path, "train", 2)
    sharded(tmp_path, "train", 3)
    with pytest.raises(ValueError, match="several sets.*train-00000-of-00002.*train-00000-of-00003"):
        expand_paths(tmp_path / "train@*")
    assert len(expand_paths(tmp_path / "train@3")) == 3
    sharded(tmp_path, "train", 3, ".gz")
    with pytest.raises(ValueError, match="several sets.*train-00000-of-00003.*train-00000-of-00003.gz"):
        expand_paths(tmp_path / "train@3")
    assert len(expand_paths(tmp_path / "train@3.gz")) == 3


def test_shards_count_as_data_in_a_folder(tmp_path: Path) -> None:
    found = sharded(tmp_path, "train", 8)
    touch(tmp_path, "README", "notes.txt", "a.tfrecord")
    assert sorted(names(expand_paths(tmp_path))) == ["a.tfrecord", *found]
    assert sorted(names(walk_folder(str(tmp_path), usual_only=True))) == ["a.tfrecord", *found]


def test_usual_names_only(tmp_path: Path) -> None:
    touch(tmp_path, "x", "y")
    assert names(expand_paths(tmp_path)) == ["x", "y"]
    with pytest.raises(FileNotFoundError, match="no data files in folder"):
        expand_paths(tmp_path, usual_only=True)


# ---- URLs and permissions ----------------------------------------------------------------------------


def test_folders_and_sets_behind_urls() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("a.tfrecord", "b.tfrecord", "README", "t-00000-of-00002", "t-00001-of-00002"):
        memory.pipe(f"/paths-test/folder/{name}", b"x")
    for url in ("memory://paths-test/folder", "memory://paths-test/folder/"):
        found = ["a.tfrecord", "b.tfrecord", "t-00000-of-00002", "t-00001-of-00002"]
        assert [name.rsplit("/", 1)[1] for name in expand_paths(url)] == found
    for nothing in ("memory://paths-test/fold", "memory://paths-test/none/", "memory://paths-test/folder/x*"):
        with pytest.raises(FileNotFoundError, match=f"no data files at {re.escape(nothing)}"):
            expand_paths(nothing)
    found = expand_paths("memory://paths-test/folder/t@*")
    assert [name.rsplit("/", 1)[1] for name in found] == ["t-00000-of-00002", "t-00001-of-00002"]
    assert expand_paths("memory://paths-test/folder/a.tfrecord") == ["memory://paths-test/folder/a.tfrecord"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs a POSIX system")
def test_what_may_not_be_looked_into_is_not_called_absent(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    touch(closed, "a.tfrecord")
    closed.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/") and "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o755)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        for path in (closed, closed / "a.tfrecord"):
            with pytest.raises(PermissionError) as caught:
                expand_paths(path)
            assert str(closed) in str(caught.value)
    finally:
        os.seteuid(user)
        closed.chmod(0o755)
