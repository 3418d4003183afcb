"""`tfrecord info`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from indexer.build import find_index, scan_index
from indexer.errors import CorruptRecordError, FeatureKindError, IndexFileError, TFRecordError
from indexer.files import is_url, open_data
from indexer.formats import load_index
from indexer.framing import VERIFY_LENGTHS
from indexer.index import RecordIndex
from indexer.names import is_index_name
from indexer.outputs import STREAM
from indexer.shards import ShardSet, shard_sets
from indexer.streams import detect
from tfrecord._cli.columnstats import BatchStats, stats_of
from tfrecord._cli.common import (
    MOST_ROWS,
    add_row,
    compression_option,
    console,
    count_text,
    emit,
    expand,
    json_option,
    more_text,
    paths_argument,
    progress,
    size_text,
    table,
)
from tfrecord._cli.conversion.layout import exact_record
from tfrecord._cli.describe import value_text
from tfrecord._cli.prepared import about, describe, versions
from tfrecord._cli.problems import Problems, record_type_option
from tfrecord._cli.remote import remote_options
from tfrecord._cli.terminal import safe, say
from tfrecord._kernels.record_type import RecordType
from tfrecord._reading.metadata import check_metadata
from tfrecord._reading.payload_batches import Batch, batches, checked, settle_batches
from tfrecord.schema import invalid_text, merge_schemas
from tfrecord.tfds.folder import is_prepared

_SAMPLE = 1000
_SAMPLE_BYTES = 4 << 20
_LONGEST = 16 << 20


@dataclass
class Feature:
    """One feature of one kind, over the files that were read."""

    present: int = 0
    least: int = 1 << 62
    most: int = 0
    example: str = ""


@dataclass
class FileInfo:
    """One file; `problem` is what is wrong with it, `index` the state of its index."""

    path: str
    size: int | None = None
    records: int | None = None
    compression: str = ""
    record_type: str = ""
    declared: str = "auto"
    index: str = "none"
    index_path: str | None = None
    index_columns: list[str] = field(default_factory=list)
    problem: str = ""
    looked_at: int = 0
    features: dict[tuple[str, str, str], Feature] = field(default_factory=dict)


@click.command()
@paths_argument
@compression_option
@record_type_option
@remote_options
@json_option
def info(paths: tuple[str, ...], compression: str | None, record_type: str, as_json: bool) -> int:
    """Records, bytes, compression, record type, index and features of files, and whether shard sets are
    complete.

    Immediate with an index. Without one, the headers of a plain file are scanned, and a compressed file is
    read. Features come from the extended index, or else from the first records of each file.

    \b
    Example:
      tfrecord info data/
    """
    above = {path: below for path in paths if (below := versions(path))}
    if above and len(above) == len(paths):
        return _list_versions(above, as_json)
    files = expand(paths)
    with progress("info", len(files)) as advance:
        results = []
        for path in files:
            results.append(_look_at(path, compression, record_type))
            advance(1)
    # One URL that is asked for is that file: http could not list the others.
    one = len(files) == 1 and is_url(files[0]) and files[0] in paths
    sets = [] if one else shard_sets(files)
    prepared = describe(paths, {result.path: result.records for result in results})
    if as_json:
        emit({**_document(results, sets), **({"tfds": prepared} if prepared else {})})
    else:
        _print(results, sets)
        for line in (line for found in prepared for line in about(found)):
            say(line)
        for path in paths:
            if not is_prepared(path) and (left_out := _left_out(path, files)):
                them = f"{count_text(len(left_out), 'other file')} in {path}, {left_out[0]} …"
                say(f"not read: {them} (name them, or give a glob)", err=True)
    return 0 if _is_fine(results, sets) and not any(found["problem"] for found in prepared) else 1


def _list_versions(above: dict[str, list[str]], as_json: bool) -> int:
    """List the prepared datasets below folders."""
    if as_json:
        emit({"ok": True, "tfds_versions": above})
    for path, below in above.items():
        for name in () if as_json else below:
            say(os.path.join(path, name))
    return 0


def _left_out(path: str, files: list[str]) -> list[str]:
    """Files in a folder that may be data although their names are not the usual ones."""
    if not os.path.isdir(path):
        return []
    names = (name for name in sorted(os.listdir(path)) if name[0] not in "._" and not is_index_name(name))
    taken = {os.path.basename(file) for file in files}
    return [name for name in names if name not in taken and os.path.isfile(os.path.join(path, name))]


def _is_fine(results: list[FileInfo], sets: list[ShardSet]) -> bool:
    """Whether all is well. A single shard given alone is fine; the report still says that others are
    missing."""
    complete = len(results) == 1 or all(found.complete for found in sets)
    return complete and not any(result.problem for result in results)


def _look_at(path: str, compression: str | None, record_type: str) -> FileInfo:
    result = FileInfo(path, declared=record_type)
    try:
        if path == STREAM:
            _count_stream(result, compression)
            return result
        if is_url(path):
            with open_data(path, mmap=False) as file:
                result.size, result.compression = file.size, detect(file.head(512)) or ""
        elif os.path.exists(path):
            result.size = os.path.getsize(path)
            result.compression = _compression_of(path)
        index = _index_of(result, compression)
        if index is not None:
            result.records, result.compression = len(index), index.compression
        _features(result, index, compression)
    except (TFRecordError, OSError) as error:
        _trouble(result, error)
    return result


def _trouble(result: FileInfo, error: Exception) -> None:
    text = str(error)
    if not result.problem:
        result.problem = text if result.path in text else f"{result.path}: {text}"


def _index_of(result: FileInfo, compression: str | None) -> RecordIndex | None:
    """The index from its file, or from a header scan; None if the data is damaged. Then the result counts the
    records before the damage."""
    result.index_path = find_index(result.path)
    if result.index_path is not None:
        try:
            index = check_metadata(load_index(result.index_path, result.path))
            result.index = "text" if _is_text(result.index_path) else "extended"
            result.index_columns = list(index.columns)
            return index
        except IndexFileError as error:
            result.index = "stale or damaged"
            _trouble(result, error)
    try:
        return scan_index(result.path, compression_type=compression)
    except TFRecordError as error:
        result.records = getattr(error, "record", None)
        _trouble(result, error)
        return None


def _is_text(path: str) -> bool:
    with open_data(path) as file:
        return file.head(1).isdigit()


def _features(result: FileInfo, index: RecordIndex | None, compression: str | None) -> None:
    """Add the features: of all records from the index, or else of the first records."""
    known = index is not None and bool(index.metadata.get("schema"))
    seen = 0
    source = _first_batches(result.path, compression)
    for batch in _checked(source, result):
        seen += batch.num_bytes
        if not _sample(result, batch) or known or result.looked_at >= _SAMPLE or seen >= _SAMPLE_BYTES:
            break
    if index is not None and known and result.record_type != "bytes":
        _from_index(result, index)


def _first_batches(path: str, compression: str | None) -> Iterator[Batch]:
    """The first records, up to one that is too long to look at."""
    try:
        yield from batches(
            [path],
            compression=compression,
            records=_SAMPLE,
            num_bytes=_SAMPLE_BYTES,
            max_record_bytes=_LONGEST,
        )
    except CorruptRecordError as error:
        if error.reason != "record_too_long":
            raise


def _checked(source: Iterable[Batch], result: FileInfo) -> Iterator[Batch]:
    """The valid records; an invalid one is noted as the file's problem."""

    def settle(path: str, found: RecordType) -> RecordType:
        result.record_type = found.name
        Problems().settled(path, found)
        return found

    return checked(source, result.declared, lambda error: _trouble(result, error), settle)


