"""Check files completely, and copy the good records of a damaged file to a new one.

A record is good if both of its checksums match. After damage the search for the next record starts inside the
damaged one, so nothing good is lost, whatever was flipped, truncated, wiped, removed or inserted.
"""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from indexer.compressors import Compressor
from indexer.files import is_url, total_size
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, scan
from indexer.names import split_compression
from indexer.options import check_threads, suggests_options
from indexer.outputs import STREAM, Outputs
from indexer.paths import Paths, expand_paths
from indexer.progress import Progress, Report, shown
from indexer.sniffing import sniff
from indexer.stores import StoreOptions, Url
from indexer.streams import normalize_compression
from tfrecord._kernels.record_type import RecordTypeName, check_record_type
from tfrecord._repair.checker import Checker
from tfrecord._repair.inflate import StreamDamage, any_set
from tfrecord._repair.mapped import decompressed, forget, opened
from tfrecord._repair.reports import MOST_ENTRIES, Damage, FileReport, SalvageReport, VerifyReport
from tfrecord._repair.resync import FrameFinder, header_at

_RECORDS_A_STEP = 1 << 16
_BYTES_A_STEP = 1 << 26
_WRITE = 1 << 22

__all__ = ["Damage", "FileReport", "SalvageReport", "StreamDamage", "VerifyReport", "salvage", "verify"]


@suggests_options
def verify(
    paths: Paths,
    *,
    compression_type: str | None = None,
    record_type: RecordTypeName = "auto",
    parse: bool = True,
    num_threads: int = 1,
    progress: Progress = False,
    on_damage: Callable[[Damage], object] | None = None,
    storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
) -> VerifyReport:
    """Check every byte of files: the checksums of all records, compressed streams to their end, messages.

    Args:
        paths: files, globs, folders and URLs, as for `tfrecord.TFRecordReader`; `"-"` is standard input.
        compression_type: as for readers; None detects it from the content.
        record_type: the type of the records: `"auto"`, `"example"`, `"sequence_example"` or `"bytes"`.
        parse: False checks only checksums, not messages.
        num_threads: how many threads work at once, on several files or on parts of one.
        progress: True shows a bar if tqdm is installed; a callable gets the bytes done and the total.
        on_damage: called with each `Damage` as soon as it is found, in the order of the files.
        storage_options: options for URLs, as for readers.

    Returns:
        A report with one entry per damaged place. Checking continues after damage; a file that cannot be read
        is an entry too.

    Raises:
        FileNotFoundError: a path does not lead to a file.
        ValueError: an option has an invalid value.

    >>> report = verify("data/*.tfrecord")  # doctest: +SKIP
    >>> for damage in report.damages:  # doctest: +SKIP
    ...     print(damage.path, damage.record, damage.reason)
    data/b.tfrecord 17 bad_payload_crc
    """
    check_record_type(record_type)
    kind = normalize_compression(compression_type)
    threads = check_threads(num_threads)
    files = _files(paths, StoreOptions(storage_options))
    total = total_size(files)
    with shown(progress, "verify") as report:
        checker = Checker(
            threads=threads,
            parse=parse,
            record_type=record_type,
            on_damage=on_damage,
            progress=_Sum(report, total).add,
        )
        return VerifyReport(checker.check(files, kind))


def _files(paths: Paths, store: StoreOptions) -> list[str]:
    """The files that the paths mean; `-` stays as it is."""
    items = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
    if not items:
        raise ValueError("no paths were given: the list is empty")
    return [
        name for item in items for name in ([STREAM] if item == STREAM else expand_paths(item, store=store))
    ]


