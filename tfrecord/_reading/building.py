"""Building the indexes of files of records, with the schema of their features."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import indexer.build
import indexer.build_many
from indexer.files import is_url
from indexer.formats import load_index
from indexer.index import RecordIndex
from indexer.options import suggests_options, warn_caller
from indexer.paths import expand_paths
from indexer.stores import StoreOptions, clean_url
from indexer.stores.options import Given
from tfrecord._kernels.record_type import RecordTypeName, check_record_type
from tfrecord.schema import SchemaCollector, invalid_text

__all__ = ["build_index", "build_indexes"]


@overload
def build_index(  # type: ignore[overload-overlap]
    paths: str | os.PathLike[str],
    index_path: str | os.PathLike[str] | None = None,
    *,
    columns: Iterable[str] | None = None,
    num_threads: int = 1,
    compression_type: str | None = None,
    progress: bool | Callable[..., object] = False,
    record_type: RecordTypeName = "auto",
    storage_options: Given | None = None,
) -> RecordIndex: ...  # for a folder or a glob it is a list
@overload
def build_index(
    paths: Sequence[str | os.PathLike[str]],
    index_path: None = None,
    *,
    columns: Iterable[str] | None = None,
    num_threads: int = 1,
    compression_type: str | None = None,
    progress: bool | Callable[..., object] = False,
    record_type: RecordTypeName = "auto",
    storage_options: Given | None = None,
) -> list[RecordIndex]: ...
@suggests_options
def build_index(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    index_path: str | os.PathLike[str] | None = None,
    *,
    columns: Iterable[str] | None = None,
    num_threads: int = 1,
    compression_type: str | None = None,
    progress: bool | Callable[..., object] = False,
    record_type: RecordTypeName = "auto",
    storage_options: Given | None = None,
) -> Any:
    """Validate whole files and write their extended indexes, with the schema of their features.

    The index holds the positions of all records. If the file holds Examples or SequenceExamples and some
    records are not valid, one warning says how many; later ``reader.schema.num_invalid`` has the number.

    Args:
        paths: a data file (plain, gzip, zlib or zstd), a folder, a glob, or a list of them.
        index_path: where to write the index of one file; None: beside it, as its full name plus ``.tfindex``.
        columns: values to keep in the index for each record, so that `TFRecordReader.where` can select
            records without reading them: names of features with at most one number or byte string per
            record, and ``"len(tokens)"`` for the number of values of the feature ``tokens``. None keeps what
            the old index kept, ``[]`` keeps nothing.
        num_threads: how many threads share the payload checks of a file.
        progress: True shows a bar (with tqdm, if it is installed). A callable gets, for one file, the bytes
            done so far and all bytes; for several files, the `BuildResult` of each.
        record_type: ``"auto"`` (detect from the records), ``"example"``, ``"sequence_example"`` or
            ``"bytes"``.
        storage_options: options for URLs, as for `TFRecordReader`. The index goes beside the object.

    Returns:
        The `RecordIndex` of one file; for a folder, a glob or a list, a list of them.

    Raises:
        CorruptRecordError: a record is damaged.
        CompressionError: a compressed stream is damaged.
        DecodeError: a record has two values of a feature that is to be a column.
        FeatureKindError: a feature that is to be a column has two types.
        MissingFeatureError: no record has a feature that is to be a column.

    After an error the earlier index stays as it was. If there are several files, all are tried before the
    first error is raised.
    """
    names = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    declared = check_record_type(record_type)
    store = StoreOptions(storage_options)
    name = _one_file(paths, store)
    if name is not None:
        found = indexer.build.build_index(
            name,
            index_path,
            collector=SchemaCollector(names, declared),
            num_threads=num_threads,
            compression_type=compression_type,
            progress=progress,
        )
        _warn_of_invalid(name, found)
        return found
    if index_path is not None:
        raise ValueError("index_path works for one file only; for several, each index goes beside its file")
    results = indexer.build_many.build_indexes(
        paths,
        force=True,
        collector_factory=lambda: SchemaCollector(names, declared),
        progress=progress,
        num_threads=num_threads,
        compression_type=compression_type,
        store=store,
    )
    for result in results:
        if result.error is not None:
            raise result.error
    indexes = [load_index(result.index_path, result.path) for result in results]
    for result, index in zip(results, indexes, strict=True):
        _warn_of_invalid(result.path, index)
    return indexes


def _one_file(paths: Any, store: StoreOptions) -> str | None:
    """The single file meant; None for a folder, a glob or a list."""
    if not isinstance(paths, str | bytes | os.PathLike):
        return None
    name = os.fsdecode(paths)
    if is_url(name):
        found = expand_paths(name, store=store)
        return found[0] if len(found) == 1 and found[0] == clean_url(name) else None
    return name if not os.path.isdir(name) and os.path.lexists(name) else None


def _warn_of_invalid(path: str, index: RecordIndex) -> None:
    """Warn how many records of a file of Examples are not valid."""
    schema = index.metadata.get("schema") or {}
    if schema.get("num_invalid"):
        text = invalid_text(schema["num_invalid"], schema["num_records"], schema["invalid"])
        warn_caller(f"{path}: {text}")


@suggests_options
def build_indexes(
    paths: Any,
    *,
    columns: Iterable[str] | None = None,
    jobs: int = 1,
    format: indexer.build.Format = "extended",
    force: bool = False,
    recursive: bool = True,
    collector_factory: Callable[[], indexer.build.Collector] | None = None,
    progress: bool | Callable[[indexer.build_many.BuildResult], object] | None = None,
    storage_options: Given | None = None,
) -> list[indexer.build_many.BuildResult]:
    """Build the indexes of files, globs and folders, each beside its data; one `BuildResult` per file.

    Args:
        columns: as for `build_index`.
        jobs: how many files to process at once.
        format: ``"extended"``, or ``"text"``, which holds positions only.
        force: also rebuild fresh indexes, which match their data and have the columns.
        recursive: include subfolders.
        collector_factory: makes a collector for the records of one file, which replaces the schema and the
            columns.
        progress: True shows a bar; a callable gets each result.
        storage_options: options for URLs, as for `TFRecordReader`.

    A file that fails does not stop the others: its result has the error.
    """
    names = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    if format == "extended" and collector_factory is None:

        def collector_factory() -> SchemaCollector:
            return SchemaCollector(names)

    return indexer.build_many.build_indexes(
        paths,
        jobs=jobs,
        format=format,
        force=force,
        recursive=recursive,
        collector_factory=collector_factory,
        progress=progress,
        store=StoreOptions(storage_options),
    )
