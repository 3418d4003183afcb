"""Objects that have no index: passes that need positions, and ``index="build"``."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from range_server import RangeServer
from remote_shards import COUNT, local, urls

import tfrecord

pytest.importorskip("obstore")
pytest.importorskip("aiohttp")


@pytest.fixture
def bare(server: RangeServer) -> RangeServer:
    for name in [name for name in server.files if name.endswith(".tfindex")]:
        del server.files[name]
    return server


class TestWithoutAnIndex:
    """Passes that need positions of objects that have no index."""

    def test_one_pass_finds_all_positions(self, bare: RangeServer, folder: Path) -> None:
        features = {"id": tfrecord.FixedLenFeature((), "int"), "values": tfrecord.VarLenFeature("float")}
        here, there = (tfrecord.TFRecordReader(paths, features=features) for paths in (folder, urls(bare)))
        for _ in zip(there, range(3), strict=False):
            pass  # this needs no positions
        there.close()
        there = tfrecord.TFRecordReader(urls(bare), features=features)
        bare.requests.clear()
        text = "3 files, such as http.*/t-00000-of-00003, have no index.*cache='auto'"
        with pytest.warns(UserWarning, match=text):
            assert len(there) == COUNT
        data = [wanted for _, name, wanted in bare.requests if wanted and not name.endswith("index")]
        size = sum(map(len, bare.files.values()))
        # First bytes and samples are read once more; samples near each other share one range per file.
        assert sum(end - start for start, end in data) < size + 4000 + 3 * (128 << 10)
        bare.requests.clear()
        assert there.read([5, 2999, 5]) == here.read([5, 2999, 5])
        assert len(bare.requests) <= 3
        again = pickle.loads(pickle.dumps(there))
        bare.requests.clear()
        assert again.read([7]) == here.read([7]) and len(bare.requests) <= 12

    def test_the_cache_keeps_the_index(self, bare: RangeServer, folder: Path, tmp_path: Path) -> None:
        expected = local(folder).read_raw([5, 2999]).to_list()
        for _ in range(2):
            reader = tfrecord.TFRecordReader(urls(bare), cache=tmp_path)
            assert reader.read_raw([5, 2999]).to_list() == expected
        assert len(list(tmp_path.glob("*.tfindex"))) == 3

    def test_a_damaged_object_is_read_as_far_as_it_is_good(self, bare: RangeServer, folder: Path) -> None:
        name = "t-00001-of-00003"
        data = bytearray(bare.files[name])
        data[-5] ^= 1  # in the payload of its last record
        bare.files[name] = bytes(data)
        reader = tfrecord.TFRecordReader(bare.url(name))
        assert len(reader) == 1000 and bytes(reader.raw(998)) == bytes(local(folder).raw(1998))
        with pytest.raises(tfrecord.ChecksumError, match="record 999"):
            reader.read([999])

    def test_an_object_that_changed_after_it_was_indexed(self, bare: RangeServer) -> None:
        reader = tfrecord.TFRecordReader(urls(bare)[0])
        with pytest.warns(UserWarning, match="has no index"):
            len(reader)
        sent = pickle.dumps(reader)
        bare.etags = dict.fromkeys(bare.files, '"another"')
        with pytest.raises(tfrecord.StaleIndexError, match="changed"):
            pickle.loads(sent).read([3])

    def test_a_terminal_sees_how_far_it_is(
        self, bare: RangeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
        with pytest.warns(UserWarning, match="has no index"):
            len(tfrecord.TFRecordReader(urls(bare)[0]))
        size = len(bare.files["t-00000-of-00003"])
        assert f"\rindexing t-00000-of-00003: {size:,} of {size:,} B" in capsys.readouterr().err


class TestBuild:
    """``index="build"`` where nothing can be written beside the object."""

    def test_it_is_kept_in_memory(self, bare: RangeServer, folder: Path) -> None:
        url = urls(bare)[0]
        with pytest.warns(UserWarning, match=r"read only.*kept in memory.*cache='auto'"):
            reader = tfrecord.TFRecordReader(url, index="build")
        here = tfrecord.TFRecordReader(folder / "t-00000-of-00003")
        assert reader.has_index and reader.schema == here.schema
        bare.requests.clear()
        assert reader.read([5, 900, 5]) == here.read([5, 900, 5])
        assert len(bare.requests) <= 3
        assert pickle.loads(pickle.dumps(reader)).read([7]) == here.read([7])

    def test_it_is_kept_in_the_cache(self, bare: RangeServer, folder: Path, tmp_path: Path) -> None:
        options: dict[str, Any] = {"cache": tmp_path, "cache_bytes": "10MB"}
        with pytest.warns(UserWarning, match="kept in the cache folder"):
            first = tfrecord.TFRecordReader(urls(bare)[0], index="build", **options)
        assert len(list(tmp_path.glob("*.tfindex"))) == 1
        for index in ("auto", "build"):
            again = tfrecord.TFRecordReader(urls(bare)[0], index=index, **options)
            assert again.has_index and again.schema == first.schema
        bare.files["t-00000-of-00003"] = (folder / "t-00001-of-00003").read_bytes()
        bare.etags["t-00000-of-00003"] = '"2"'
        changed = tfrecord.TFRecordReader(urls(bare)[0], **options)
        assert not changed.has_index and changed[0] != first[0]

    def test_damage_is_found(self, bare: RangeServer) -> None:
        name = "t-00000-of-00003"
        bare.files[name] = bare.files[name][:-1]
        with pytest.raises(tfrecord.CorruptRecordError, match=name):
            tfrecord.TFRecordReader(urls(bare)[0], index="build")

    def test_it_replaces_nothing_that_fits(self, server: RangeServer) -> None:
        reader = tfrecord.TFRecordReader(urls(server), index="build")
        assert reader.has_index and {method for method, _, _ in server.requests} <= {"GET", "HEAD"}