class _Sum:
    """Adds up what several threads have done, and reports the sum."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total = report, total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._report(self._done, self._total)


@suggests_options
def salvage(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    compression_type: str | None = None,
    output_compression: str | None = None,
    progress: Progress = False,
    storage_options: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
) -> SalvageReport:
    """Copy every good record of `source` to `destination`, in order, and report what was lost.

    Args:
        source: a path or URL; `"-"` is standard input. It is never changed.
        destination: a path or URL, or `"-"` for standard output. It appears only when it is complete, and
            must not be `source`.
        compression_type: as for readers. Everything in a compressed file that can be decompressed is used;
            after a damaged gzip member the search continues with the next one.
        output_compression: `"NONE"`, `"GZIP"`, `"ZLIB"` or `"ZSTD"`; by default the suffix of `destination`
            decides.
        progress: True shows a bar if tqdm is installed; a callable gets the bytes done and the total.
        storage_options: options for URLs, as for readers.

    Returns:
        A report of what was written, with one entry per damaged place. Damage is reported, not raised.

    Raises:
        OSError: a file cannot be read or written.

    >>> report = salvage("damaged.tfrecord", "whole.tfrecord")  # doctest: +SKIP
    >>> report.records, report.bytes_lost  # doctest: +SKIP
    (9998, 1042)
    """
    source, destination = os.fspath(source), os.fspath(destination)
    if storage_options is not None:
        store = StoreOptions(storage_options)
        source, destination = (Url(p, store) if is_url(p) else p for p in (source, destination))
    kind, packing = normalize_compression(compression_type), normalize_compression(output_compression)
    if packing == "auto":
        packing = split_compression(destination)[1]
    result = SalvageReport(source, destination)
    with ExitStack() as stack:
        report = stack.enter_context(shown(progress, "salvage"))
        outputs = stack.enter_context(Outputs([source]))
        raw = outputs.open(destination)
        elsewhere = destination == STREAM or is_url(destination)
        folder = None if elsewhere else os.path.dirname(os.path.abspath(destination))
        stored = stack.enter_context(opened(source, folder))
        found = stack.enter_context(decompressed(stored, kind, folder))
        data, result.compression, result.stream_damages = found
        result.size = len(data)
        with _packed(raw, packing) as out:
            for start, end in _good_runs(data, result, report):
                for at in range(start, end, _WRITE):
                    out.write(data[at : min(at + _WRITE, end)])
                result.bytes_written += end - start
        if not result.records and not result.ok:
            result.hint = (
                _hint(bytes(data[:512]), result.compression) if len(data) else _hint(bytes(stored[:512]), "")
            )
    return result


def _hint(head: bytes, compression: str) -> str:
    """What a file without a single good record looks like, from its first (decompressed) bytes."""
    looks = sniff(head)
    if looks is None:
        return "no record was found"
    if compression and looks.startswith(("gzip", "zlib", "zstd")):
        return "no record was found; the file is compressed twice: decompress it once"
    return f"no record was found; the file looks like {looks}"


def _good_runs(data: memoryview, result: SalvageReport, report: Report) -> Iterator[tuple[int, int]]:
    """(start, end) of every run of good frames; the damage between them goes into the result."""
    finder = FrameFinder(data)
    at = record = 0
    while at < len(data):
        found = scan(data, start=at, max_records=_RECORDS_A_STEP, max_bytes=_BYTES_A_STEP)
        start, at, count, reason = at, found.end, len(found.offsets), found.reason
        spliced = reason is not None and count and finder.is_splice(int(found.offsets[-1]))
        if spliced:
            count, at = count - 1, int(found.offsets[-1])
        if at > start:
            yield start, at
        record += count
        result.records += count
        if reason is not None:
            end = at + HEADER_SIZE if spliced else finder.resume(at)
            _note(data, result, record, (at, end), "bad_payload_crc" if spliced else reason)
            record += 1
            at = end
        if at - start >= _BYTES_A_STEP // 2:
            forget(data, start, at)
        report(at, len(data))


def _note(data: memoryview, result: SalvageReport, record: int, place: tuple[int, int], reason: str) -> None:
    """Put the damaged stretch at `place` (start, end) into the result."""
    start, end = place
    result.num_damages += 1
    result.bytes_lost += end - start
    if len(result.damages) >= MOST_ENTRIES:
        return
    length = header_at(data, start)
    detail = ""
    if not any_set(data, start, end):
        detail = "all zeros"
    elif length is not None and reason == "bad_payload_crc":
        declared = start + FRAME_OVERHEAD + length
        if end < declared:
            detail = f"{declared - end} bytes or more are missing"
        elif end > declared:
            detail = f"{end - declared} bytes more than its length says"
    result.damages.append(Damage(result.path, record, start, end - start, reason, detail))


@contextmanager
def _packed(raw: BinaryIO, compression: str) -> Iterator[Any]:
    """The output, compressed if requested."""
    if compression == "gzip":
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
            yield file
    elif compression:
        packer = _Packer(raw, compression)
        yield packer
        packer.finish()
    else:
        yield raw


class _Packer:
    """Writes a compressed stream."""

    def __init__(self, raw: BinaryIO, compression: str) -> None:
        self._raw, self._packer = raw, Compressor(compression)

    def write(self, piece: Any) -> None:
        self._raw.write(self._packer.compress(piece))

    def finish(self) -> None:
        self._raw.write(self._packer.finish())
