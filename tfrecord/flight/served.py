"""The data sets of a server: names, files, fingerprints, and what happens when files are added."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from indexer.errors import StaleIndexError
from indexer.files import is_url, open_data
from indexer.fingerprint import fingerprint
from indexer.names import shard_name
from indexer.options import near_matches
from indexer.paths import expand_paths
from tfrecord._kernels.codes import KINDS
from tfrecord._reading.index_columns import known_schema
from tfrecord._reading.tables import schema_of_all
from tfrecord._reading.view import RecordView
from tfrecord.reader import TFRecordReader
from tfrecord.schema import FeatureSchema, Schema

__all__ = ["DataSet", "Generation", "check_names", "find_data_set", "named"]


def named(given: str) -> tuple[str, str]:
    """The name and the path of ``NAME=PATH`` or of a path, whose name is the stem of its file or folder."""
    name, mark, path = given.partition("=")
    if mark and name and path and not os.path.exists(given) and "/" not in name:
        return name, path
    last = given.rstrip("/").rpartition("/")[2] or os.path.basename(os.getcwd())
    shard = shard_name(last)
    stem = shard.base if shard is not None else last.partition("@")[0]
    return stem.partition(".")[0] or stem, given


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError for a name that cannot be part of a URL, and for one that is there twice."""
    seen: set[str] = set()
    for name in names:
        if not name or not all(one.isalnum() or one in "-_." for one in name):
            raise ValueError(
                f"{name!r} is not a name for a data set (letters, digits, - _ .): write NAME=PATH"
            )
        if name in seen:
            raise ValueError(f"two data sets have the name {name!r}: write NAME=PATH")
        seen.add(name)


class Generation:
    """The files of a data set as they were at one time, in their order.

    ``reader`` reads them all; ``fingerprints`` holds, for each number of files, the fingerprint of the first
    that many, since files that are added behind them change nothing about these.
    """

    def __init__(self, name: str, paths: Any, options: Mapping[str, Any]) -> None:
        self.name = name
        self.state = _state(paths)
        self.reader: TFRecordReader[Any] = TFRecordReader(paths, **options)
        view, store = self.reader._view, self.reader._view.store
        self.num_records = len(view)
        self.file_names = _names_of(store.paths)
        self.names = {os.fspath(path): name for path, name in zip(store.paths, self.file_names, strict=True)}
        self.record_type = view.record_type
        view.prepare()
        self.known_schema = known_schema(store, self.record_type)
        self.index_columns = {name: column.dtype.str for name, column in self.reader.index.columns.items()}
        self.num_bytes = sum(store.index(number).file_size for number in range(len(store.paths)))
        self.fingerprints = list(self._chain())
        self._lock = threading.Lock()
        self._full: Schema | None = None
        self._first: dict[int, RecordView] = {}

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[-1]

    def _chain(self) -> Iterable[str]:
        found = hashlib.blake2b(b"tfrecord data set", digest_size=16)
        yield found.hexdigest()
        store = self.reader._view.store
        for number, name in enumerate(self.file_names):
            index = store.index(number)
            content = index.digest
            if content is None:
                with open_data(store.place(store.paths[number]), mmap=False) as data:
                    value = fingerprint(data, index.offsets, index.lengths, index.compression)
                content = value.to_bytes(8, "little")
            found.update(repr((name, index.file_size, len(index), content)).encode())
            yield found.hexdigest()

    def view(self, num_files: int | None = None) -> RecordView:
        """The records of the first files."""
        view = self.reader._view
        if num_files is None or num_files == len(self.file_names):
            return view
        if num_files not in self._first:
            stop = int(view.store.starts[num_files])
            self._first[num_files] = replace(view, selection=np.arange(stop, dtype=np.int64))
        return self._first[num_files]

    def full_schema(self) -> Schema:
        """The schema of all records; where the indexes do not have it, one pass over the data finds it."""
        with self._lock:
            if self._full is None:
                view = self.reader._view
                self._full = self.known_schema or schema_of_all(view)
            return self._full

    def is_unchanged(self, num_files: int) -> bool:
        """Whether the first files are still what they were."""
        return all(_file_state(path) == known for path, known in self.state[:num_files])

    def describe(self, wanted: str | None = None) -> dict[str, Any]:
        """What a client must know, of the files that a fingerprint stands for; see docs/service.md."""
        store = self.reader._view.store
        chain = self.fingerprints
        num_files = len(self.file_names) if wanted is None else chain.index(wanted)
        schema = self.known_schema if num_files == len(self.file_names) else None
        counts = np.diff(store.starts[: num_files + 1]).tolist()
        return {
            "data": self.name,
            "fingerprint": chain[num_files],
            "num_records": sum(counts),
            "num_bytes": sum(store.index(number).file_size for number in range(num_files)),
            "record_type": self.record_type,
            "files": [
                [self.file_names[number], count, store.compression(number)]
                for number, count in enumerate(counts)
            ],
            "schema": None if schema is None else _schema_words(schema),
            "index_columns": self.index_columns,
        }