def _sample(result: FileInfo, batch: Batch) -> bool:
    """Add the features of some of the first records; False if more records are of no use."""
    if result.record_type == "bytes":
        return False
    _note(result, stats_of(batch, None))
    context, lists = exact_record(batch.payloads.view(0), result.record_type)
    result.looked_at += len(batch.payloads)
    for where, features in (("", context), ("feature_lists", lists or {})):
        for (at, name, _), found in result.features.items():
            if at == where and features.get(name) is not None:
                found.example = found.example or value_text(features[name], 30)
    return True


def _compression_of(path: str) -> str:
    with open(path, "rb") as file:
        return detect(file.read(512)) or ""


def _note(result: FileInfo, stats: BatchStats) -> None:
    for (where, name, kind), column in stats.columns.items():
        found = result.features.setdefault((where, name, kind), Feature())
        found.present += column.present
        counts = column.steps if where else column.counts
        if counts.records:
            found.least, found.most = min(found.least, counts.least), max(found.most, counts.most)


def _from_index(result: FileInfo, index: RecordIndex) -> None:
    """Use what the extended index says about all records; examples stay those of the first record."""
    try:
        schema = merge_schemas([(result.path, index.metadata)], result.record_type)
    except FeatureKindError:  # kinds differ between records: the first records show which
        return
    examples = {key[:2]: found.example for key, found in result.features.items()}
    result.features = {}
    for where, features in (("", schema), ("feature_lists", schema.feature_lists)):
        for name, entry in features.items():
            kind = "no kind" if entry.kind == "unknown" else entry.kind
            found = Feature(entry.num_present, entry.min_length, entry.max_length)
            found.example = examples.get((where, name), "")
            result.features[where, name, kind] = found
    result.looked_at = len(index)
    if schema.num_invalid and not result.problem:
        first = index.metadata["schema"]["invalid"]
        result.problem = f"{result.path}: {invalid_text(schema.num_invalid, len(index), first)}"


