"""Write what is good of a damaged file to a new one.

A record is kept where both of its checksums fit, and only then. The next one after damage is searched for
from inside the damaged record (see `_resync`), so that nothing whole is lost, whatever was flipped, cut,
wiped, removed or inserted.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from indexer.compression import HEAD_SIZE, detect, is_frame
from indexer.files import is_url
from indexer.framing import FRAME_OVERHEAD, HEADER_SIZE, scan, sniff
from indexer.outputs import STREAM, Outputs
from indexer.paths import split_compression
from indexer.streams import normalize_compression, open_stream
from tfrecord._repair.inflate import GZIP_MAGIC, StreamDamage, find, inflate
from tfrecord._repair.mapped import forget, map_file
from tfrecord._repair.resync import FrameFinder, header_at

_RECORDS_A_STEP = 1 << 16
_BYTES_A_STEP = 1 << 26
_WRITE = 1 << 22
_DAMAGES_KEPT = 10_000

__all__ = ["Damage", "SalvageReport", "StreamDamage", "salvage"]


@dataclass(frozen=True)
class Damage:
    """One damaged stretch of a file.

    `record`: how many records, good or passed over, lie before it. `offset` and `length`: bytes, in the
    decompressed stream where the file is compressed. `reason`: `truncated_header`, `truncated_record`,
    `bad_length_crc` or `bad_payload_crc`. `detail`: what the stretch looks like, where it can be told.
    """

    record: int
    offset: int
    length: int
    reason: str
    detail: str = ""


@dataclass
class SalvageReport:
    """What `salvage` found: `records` and `bytes_written` that went to `output`, and what was lost.

    `damages` lists the damaged stretches, at most 10,000; `num_damages` counts all of them, `bytes_lost`
    their bytes. `stream_damages` lists damage of the compression. `compression` is `""`, `"gzip"` or
    `"zlib"`; `hint` says what the file looks like where it holds no record at all.
    """

    path: str
    output: str
    compression: str = ""
    size: int = 0
    records: int = 0
    bytes_written: int = 0
    bytes_lost: int = 0
    num_damages: int = 0
    damages: list[Damage] = field(default_factory=list)
    stream_damages: list[StreamDamage] = field(default_factory=list)
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was lost."""
        return not self.num_damages and not self.stream_damages


def salvage(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    compression_type: str | None = None,
    output_compression: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SalvageReport:
    """Copy every whole record of `source` to `destination`, in order, and tell what was lost.

    `source` is never changed; `destination` appears only when it is complete, and may not be `source`. `"-"`
    is standard input or output. `compression_type` as for readers; a compressed file gives what can be
    decompressed, and a damaged gzip member is left for the next one. The output is plain, or gzip where
    `output_compression="GZIP"` is given or `destination` ends in `.gz`. `progress` is called with the bytes
    done and the bytes in all.

    Raises OSError where a file cannot be read or written. Damage is reported, never raised.

    >>> report = salvage("damaged.tfrecord", "whole.tfrecord")  # doctest: +SKIP
    >>> report.records, report.bytes_lost  # doctest: +SKIP
    (9998, 1042)
    """
    source, destination = os.fspath(source), os.fspath(destination)
    kind = normalize_compression(compression_type)
    report = SalvageReport(source, destination)
    with ExitStack() as stack:
        outputs = stack.enter_context(Outputs([source]))
        raw = outputs.open(destination)
        folder = os.path.dirname(os.path.abspath(destination)) if destination != STREAM else None
        stored = stack.enter_context(_opened(source, folder))
        data = stack.enter_context(_decompressed(stored, kind, folder, report))
        report.size = len(data)
        with _packed(raw, destination, output_compression) as out:
            for start, end in _good_runs(data, report, progress):
                for at in range(start, end, _WRITE):
                    out.write(data[at : min(at + _WRITE, end)])
                report.bytes_written += end - start
        if not report.records and len(stored):
            looks = sniff(bytes((data if len(data) else stored)[:512]))
            report.hint = (
                f"no record was found; the file looks like {looks}" if looks else "no record was found"
            )
    return report


def _good_runs(
    data: memoryview, report: SalvageReport, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[int, int]]:
    """(start, end) of every run of whole frames; what lies between goes into the report."""
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
        report.records += count
        if reason is not None:
            end = at + HEADER_SIZE if spliced else finder.resume(at)
            _note(data, report, Damage(record, at, end - at, "bad_payload_crc" if spliced else reason), end)
            record += 1
            at = end
        if at - start >= _BYTES_A_STEP // 2:
            forget(data, start, at)
        if progress is not None:
            progress(at, len(data))


def _note(data: memoryview, report: SalvageReport, damage: Damage, end: int) -> None:
    report.num_damages += 1
    report.bytes_lost += damage.length
    if len(report.damages) >= _DAMAGES_KEPT:
        return
    length = header_at(data, damage.offset)
    detail = ""
    if not any(data[damage.offset : end]):
        detail = "all zeros"
    elif length is not None and damage.reason == "bad_payload_crc":
        declared = damage.offset + FRAME_OVERHEAD + length
        if end < declared:
            detail = f"{declared - end} bytes or more are missing"
        elif end > declared:
            detail = f"{end - declared} bytes more than its length says"
    report.damages.append(Damage(damage.record, damage.offset, damage.length, damage.reason, detail))


@contextmanager
def _opened(source: str, folder: str | None) -> Iterator[memoryview]:
    """The bytes of a file; a stream is kept in an unlinked temporary file beside the output."""
    with ExitStack() as stack:
        file: Any
        if is_url(source):
            file = stack.enter_context(open_stream(source, "NONE"))
        else:
            file = sys.stdin.buffer if source == STREAM else stack.enter_context(open(source, "rb"))
        if source == STREAM or is_url(source) or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            spool = stack.enter_context(tempfile.TemporaryFile(dir=folder))
            shutil.copyfileobj(file, spool, _WRITE)
            file = spool
        yield map_file(file)


def _looks_compressed(data: memoryview, kind: str) -> str:
    """`"gzip"`, `"zlib"` or `""`: the option where it is clear, else what the content is."""
    if kind != "auto":
        return kind
    head = bytes(data[:HEAD_SIZE])
    found = detect(head)
    if found is not None or is_frame(head):
        return found or ""
    # The beginning of the stream may be what is damaged.
    if head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0:
        return "zlib"
    return "gzip" if find(data, GZIP_MAGIC, 0) >= 0 and not any(FrameFinder(data).frames(0)) else ""


@contextmanager
def _decompressed(
    data: memoryview, kind: str, folder: str | None, report: SalvageReport
) -> Iterator[memoryview]:
    compression = _looks_compressed(data, kind)
    if not compression or not len(data):
        yield data
        return
    with tempfile.TemporaryFile(dir=folder) as spool:
        damages = inflate(data, compression, spool)
        if kind == "auto" and damages and not spool.tell() and any(FrameFinder(data).frames(0)):
            yield data  # a plain file whose first bytes only look like a compressed one
            return
        report.compression, report.stream_damages = compression, damages
        yield map_file(spool)


@contextmanager
def _packed(raw: BinaryIO, destination: str, compression: str | None) -> Iterator[Any]:
    """The output, compressed where it is to be."""
    kind = normalize_compression(compression)
    if kind == "auto":
        kind = split_compression(destination)[1]
    if kind == "gzip":
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
            yield file
    elif kind == "zlib":
        packer = zlib.compressobj()

        class _Zlib:
            @staticmethod
            def write(piece: Any) -> None:
                raw.write(packer.compress(piece))

        yield _Zlib
        raw.write(packer.flush())
    else:
        yield raw
