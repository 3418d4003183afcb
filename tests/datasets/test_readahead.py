"""What the system is told of records that come next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.files import DataFile
from indexer.framing import frame_record
from tfrecord import TFRecordReader, build_index
from tfrecord.torch import _readahead
from tfrecord.torch._readahead import Readahead


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """(file name, offset, length) of every record that the system was told of."""
    found: list[tuple[str, int, int]] = []

    def advise(self: DataFile, ranges: Any) -> None:
        found.extend((Path(self.path).name, int(start), int(size)) for start, size in ranges)

    for kind in DataFile.__subclasses__():
        monkeypatch.setattr(kind, "advise", advise)
    return found


@pytest.fixture
def reader(tmp_path: Path) -> TFRecordReader:
    paths = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    for path, count in zip(paths, (30, 70), strict=True):
        path.write_bytes(b"".join(frame_record(bytes(1000 + i)) for i in range(count)))
        build_index(path)
    return TFRecordReader(paths)


def ahead_of(reader: TFRecordReader, positions: list[int]) -> Readahead:
    ahead = Readahead(reader._view.store)
    ahead.window(np.array(positions))
    return ahead


def test_what_is_not_in_memory_is_told_of_once_and_in_time(
    reader: TFRecordReader, told: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_readahead, "_resident", lambda buffer, offsets: False)
    monkeypatch.setattr(_readahead, "_PIECE", 8)
    positions = np.random.default_rng(5).permutation(100).tolist()
    ahead = ahead_of(reader, positions)
    expected = []
    for position in positions:
        path, record = reader.locate(position)
        size = 1000 + record + 16  # with its frame
        expected.append((Path(path).name, sum(1000 + i + 16 for i in range(record)), size))
    for done in range(1, 101):
        ahead.reach(done)
        assert set(expected[:done]) <= set(told)
        assert len(told) <= done + 2 * 8
    assert sorted(told) == sorted(expected)


def test_large_records_are_told_of_by_their_bytes(
    reader: TFRecordReader, told: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_readahead, "_resident", lambda buffer, offsets: False)
    monkeypatch.setattr(_readahead, "_FIRST_BYTES", 5000)
    monkeypatch.setattr(_readahead, "_PIECE_BYTES", 10_000)
    ahead = ahead_of(reader, list(range(100)))
    ahead.reach(1)
    assert len(told) == 4 + 9  # of 5,000 bytes, and the next of 10,000
    ahead.reach(100)
    assert len(set(told)) == len(told) == 100


def test_what_is_in_memory_is_not_told_of(reader: TFRecordReader, told: list[tuple[str, int, int]]) -> None:
    assert len(reader.read_raw(range(100))) == 100
    ahead_of(reader, list(range(100))).reach(100)
    if reader._view.store.open(0).mapped and _readahead._mincore is not None:
        assert told == []


def test_a_file_that_went_away_is_left_to_the_reading(
    reader: TFRecordReader, told: list[tuple[str, int, int]]
) -> None:
    Path(reader.paths[0]).unlink()
    ahead_of(reader, list(range(30))).reach(30)
    assert told == []
