"""The framing cases and the files of other writers through the scanner, the index and its commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trickling import Trickle

from indexer.build import build_index, check_index, scan_index
from indexer.errors import CompressionError, CorruptRecordError, TFRecordError
from indexer.formats import load_index
from indexer.framing import VERIFY_ALL, scan
from indexer.streams import iter_chunks, open_stream

pytestmark = pytest.mark.kernels

PAYLOADS = [b"alpha", b"", b"xyz"]
# Records in each file, as the files' own readers count them.
COUNTS = {
    "adult_test.recordio.gz": 9769,
    "mnist.tfrecord": 1000,
    "penguin_train-00000-of-00001.gz": 234,
    "ranking_sequence_eval.gz": 4500,
    "taxi-00001-of-00002.tfrecord.gz": 5012,
    "toy.nocompress-tfe-tfrecord-00000-of-00002": 3,
    "toy.nocompress-tfe-tfrecord-00001-of-00002": 1,
}


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((shared / "cases" / "framing-cases.json").read_text())["cases"]
    assert len(found) >= 37
    return found


def ways(path: Path, compression: str) -> Iterator[Any]:
    yield lambda: iter_chunks(path, compression_type=compression)
    yield lambda: iter_chunks(path, compression_type=compression, mmap=False)
    yield lambda: iter_chunks(Trickle(path.read_bytes(), 3), compression_type=compression)
    if not compression:
        yield lambda: iter_chunks(Trickle(path.read_bytes(), 3), compression_type=compression, chunk_size=1)
    yield lambda: iter_chunks(path, compression_type=compression, num_threads=2)


def test_every_case(cases: list[dict[str, Any]], tmp_path: Path) -> None:
    offsets_seen = 0
    for case in cases:
        path = tmp_path / case["name"]
        path.write_bytes(bytes.fromhex(case["hex"]))
        expected = case["expected"]
        for way in ways(path, case["compression"]):
            found: list[bytes] = []
            error: Any = None
            try:
                for chunk in way():
                    for offset, length in zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True):
                        found.append(bytes(chunk.buffer[offset + 12 : offset + 12 + length]))
            except TFRecordError as caught:
                error = caught
            assert found == (PAYLOADS * 2)[: len(found)], case["name"]
            assert getattr(error, "reason", None) == expected["error"], case["name"]
            if case["compression"] and expected["error"]:
                assert len(found) <= expected["records"], case["name"]
                assert isinstance(error, CompressionError)
            else:
                assert len(found) == expected["records"], case["name"]
            if expected.get("record_offset") is not None:
                offsets_seen += 1
                assert isinstance(error, CorruptRecordError)
                assert (error.record, error.offset) == (len(found), expected["record_offset"]), case["name"]
            if expected["error"] not in (None, "unsupported_compression"):
                assert error.record == len(found)
    assert offsets_seen


def test_every_case_leaves_a_good_index_or_none(cases: list[dict[str, Any]], tmp_path: Path) -> None:
    for case in cases:
        path = tmp_path / case["name"]
        path.write_bytes(bytes.fromhex(case["hex"]))
        index = tmp_path / f"{case['name']}.tfindex"
        try:
            built = build_index(path, compression_type=case["compression"])
        except TFRecordError as error:
            assert error.reason == case["expected"]["error"], case["name"]  # type: ignore[attr-defined]
            assert not index.exists()
            continue
        assert case["expected"]["error"] is None
        assert len(built) == case["expected"]["records"] == len(check_index(path))


def test_files_of_other_writers(shared: Path, tmp_path: Path) -> None:
    seen = 0
    for path in sorted((shared / "data").iterdir()):
        if path.suffix == ".md":
            continue
        seen += 1
        target = tmp_path / f"{path.name}.tfindex"
        built = build_index(path, target)
        assert len(built) == COUNTS.get(path.name, len(built)) > 0
        assert built.compression == ("gzip" if path.suffix == ".gz" else "")
        loaded = check_index(path, target)
        with open_stream(path) as stream:
            content = stream.read()
        whole = scan(content)
        assert whole.reason is None and whole.end == len(content) == loaded.stream_size
        assert whole.offsets.tolist() == loaded.offsets.tolist()
        assert whole.lengths.tolist() == loaded.lengths.tolist()
        assert len(scan_index(path)) == len(built)
        assert scan_index(path, verify=VERIFY_ALL, num_threads=3).offsets.tolist() == built.offsets.tolist()
        if not built.compression:
            build_index(path, target, format="text")
            lines = [
                f"{offset} {length + 16}\n"
                for offset, length in zip(built.offsets.tolist(), built.lengths.tolist(), strict=True)
            ]
            assert target.read_text() == "".join(lines)
            assert len(load_index(target, path)) == len(built)
    assert seen == 19
