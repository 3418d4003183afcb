from __future__ import annotations

import errno
import gc
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer import localfile
from indexer._engine import kernel
from indexer.errors import TruncatedRecordError
from indexer.files import DataFile, is_url, open_data, path_name

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "data.bin"
    file.write_bytes(CONTENT)
    return file


def open_as(kind: str, path: Path) -> DataFile:
    if kind == "object":
        return open_data(io.BytesIO(path.read_bytes()))
    if kind == "url":
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").pipe("/files-test/data.bin", path.read_bytes())
        return open_data("memory://files-test/data.bin")
    return open_data(path, mmap=kind == "map")


KINDS = ["map", "pread", "object", "url"]


@pytest.mark.parametrize("kind", KINDS)
def test_views_at_any_place(kind: str, path: Path) -> None:
    with open_as(kind, path) as data:
        assert data.size == len(CONTENT)
        for offset, length in ((0, 0), (0, 10), (4095, 4099), (len(CONTENT) - 1, 1), (len(CONTENT), 0)):
            view = data.view(offset, length)
            assert view.readonly
            assert bytes(view) == CONTENT[offset : offset + length]
        for offset, length in ((-1, 2), (0, -1), (len(CONTENT), 1), (0, 1 << 62), (1 << 63, 1)):
            with pytest.raises(IndexError):
                data.view(offset, length)
        data.advise([(0, 100), (200, 100), (len(CONTENT) - 5, 1000)])
        data.check_size()


@pytest.mark.parametrize("kind", KINDS)
def test_views_outlive_the_file(kind: str, path: Path) -> None:
    data = open_as(kind, path)
    view = data.view(5, 3000)
    data.close()
    data.close()
    with pytest.raises(ValueError, match="closed"):
        data.view(0, 1)
    del data
    assert bytes(view) == CONTENT[5:3005]


@pytest.mark.parametrize("kind", ["map", "pread"])
def test_a_file_that_shrank(kind: str, path: Path) -> None:
    data = open_as(kind, path)
    os.truncate(path, 100)
    with pytest.raises(TruncatedRecordError, match="shrank from 16384 to 100") as caught:
        data.view(8000, 10)
    assert caught.value.path == str(path)
    assert caught.value.reason == "truncated_record"


@pytest.mark.parametrize("name", ["renamed", "linked"])
def test_a_file_that_shrank_under_another_name(name: str, path: Path, tmp_path: Path) -> None:
    data = open_data(path)
    other = tmp_path / name
    if name == "renamed":
        path.rename(other)
        path.write_bytes(CONTENT)
    else:
        os.link(path, other)
        path.unlink()
    os.truncate(other, 100)
    with pytest.raises(TruncatedRecordError, match="shrank from 16384 to 100"):
        data.view(8000, 10)


@pytest.mark.skipif(kernel is None, reason="the kernel is not loaded")
def test_there_are_never_too_many_maps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(kernel, "MOST_MAPS", 0)
    data = open_data(path)
    assert not data.mapped and bytes(data.view(3, 3)) == CONTENT[3:6]


def test_a_file_that_was_replaced_is_still_whole(path: Path, tmp_path: Path) -> None:
    data = open_data(path)
    (tmp_path / "other").write_bytes(b"short")
    os.replace(tmp_path / "other", path)
    assert bytes(data.view(0, 10)) == CONTENT[:10]
    path.unlink()
    assert bytes(data.view(10, 10)) == CONTENT[10:20]


def test_the_whole_buffer_of_a_map(path: Path) -> None:
    data = open_data(path)
    assert data.mapped and bytes(data.buffer()) == CONTENT
    assert data.buffer().readonly
    with pytest.raises(ValueError, match="not mapped"):
        open_data(path, mmap=False).buffer()


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for mmap in (True, False):
        with open_data(tmp_path / "empty", mmap=mmap) as data:
            assert data.size == 0 and bytes(data.view(0, 0)) == b""


