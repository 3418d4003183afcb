from __future__ import annotations

import pickle

import numpy as np
import pytest

from indexer.errors import IndexFileError
from indexer.index import RecordIndex

LENGTHS = np.array([5, 0, 100, 7], np.uint64)
OFFSETS = np.array([0, 21, 37, 153], np.uint64)
SIZE = 176


def make(offsets: object = OFFSETS, lengths: object = LENGTHS, **options: object) -> RecordIndex:
    return RecordIndex(offsets, lengths, path="a", index_path="i", **options)  # type: ignore[arg-type]


def test_what_it_knows() -> None:
    index = make(metadata={"record_type": "example"}, columns={"label": np.array([1, 2, 3, 4])})
    assert len(index) == 4
    assert index.stream_size == index.file_size == SIZE
    assert index.frame_end(0) == 21 and index.frame_end(3) == SIZE
    assert index.metadata["record_type"] == "example"
    assert index.columns["label"].tolist() == [1, 2, 3, 4]
    assert index.format == "memory"
    assert "4 records of 'a'" in repr(index)


def test_it_cannot_be_changed() -> None:
    mine = LENGTHS.copy()
    index = make(lengths=mine, columns={"c": np.arange(4)})
    with pytest.raises(AttributeError):
        index.path = "b"
    for array in (index.offsets, index.lengths, index.columns["c"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        index.metadata["x"] = 1  # type: ignore[index]
    mine[0] = 9  # the caller's own array stays writable


def test_empty() -> None:
    index = make([], [])
    assert len(index) == 0 and index.stream_size == 0
    index.check_all()


def test_pickles_and_copies() -> None:
    index = make(compression="gzip", file_size=50, fingerprint=3, mtime_ns=4, columns={"c": np.arange(4)})
    for copy in (pickle.loads(pickle.dumps(index)), index.replace()):
        assert copy.offsets.tolist() == OFFSETS.tolist() and copy.lengths.tolist() == LENGTHS.tolist()
        assert (copy.compression, copy.file_size, copy.stream_size) == ("gzip", 50, SIZE)
        assert (copy.fingerprint, copy.mtime_ns, copy.path, copy.index_path) == (3, 4, "a", "i")
        assert copy.columns["c"].tolist() == [0, 1, 2, 3]
    assert index.replace(path="b").path == "b" and index.path == "a"


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="the same size"):
        make(OFFSETS[:2])
    with pytest.raises(ValueError, match="'c'.*4 records"):
        make(columns={"c": np.arange(3)})
    with pytest.raises(ValueError, match="'c'"):
        make(columns={"c": np.array(3)})


def test_good_entries_pass() -> None:
    index = make()
    index.check_all()
    for position in (0, 1, 2, 3, -1):
        index.entry(position)
    index.entries([3, 0, 0])
    index.entries(np.empty(0, np.int64))


BAD = [
    ("points at another frame", [0, 37, 37, 153], [5, 100, 100, 7], SIZE, [0, 1]),
    ("gap", [0, 22, 38, 154], [5, 0, 100, 7], SIZE + 1, [0, 1]),
    ("overlap", [0, 20, 36, 152], [5, 0, 100, 7], SIZE - 1, [0, 1]),
    ("does not start at 0", [16, 37, 53, 169], [5, 0, 100, 7], SIZE + 16, [0]),
    ("ends early", [0, 21, 37, 153], [5, 0, 100, 6], SIZE, [3]),
    ("ends late", [0, 21, 37, 153], [5, 0, 100, 8], SIZE, [3]),
    ("wraps around", [0, 21, 37, 153], [5, 2**64 - 16, 100, 7], SIZE, [1]),
    ("far away", [0, 21, 2**64 - 1, 153], [5, 0, 100, 7], SIZE, [1, 2]),
    ("reordered", [0, 37, 21, 153], [5, 100, 0, 7], SIZE, [0, 1, 2]),
]


@pytest.mark.parametrize(("name", "offsets", "lengths", "size", "bad"), BAD, ids=[case[0] for case in BAD])
def test_each_read_notices_a_wrong_entry(
    name: str, offsets: list[int], lengths: list[int], size: int, bad: list[int]
) -> None:
    index = make(np.array(offsets, np.uint64), np.array(lengths, np.uint64), stream_size=size)
    for position in bad:
        for check in (index.entry, lambda at: index.entries([at])):
            with pytest.raises(IndexFileError, match=f"entry {position} ") as caught:
                check(position)
            assert (caught.value.path, caught.value.index_path) == ("a", "i")
    with pytest.raises(IndexFileError, match=f"entry {bad[0]} "):
        index.check_all()


@pytest.mark.parametrize("wrong", [None, 0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 99])
def test_all_entries_are_checked_across_the_parts_of_a_large_index(wrong: int | None) -> None:
    count = (1 << 20) + 100
    lengths = np.arange(count, dtype=np.uint64) % np.uint64(7)
    offsets = np.cumsum(lengths + np.uint64(16)) - lengths - np.uint64(16)
    if wrong is None:
        RecordIndex(offsets, lengths).check_all()
        return
    for array, value in ((offsets, offsets[wrong] + np.uint64(1)), (lengths, np.uint64(2**64 - 1))):
        changed = array.copy()
        changed[wrong] = value
        pair = (changed, lengths) if array is offsets else (offsets, changed)
        index = RecordIndex(*pair, stream_size=int(offsets[-1] + lengths[-1]) + 16)
        with pytest.raises(IndexFileError, match=f"entry ({wrong}|{wrong - 1}) does not adjoin"):
            index.check_all()