def _count_stream(result: FileInfo, compression: str | None) -> None:
    result.records = 0
    source = batches([STREAM], compression=compression, verify=VERIFY_LENGTHS, records=_SAMPLE)
    for found, batch in settle_batches(source, result.declared, Problems().settled):
        result.record_type = found.name
        if result.looked_at < _SAMPLE:
            for part in _checked([batch], result):
                _sample(result, part)
        result.records += len(batch.payloads)


# Output.


def _document(results: list[FileInfo], sets: list[ShardSet]) -> dict[str, Any]:
    return {
        "ok": _is_fine(results, sets),
        "num_files": len(results),
        "records": sum(result.records or 0 for result in results),
        "bytes": sum(result.size or 0 for result in results),
        "files": [
            {
                "path": result.path,
                "records": result.records,
                "bytes": result.size,
                "compression": result.compression,
                "record_type": result.record_type,
                "index": result.index,
                "index_path": result.index_path,
                "index_columns": result.index_columns,
                "problem": result.problem or None,
            }
            for result in results
        ],
        "features": [
            {
                "name": name,
                "kind": kind,
                **({"where": where} if where else {}),
                "present": found.present,
                "of": sum(result.looked_at for result in results),
                "min_values": min(found.least, found.most),
                "max_values": found.most,
                "example": found.example,
            }
            for (where, name, kind), found in _joined(results).items()
        ],
        "shard_sets": [{**found._asdict(), "complete": found.complete} for found in sets],
    }


def _joined(results: list[FileInfo]) -> dict[tuple[str, str, str], Feature]:
    """The features of all files, sorted; `no kind` appears only if no file knows a kind."""
    joined: dict[tuple[str, str, str], Feature] = {}
    for result in results:
        for key, found in result.features.items():
            into = joined.setdefault(key, Feature())
            into.present += found.present
            into.least, into.most = min(into.least, found.least), max(into.most, found.most)
            into.example = into.example or found.example
    known = {key[:2] for key in joined if key[2] != "no kind"}
    return {key: joined[key] for key in sorted(joined) if key[2] != "no kind" or key[:2] not in known}


def _print(results: list[FileInfo], sets: list[ShardSet]) -> None:
    out = console()
    rows = table("file", "records", "bytes", "compression", "type", "index", right=("records", "bytes"))
    for result in results:
        kept = f" ({', '.join(result.index_columns)})" if result.index_columns else ""
        records = "?" if result.records is None else f"{result.records:,}{'+' if result.problem else ''}"
        size = "" if result.size is None else size_text(result.size)
        name = "<stdin>" if result.path == STREAM else result.path
        add_row(
            rows, name, records, size, result.compression or "none", result.record_type, result.index + kept
        )
    out.print(rows)
    if len(results) > 1:
        document = _document(results, sets)
        total = f"{count_text(document['records'], 'record')}, {size_text(document['bytes'])}"
        out.print(safe(f"{count_text(len(results), 'file')}: {total}"))
    for found in sets:
        out.print(safe(str(found)))
    features = _document(results, sets)["features"]
    if features:
        of = features[0]["of"]
        every = sum(result.records or 0 for result in results)
        sampled = "" if of == every else f" (of the first {of:,} records looked at)"
        out.print(safe(f"features{sampled}:"))
        shown = table("feature", "kind", "present", "values", "example", right=("present", "values"))
        for item in features[:MOST_ROWS]:
            low, high = item["min_values"], item["max_values"]
            values = str(high) if low == high else f"{low}..{high}"
            present = "all" if item["present"] == of else f"{item['present']:,}"
            steps = " steps" if "where" in item else ""
            add_row(shown, item["name"], item["kind"], present, values + steps, item["example"])
        out.print(shown)
        if len(features) > MOST_ROWS:
            out.print(more_text(len(features)))
    for result in results:
        if result.problem:
            out.print(safe(f"wrong: {result.problem}"))