@pytest.mark.skipif(kernel is None, reason="maps of the reference engine keep a descriptor")
def test_maps_keep_few_descriptors(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what tests before this one left may hold descriptors
    spare = localfile._SpareDescriptors()
    spare._most = 5
    monkeypatch.setattr(localfile, "_spare", spare)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else pytest.skip("no /proc")
    kept = [open_data(path) for _ in range(50)]
    assert all(data.mapped for data in kept)
    assert len(os.listdir("/proc/self/fd")) == before + 5
    views = [data.view(3, 3) for data in kept]
    os.truncate(path, 100)
    for data in (kept[0], kept[49]):  # the one asks its descriptor, the other the path
        with pytest.raises(TruncatedRecordError, match="shrank"):
            data.view(8000, 10)
    del kept, data
    assert len(os.listdir("/proc/self/fd")) == before
    assert bytes(views[0]) == CONTENT[3:6]


@pytest.mark.skipif(kernel is None, reason="the reference engine's maps are fewer; see below")
def test_maps_are_fewer_than_the_system_allows(path: Path) -> None:
    assert kernel is not None
    kept = [open_data(path) for _ in range(kernel.MOST_MAPS + 5)]
    mapped = sum(data.mapped for data in kept)
    assert 0 < mapped <= kernel.MOST_MAPS
    assert all(bytes(data.view(3, 3)) == CONTENT[3:6] for data in kept[-9:])
    del kept
    assert open_data(path).mapped


@pytest.mark.skipif(kernel is not None, reason="the kernel's maps keep no descriptor")
def test_maps_that_keep_a_descriptor_are_few(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # else maps of earlier tests may go meanwhile, and be counted off
    monkeypatch.setattr(localfile._PythonMap, "_count", 0)  # earlier tests may hold some
    kept = [open_data(path) for _ in range(localfile._MOST_PYTHON_MAPS + 5)]
    assert [data.mapped for data in kept].count(False) == 5
    assert all(bytes(data.view(3, 3)) == CONTENT[3:6] for data in kept)
    del kept
    assert open_data(path).mapped


@pytest.mark.skipif(kernel is None, reason="the kernel is not loaded")
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENODEV, errno.ENOMEM, errno.EACCES])
def test_where_a_map_fails_the_file_is_read(code: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMap:
        def __init__(self, *arguments: Any) -> None:
            raise OSError(code, os.strerror(code))

    class Kernel:
        FileMap = NoMap

    monkeypatch.setattr(localfile, "_kernel", Kernel)
    data = open_data(path)
    assert not data.mapped and bytes(data.view(1, 4)) == CONTENT[1:5]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_data(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        open_data(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="only be read forward"):
        open_data(tmp_path / "pipe")


def test_short_reads_of_an_object_are_put_together() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(7, size if size is not None and size >= 0 else 7))

    assert bytes(open_data(Slow(CONTENT)).view(100, 50)) == CONTENT[100:150]


def test_ranges_near_each_other_become_one() -> None:
    near = localfile._NEAR
    ranges = [(5 * near, 10), (0, 10), (100, 10), (50, 500), (5 * near, 4 * near), (1 << 40, 5)]
    assert localfile._merged(ranges, 8 * near) == [(0, 550), (5 * near, 3 * near)]
    assert localfile._merged(np.empty((0, 2), np.int64), 10) == []


def test_names() -> None:
    assert is_url("s3://bucket/x") and is_url("memory://x") and is_url("simplecache::s3://x")
    assert not is_url("/a/b") and not is_url("a:b") and not is_url("c:\\x") and not is_url("{a}/b")
    assert not is_url("run::1.tfrecord") and not is_url("a::b/c") and not is_url("a::b:/c")
    assert (
        path_name(Path("a/b")) == "a/b" and path_name(b"a") == "a" and path_name(io.BytesIO()) == "<stream>"
    )


def test_file_urls_are_local(path: Path) -> None:
    data = open_data(f"file://{path}")
    assert data.size == len(CONTENT) and data.path == f"file://{path}"


@pytest.mark.parametrize("source", [None, 5, object(), ["a"]])
def test_what_is_no_file(source: Any) -> None:
    with pytest.raises(TypeError, match="expected a path or a seekable binary file object"):
        open_data(source)
