"""Which index belongs to which file, and what replaces a missing one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

import numpy as np

from indexer.build import build_index, find_index, sidecar_path
from indexer.errors import (
    CompressionError,
    CorruptRecordError,
    IndexFileError,
    RemoteError,
    StaleIndexError,
    TFRecordError,
)
from indexer.files import DataFile, is_url, open_data
from indexer.formats import load_index, load_summary
from indexer.framing import VERIFY_LENGTHS
from indexer.index import IndexSummary, RecordIndex
from indexer.names import index_names
from indexer.options import near_matches, warn_caller
from indexer.sniffing import HEAD_SIZE
from indexer.stores import Url
from indexer.stores.ranges import side_by_side
from indexer.streams import detect, iter_chunks
from tfrecord._reading.damage import DamagePolicy
from tfrecord._reading.metadata import check_metadata
from tfrecord._reading.open_files import OpenFiles
from tfrecord._reading.remote_indexes import build_behind, cached_index
from tfrecord._reading.runs import ReadOptions
from tfrecord._reading.spool import SpooledFile
from tfrecord.schema import SchemaCollector

__all__ = [
    "MANY_FILES",
    "LaterIndexes",
    "load_indexes",
    "scan_headers",
    "stored_compression",
]

_Index = TypeVar("_Index", RecordIndex, IndexSummary)

# The indexes of more files than this are not loaded until they are used.
MANY_FILES = 64
_SCAN_CHUNK = 64 << 20
_STREAM_CHUNK = 1 << 20


def load_indexes(
    paths: Sequence[str], index: Any, options: ReadOptions, policy: DamagePolicy, files: OpenFiles
) -> Sequence[RecordIndex | None]:
    """The index of each file, None if it has none. ``files``: the same files, open. Those of many local files
    are loaded later if each has one beside it.

    ``index``: ``"auto"`` or None: the one beside the file; ``"build"``: the sidecar, built if it is missing
    or unusable; False: none; else a path (for one file), a list with one entry per file (None: no index), or
    a folder of indexes.
    """
    if index is False:
        return [None] * len(paths)
    numbers = range(len(paths))

    def load(number: int, index_path: str) -> RecordIndex:
        return check_metadata(load_index(index_path, files.local(number) or paths[number]))

    if index is None or (isinstance(index, str) and index == "auto"):

        def beside(number: int) -> RecordIndex | None:
            path = paths[number]
            found = _beside(path, options, partial(load, number))
            if found is None and isinstance(path, Url):  # a file without an index is not opened yet
                return _cached(path, options, files.local(number))
            return found

        later = _later(paths, options, files)
        if later is not None:
            return later
        remote = [number for number in numbers if is_url(paths[number])]
        found = dict(zip(remote, side_by_side(beside, remote), strict=True))
        return [found[number] if number in found else beside(number) for number in numbers]
    if isinstance(index, str) and index == "build":

        def built(number: int) -> RecordIndex | None:
            return _built(paths[number], options, policy, partial(load, number), files.local(number))

        return [built(number) for number in numbers]
    if isinstance(index, str | bytes | os.PathLike):
        name = os.fsdecode(index)
        near = near_matches(name, ("auto", "build"))
        if near and not os.path.exists(name):
            raise FileNotFoundError(f"there is no index {name!r}{near}")
        if os.path.isdir(name):
            return [load(number, _in_folder(name, paths[number])) for number in numbers]
        if len(paths) != 1:
            raise ValueError(
                f"one index was given for {len(paths)} files; give a list or a folder of indexes"
            )
        return [load(0, name)]
    if isinstance(index, Sequence):
        if len(index) != len(paths):
            raise ValueError(f"{len(index)} indexes were given for {len(paths)} files")
        return [None if one is None else load(number, os.fsdecode(one)) for number, one in enumerate(index)]
    hint = "; features are given by name (features=)" if isinstance(index, Mapping) else ""
    raise TypeError(f"index is {index!r}; it must be 'auto', 'build', False, a path or a list of paths{hint}")


def _later(paths: Sequence[str], options: ReadOptions, files: OpenFiles) -> LaterIndexes | None:
    """The indexes of many local files, if each has one."""
    if len(paths) <= MANY_FILES or options.compression_type != "auto" or any(map(is_url, paths)):
        return None
    names: list[str] = []
    for path in paths:
        found = find_index(path)
        if found is None:
            return None
        names.append(found)
    return LaterIndexes(paths, names, None, files)


class LaterIndexes(Sequence[RecordIndex | None]):
    """The indexes of many files, each loaded and compared with its file when it is first used.

    ``names`` are their paths, ``counts`` how many records each must have, None if that is not known yet. An
    index that does not belong to its file raises as in `load_index`; one that has another number of records
    raises `StaleIndexError`.
    """

    def __init__(
        self, paths: Sequence[str], names: Sequence[str], counts: Sequence[int] | None, files: OpenFiles
    ) -> None:
        self.names = tuple(names)
        self._counts = counts
        self._paths, self._files = paths, files
        self._loaded: dict[int, RecordIndex] = {}
        self._summaries: dict[int, IndexSummary | RecordIndex] = {}

    @property
    def counts(self) -> Sequence[int]:
        """How many records each file has."""
        if self._counts is None:
            self._counts = [len(self.summary(number)) for number in range(len(self))]
        return self._counts

    def summary(self, number: int) -> IndexSummary | RecordIndex:
        """What the header of an index says, if that is enough, compared with the size of its file; else the
        index."""
        found = self._loaded.get(number, self._summaries.get(number))
        if found is None:
            name, path = self._places(number)
            found = load_summary(name, path)
            found = self[number] if found is None else self._checked(number, check_metadata(found))
            self._summaries[number] = found
        return found

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, number: int) -> RecordIndex: ...
    @overload
    def __getitem__(self, number: slice) -> list[RecordIndex | None]: ...
    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        found = self._loaded.get(number)
        if found is None:
            name, path = self._places(number)
            found = check_metadata(load_index(name, self._files.local(number) or path))
            self._loaded[number] = self._checked(number, found)
        return found

    def _places(self, number: int) -> tuple[str, str]:
        return self._files.place(self.names[number]), self._files.place(self._paths[number])

    def _checked(self, number: int, found: _Index) -> _Index:
        if self._counts is not None and len(found) != self._counts[number]:
            reason = f"it has {len(found):,} records, and had {self._counts[number]:,} before"
            raise StaleIndexError(self._paths[number], found.index_path, reason)
        return found


def _in_folder(folder: str, path: str) -> str:
    name = os.path.basename(path)
    for candidate in index_names(name):
        if os.path.exists(os.path.join(folder, candidate)):
            return os.path.join(folder, candidate)
    raise FileNotFoundError(f"there is no index of {path} in {folder}: looked for {name}.tfindex")


def _beside(path: str, options: ReadOptions, load: Callable[[str], RecordIndex]) -> RecordIndex | None:
    if is_url(path):
        loaded = _loaded_behind(path, load)
    else:
        found = find_index(path)
        loaded = None if found is None else load(found)
    if loaded is None:
        return None
    # If it has a name, the user has said what the compression is, and reading shows whether that is right.
    return loaded if options.compression_type in ("auto", loaded.compression) else None


def _loaded_behind(path: str, load: Callable[[str], RecordIndex]) -> RecordIndex | None:
    """The index beside an object, if any. S3 refuses access to a missing object unless listing is allowed."""
    try:
        return load(sidecar_path(path))
    except (FileNotFoundError, PermissionError):
        return None


def _cached(path: Url, options: ReadOptions, data: DataFile | None) -> RecordIndex | None:
    """The index of an object that an earlier reader stored in the cache folder."""
    found = None if data is None else cached_index(path, data)
    if found is None:
        return None
    return found if options.compression_type in ("auto", found.compression) else None


def _built(
    path: str,
    options: ReadOptions,
    policy: DamagePolicy,
    load: Callable[[str], RecordIndex],
    data: DataFile | None,
) -> RecordIndex | None:
    target = sidecar_path(path)
    try:
        if not is_url(path) and os.path.exists(target):
            return load(target)
        if is_url(path):
            found = _loaded_behind(path, load)  # an index of no records is false as a condition
            if found is None and isinstance(path, Url):
                found = _cached(path, options, data)
            if found is not None:
                return found
    except StaleIndexError:
        pass  # "build" replaces it
    except IndexFileError as error:
        warn_caller(f"{error}; it is being rebuilt")
    try:
        if isinstance(path, Url) and data is not None:
            return build_behind(path, data, options.compression_type)
        return build_index(path, collector=SchemaCollector(), compression_type=options.compression_type)
    except RemoteError:  # it cannot be read, and then neither in memory
        raise
    except OSError as error:
        warn_caller(f"the index {target} cannot be written ({error}); it is kept in memory")
    except (CorruptRecordError, CompressionError):
        if not policy.skips:
            raise
    return None


def stored_compression(path: str) -> str:
    """The compression detected from the content of a file: ``""``, ``"gzip"``, ``"zlib"`` or ``"zstd"``."""
    if not is_url(path) and not os.path.isfile(path):
        return ""  # a pipe or device: reading it here would consume bytes
    with open_data(path, mmap=False) as file:
        return detect(file.head(HEAD_SIZE)) or ""


def scan_headers(
    source: Any,
    path: str,
    compression: str,
    file_size: int | None,
    options: ReadOptions,
    policy: DamagePolicy,
) -> RecordIndex:
    """An index in memory, from a header scan: payloads are not read.

    ``source``: the file, a stream of it, its decompressed content, or the path. ``file_size``: size as stored
    in bytes, None to look it up by the path. Damage goes to ``policy``: it raises, or the index holds the
    records before the damage.
    """
    stopped: list[TFRecordError] = []
    offsets, lengths = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    if file_size is None:
        with open_data(path, mmap=False) as file:
            file_size = file.size
    for chunk in iter_chunks(
        source,
        compression_type=compression,
        verify=min(options.level, VERIFY_LENGTHS),
        chunk_size=_SCAN_CHUNK if isinstance(source, DataFile) else _STREAM_CHUNK,
        on_damage=stopped.append,
        payloads=False,
        mmap=options.mmap,
    ):
        offsets.append(chunk.offsets + np.uint64(chunk.base_offset))
        lengths.append(chunk.lengths)
    found = RecordIndex(
        np.concatenate(offsets),
        np.concatenate(lengths),
        path=path,
        file_size=file_size,
        compression=compression,
        checked=True,
    )
    error = stopped[0] if stopped else None
    if isinstance(source, SpooledFile) and source.error is not None:
        # The truncated frame is only a consequence of this error.
        error = source.error.at(len(found), found.stream_size)
    if error is not None:
        policy.handle(error)
    return found
