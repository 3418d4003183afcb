"""The index that a writer makes on the way is that of a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer import build
from indexer.errors import TFRecordError
from indexer.formats import load_index
from tfrecord.encode import encode_example
from tfrecord.schema import SchemaCollector
from tfrecord.writer import TFRecordWriter


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_the_index_is_that_of_a_build(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.tfrecord"
    with TFRecordWriter(path, compression_type=compression, index=True) as writer:
        writer.write({"x": (1, "int")})
        writer.write_bytes(b"")
        writer.write_batch({"x": np.arange(100)})
        assert not (tmp_path / "a.tfrecord.tfindex").exists()
    written = load_index(str(path) + ".tfindex", str(path))
    built = build.build_index(str(path), str(tmp_path / "other.tfindex"))
    assert written.offsets.tolist() == built.offsets.tolist()
    assert written.lengths.tolist() == built.lengths.tolist()
    assert (written.compression, written.stream_size) == (built.compression, built.stream_size)
    assert len(written) == 102
    assert written.metadata["record_type"] == "example"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("sequence", [False, True])
def test_the_index_has_the_schema_of_a_build(
    tmp_path: Path, compression: str | None, sequence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrecord._writing.index._RUN_BYTES", 100)
    monkeypatch.setattr("tfrecord._writing.writer._BATCH_BYTES", 100)
    monkeypatch.setattr("tfrecord._writing.writer._COPY_BELOW", 500)
    path = tmp_path / "a"
    lists = {"t": ([[1], [2, 3]], "int")} if sequence else None
    for mode in ("w", "a"):
        with TFRecordWriter(path, mode=mode, compression_type=compression, index=True) as writer:
            for i in range(20):
                writer.write({"x": (i, "int"), "y": ([0.5] * (i % 3), "float")}, lists)
            writer.write_bytes(encode_example({"s": ("x" * 1000, "byte")}))
            if not sequence:
                writer.write_batch({"x": np.arange(50)})
            writer.write({"x": (1, "int")}, lists)
        written = load_index(str(path) + ".tfindex", str(path))
        other = str(tmp_path / "other.tfindex")
        built = build.build_index(str(path), other, collector=SchemaCollector())
        assert written.lengths.tolist() == built.lengths.tolist()
        assert written.metadata == built.metadata
        assert "schema" in written.metadata


def test_a_batch_taken_back_costs_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, index=True) as writer:
        writer.write({"x": (1, "int")})
        send = writer._output._send

        def failing(data: Any) -> None:
            raise OSError("no space")

        monkeypatch.setattr(writer._output, "_send", failing)
        with pytest.raises(OSError, match="no space"):
            writer.write_batch({"y": np.arange(3)})
        monkeypatch.setattr(writer._output, "_send", send)
        writer.write({"x": (1, "int")})
    index = load_index(str(path) + ".tfindex", str(path))
    assert len(index) == 2
    assert "schema" not in index.metadata


def test_the_index_goes_on_when_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path) as writer:
        writer.write_bytes(b"x")
    with TFRecordWriter(path, mode="a", index=True) as writer:
        writer.write_bytes(b"yy")
    assert load_index(str(path) + ".tfindex", str(path)).lengths.tolist() == [1, 2]


def test_the_index_of_an_empty_file(tmp_path: Path) -> None:
    TFRecordWriter(tmp_path / "a", index=True).close()
    assert len(load_index(str(tmp_path / "a.tfindex"), str(tmp_path / "a"))) == 0


def test_after_an_exception_there_is_no_new_index(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with TFRecordWriter(path, index=True) as writer:
        writer.write_bytes(b"x")
    old = (tmp_path / "a.tfindex").read_bytes()
    with pytest.raises(ZeroDivisionError), TFRecordWriter(path, index=True) as writer:
        writer.write_bytes(b"yy")
        raise ZeroDivisionError
    assert (tmp_path / "a.tfindex").read_bytes() == old
    with pytest.raises(TFRecordError, match=r"a\.tfindex"):
        load_index(str(path) + ".tfindex", str(path))
