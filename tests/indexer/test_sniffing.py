"""Each kind of file that people take for TFRecord is called by its name."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from messages import example, floats, ints, sequence, strings

from indexer.errors import CorruptRecordError
from indexer.framing import frame_record
from indexer.sniffing import HEAD_SIZE, file_tail, sniff
from tfrecord import TFRecordReader


def archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a"))
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("a", "b")
    return out.getvalue()


def saved() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    return out.getvalue()


DELIMITED = example(label=ints(3))
LOOK_ALIKES = [
    ("gzip", gzip.compress(b"x"), "gzip data"),
    ("zlib", zlib.compress(b"x"), "zlib data"),
    ("zlib-fast", zlib.compress(b"x", 1), "zlib data"),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(20), "zstd data"),
    ("zip", zipped(), "a zip archive"),
    ("tar", archive(), "a tar archive"),
    ("npy", saved(), "a NumPy .npy file"),
    ("recordio", b"\x0a\x23\xd7\xce" + bytes(20), "a RecordIO file of MXNet or SageMaker"),
    ("riegeli", b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f" + bytes(20), "a Riegeli or ArrayRecord file"),
    ("sstable", b"\x00\x01abc" + bytes(40) + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", "an SSTable"),
    ("sequencefile", b"SEQ\x06" + bytes(20), "a Hadoop SequenceFile"),
    ("parquet", b"PAR1" + bytes(20), "a Parquet file"),
    ("arrow", b"ARROW1\0\0" + bytes(20), "an Arrow IPC file"),
    ("arrow stream", b"\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0" + bytes(20), "an Arrow IPC stream"),
    ("delimited", bytes([len(DELIMITED)]) + DELIMITED, "protobuf messages, each after its length"),
    ("avro", b"Obj\x01" + bytes(20), "an Avro file"),
    ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(20), "an HDF5 file"),
    ("sqlite", b"SQLite format 3\0" + bytes(20), "an SQLite database"),
    ("lmdb", bytes(16) + b"\xde\xc0\xef\xbe" + bytes(20), "an LMDB database"),
    ("safetensors", (20).to_bytes(8, "little") + b'{"a": {}}' + bytes(20), "a safetensors file"),
    ("index", b"TFRINDEX" + bytes(20), "an index file of this library"),
    ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a Git-LFS pointer"),
    ("jpeg", b"\xff\xd8\xff\xe0" + bytes(20), "a JPEG image"),
    ("png", b"\x89PNG\r\n\x1a\n" + bytes(20), "a PNG image"),
    ("wave", b"RIFF\0\0\0\0WAVEfmt " + bytes(20), "a WAV sound"),
    ("mp4", b"\0\0\0\x18ftypmp42" + bytes(20), "an MP4 video"),
    ("pdf", b"%PDF-1.7\n", "a PDF file"),
    *[(f"pickle-{n}", pickle.dumps({"a": [1, 2]}, n), "a Python pickle") for n in range(2, 6)],
    ("pickle-list", pickle.dumps([1, "a"]), "a Python pickle"),
    ("example", example(x=ints(1)), "one tf.train.Example without a frame"),
    ("large-example", example(image=strings(b"\xff\xd8" * 5000)), "one tf.train.Example without a frame"),
    ("sequence", sequence({"c": floats(1)}, {"s": [ints(1)]}), "one tf.train.Example without a frame"),
    ("html", b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
    ("xml", b"<?xml version='1.0'?><a/>", "XML"),
    ("json", json.dumps({"a": 1}).encode(), "JSON"),
    ("json-lines", b'[1, 2]\n{"a": 1}\n', "JSON"),
    ("csv", b"a,b\n1,2\n3,4\n", "text (CSV)"),
    ("tsv", b"a\tb\tc\n1\t2\t3\n4\t5\t6\n", "text (CSV)"),
    ("text-index", b"0 100\n100 100\n", "a text index"),
    ("text", "größer\n".encode(), "text"),
    ("zeros", bytes(100), "zeros"),
]


@pytest.mark.parametrize(
    ("data", "name"), [case[1:] for case in LOOK_ALIKES], ids=[c[0] for c in LOOK_ALIKES]
)
def test_look_alikes(data: bytes, name: str) -> None:
    found = sniff(data[:HEAD_SIZE], data[-8:])
    assert found is not None and found.startswith(name)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff", b"\x0a\x80\x80\x80\x80\x80\x80", b"\xfe\xdc\xba" * 9],
    ids=bytes.hex,
)
def test_nobody_knows(data: bytes) -> None:
    assert sniff(data) is None


@pytest.mark.parametrize("payload", [b"", b"{}", b"x" * 100, example(x=ints(1)), bytes(1000)], ids=len)
def test_a_record_file_looks_like_nothing_else(payload: bytes) -> None:
    assert sniff(frame_record(payload)) is None


# Compressed files are inflated, and what is in them is then told.
FILES = [case for case in LOOK_ALIKES if not case[0].startswith(("gzip", "zlib", "zstd", "index", "zeros"))]


@pytest.mark.parametrize("case", FILES, ids=[case[0] for case in FILES])
def test_errors_of_a_reader_say_it(tmp_path: Path, case: tuple[str, bytes, str]) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(case[1])
    with TFRecordReader(path, index=False) as reader, pytest.raises(CorruptRecordError) as caught:
        list(reader)
    assert str(path) in str(caught.value) and case[2] in str(caught.value)


def test_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    assert file_tail(str(path)) == b"23456789"
    path.write_bytes(b"012")
    assert file_tail(str(path)) == file_tail(None) == file_tail(str(tmp_path / "absent")) == b""
