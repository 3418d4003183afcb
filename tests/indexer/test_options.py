"""Checks that several functions share, and where warnings point."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexer.framing import frame_record
from indexer.names import split_compression
from indexer.options import check_count, check_threads, known_names, listed, near_matches
from tfrecord.columns import ColumnBatch
from tfrecord.iterator_utils import check_queue_size
from tfrecord.reader import TFRecordReader


@pytest.mark.parametrize("value", [0, -1, True, 1.5, None, "2"], ids=repr)
def test_what_is_no_count(value: Any) -> None:
    for check in (lambda v: check_count(v, "n"), check_threads, check_queue_size):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            check(value)


def test_counts() -> None:
    assert check_count(np.int64(7), "n") == 7
    assert check_threads(10**9) == 256


@pytest.mark.parametrize(
    ("name", "stem", "kind"),
    [
        ("a.tfrecord", "a.tfrecord", ""),
        ("a.tfrecord.gz", "a.tfrecord", "gzip"),
        ("A.GZ", "A", "gzip"),
        ("a.gzip", "a", "gzip"),
        ("d.gz/a.zz", "d.gz/a", "zlib"),
        ("d.gz/a", "d.gz/a", ""),
        ("a.ZLIB", "a", "zlib"),
        (".gz", ".gz", ""),
    ],
)
def test_compression_that_a_name_says(name: str, stem: str, kind: str) -> None:
    assert split_compression(name) == (stem, kind)


def test_a_warning_points_at_the_caller_however_deep(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame_record(b"no message of ours"))
    calls = [
        lambda: TFRecordReader(path).record_type,
        lambda: TFRecordReader(path)[0],
        lambda: list(TFRecordReader(path)),
        lambda: TFRecordReader(path, index=False).read([0]),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_presence_that_several_threads_ask_for_first() -> None:
    columns = {"a": np.arange(3), "b": np.arange(3)}
    flags = np.array([[True, False, True], [False, True, True]])

    class Slow(dict[str, Any]):
        """Columns that let another thread in while they are gone through."""

        def __iter__(self) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return super().__iter__()
            other = threading.Thread(target=lambda: batch.present)
            other.start()
            other.join()
            return super().__iter__()

    batch = ColumnBatch._trusted(Slow(columns), flags, 3)
    for _ in range(2):
        assert {name: found.tolist() for name, found in batch.present.items()} == {
            "a": [True, False, True],
            "b": [False, True, True],
        }


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("lable", ["label", "image"], "; did you mean 'label'?"),
        ("LABEL", ["label"], "; did you mean 'label'?"),
        ("label", ["Label", "labels"], "; did you mean 'Label' or 'labels'?"),
        ("zebra", ["label"], ""),
        ("label", [], ""),
        (7, ["7"], ""),
    ],
)
def test_near_matches(name: object, known: list[str], expected: str) -> None:
    assert near_matches(name, known) == expected


def test_near_matches_of_very_many_names_ends_soon() -> None:
    assert near_matches("k1", (f"k{number}" for number in range(10**9))).startswith("; did you mean")


def test_listed() -> None:
    assert listed([]) == "none"
    assert listed("ab") == "'a', 'b'"
    assert listed(map(str, range(100))).endswith("'23', ...")


def test_known_names() -> None:
    assert known_names("lable", ["label", "image"]) == "; did you mean 'label'? (there are 'label', 'image')"
    assert known_names("zebra", ["label"], "valid are") == "; valid are 'label'"
