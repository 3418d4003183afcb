"""Index files of every kind and of none: what is loaded is right, anything else is an error of the family."""

from __future__ import annotations

import io
import struct
import tempfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import formats, textindex
from indexer._engine import kernel
from indexer.build import scan_index
from indexer.errors import IndexFileError
from indexer.formats import load_index, text_lines, verify_arrays, write_index
from indexer.framing import crc32c, frame_record
from indexer.index import RecordIndex

payloads = st.lists(st.binary(max_size=60), max_size=9)
simple = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5)
)
anything = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


class Files:
    """A data file and an index file in a folder that goes away."""

    def __init__(self, payloads: list[bytes]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.data = Path(self._folder.name, "a.tfrecord")
        self.data.write_bytes(b"".join(map(frame_record, payloads)))
        self.index = Path(self._folder.name, "i")

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.cleanup()


def extended(index: RecordIndex) -> bytes:
    file = io.BytesIO()
    write_index(file, index)
    return file.getvalue()


@given(payloads=payloads, metadata=st.dictionaries(st.text(max_size=6), anything, max_size=4))
def test_round_trip_of_both_formats(payloads: list[bytes], metadata: dict[str, Any]) -> None:
    with Files(payloads) as files:
        index = scan_index(files.data).replace(metadata=metadata, columns={"n": np.arange(len(payloads))})
        for content in (extended(index), text_lines(index)):
            files.index.write_bytes(content)
            loaded = load_index(files.index, files.data)
            assert loaded.offsets.tolist() == index.offsets.tolist()
            assert loaded.lengths.tolist() == [len(payload) for payload in payloads]
            loaded.check_all()
            verify_arrays(files.index)
            if loaded.format == "extended":
                assert loaded.metadata == metadata and loaded.columns["n"].tolist() == list(
                    range(len(payloads))
                )


@given(
    payloads=payloads,
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=3),
    cut=st.none() | st.integers(0, 700),
)
def test_a_damaged_index_is_refused_or_right(
    payloads: list[bytes], changes: list[tuple[int, int]], cut: int | None
) -> None:
    with Files(payloads) as files:
        index = scan_index(files.data)
        for content in (extended(index), text_lines(index)):
            damaged = bytearray(content[:cut])
            for place, value in changes:
                if damaged:
                    damaged[place % len(damaged)] = value
            files.index.write_bytes(damaged)
            try:
                loaded = load_index(files.index, files.data)
                verify_arrays(files.index)
            except IndexFileError as error:
                assert error.index_path == str(files.index)
                continue
            assert loaded.offsets.tolist() == index.offsets.tolist()
            assert loaded.lengths.tolist() == index.lengths.tolist()


@given(
    key=st.sampled_from(
        [
            "num_records",
            "file_size",
            "stream_size",
            "mtime_ns",
            "compression",
            "fingerprint",
            "metadata",
            "arrays",
            "index_size",
        ]
    ),
    value=anything,
    tail=st.binary(max_size=200),
)
def test_a_header_of_lies_is_refused_or_right(key: str, value: Any, tail: bytes) -> None:
    with Files([b"a", b"bc", b"def"]) as files:
        content = extended(scan_index(files.data))
        length = struct.unpack_from("<I", content, 12)[0]
        fields = {**msgpack.unpackb(content[24 : 24 + length]), key: value}
        header = msgpack.packb(fields)
        prefix = struct.pack("<8s4I", formats.MAGIC, 1, len(header), crc32c(header), 0)
        files.index.write_bytes(prefix + header + content[24 + length :] + tail)
        try:
            loaded = load_index(files.index, files.data)
            verify_arrays(files.index)
            loaded.check_all()
        except IndexFileError:
            return
        assert loaded.lengths.tolist() == [1, 2, 3]


@given(content=st.binary(max_size=200) | st.text("0123456789 \n\r\t-+.", max_size=200).map(str.encode))
def test_random_bytes_are_no_index(content: bytes) -> None:
    with Files([b"a", b"bc"]) as files:
        files.index.write_bytes(content)
        for data in (None, files.data):
            try:
                loaded = load_index(files.index, data)
            except IndexFileError:
                continue
            loaded.check_all()
            if data is not None:
                assert loaded.lengths.tolist() == [1, 2]


@pytest.mark.skipif(kernel is None, reason="the kernel is not loaded")
@given(
    text=st.lists(
        st.text("0123456789 \n\r\t-x", max_size=30).map(str.encode)
        | st.tuples(st.integers(0, 2**65), st.integers(0, 2**65)).map(lambda pair: b"%d %d\n" % pair),
        max_size=6,
    ).map(b"".join)
)
def test_both_parsers_of_text_agree(text: bytes) -> None:
    fast = textindex.parse_text(memoryview(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textindex, "_kernel", None)
        slow = textindex.parse_text(memoryview(text))
    assert fast[2] == slow[2]
    if not fast[2]:
        assert fast[0].tolist() == slow[0].tolist() and fast[1].tolist() == slow[1].tolist()