class DataSet:
    """One name, and its files as they are now and as they were before."""

    def __init__(self, name: str, paths: Any, options: Mapping[str, Any]) -> None:
        self.name = name
        self._paths, self._options = paths, options
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Generation, int]] = {}
        self._take(Generation(name, paths, options))

    def _take(self, generation: Generation) -> None:
        known = {key: (old, count) for key, (old, count) in self._known.items() if old.is_unchanged(count)}
        known |= {key: (generation, count) for count, key in enumerate(generation.fingerprints)}
        self.current, self._known = generation, known

    def find(self, wanted: str | None) -> tuple[Generation, RecordView]:
        """The files that a fingerprint stands for (None: those of now), and their records.

        Raises:
            StaleIndexError: the files of then have changed, or are gone.
        """
        if wanted is None:
            return self.current, self.current.view()
        found = self._known.get(wanted)
        if found is None:
            raise StaleIndexError(
                None, None, f"the files of the data set {self.name!r} are not those of then"
            )
        return found[0], found[0].view(found[1])

    def refresh(self) -> bool:
        """Look for added and changed files; whether there were any.

        Raises:
            OSError, TFRecordError, ValueError: the files cannot be read now. The data set stays as it was.
        """
        with self._lock:
            if _state(self._paths) == self.current.state:
                return False
            self._take(Generation(self.name, self._paths, self._options))
            return True


def find_data_set(sets: Mapping[str, DataSet], name: str) -> DataSet:
    """Raises KeyError, with near matches."""
    if name not in sets:
        raise KeyError(f"there is no data set {name[:80]!r}{near_matches(name[:80], sets)}")
    return sets[name]


def _state(paths: Any) -> list[tuple[str, Any]]:
    """The files of now, each with what changes when its content does."""
    return [(path, _file_state(path)) for path in expand_paths(paths)]


def _file_state(path: str) -> Any:
    if is_url(path):
        with open_data(path, mmap=False) as data:
            return data.size, data.etag
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _names_of(paths: Sequence[str]) -> list[str]:
    """The files' names within their data set: what is left of each path without the folder of them all."""
    parts = [os.fspath(path).split("/") for path in paths]
    common = len(os.path.commonprefix([one[:-1] for one in parts]))
    return ["/".join(one[common:]) for one in parts]


def _schema_words(schema: Schema) -> dict[str, Any]:
    """A schema as the metadata of an index has it."""

    def entry(feature: FeatureSchema) -> list[int]:
        bits = 1 << KINDS[feature.kind] if feature.kind in KINDS else 0
        steps = (2**63 - 1, -1) if feature.max_step is None else (feature.min_step or 0, feature.max_step)
        return [bits, feature.num_present, feature.min_length, feature.max_length, *steps]

    return {
        "num_records": schema.num_records,
        "num_invalid": schema.num_invalid,
        "features": {key: entry(feature) for key, feature in schema.items()},
        "feature_lists": {key: entry(feature) for key, feature in schema.feature_lists.items()},
    }
