"""The one forward scanner over frames, for plain files, compressed streams and pipes alike.

Loaders, index builds and checks all read through `iter_chunks`, so they see the same records and the same
errors, and memory is bounded for all of them.
"""

from __future__ import annotations

import mmap as mmap_module
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from . import framing
from .compression import HEAD_SIZE, detect, normalize_compression
from .errors import CompressionError, CorruptRecordError, TFRecordError, TruncatedRecordError
from .files import DataFile, is_url, open_data, path_name
from .framing import (
    FOOTER_SIZE,
    FRAME_OVERHEAD,
    HEADER_SIZE,
    VERIFY_ALL,
    VERIFY_LENGTHS,
    UInt64Array,
    check_frame,
    corrupt_error,
    crc32c,
    frame_header,
    mask_crc32c,
    scan,
)
from .inputstream import InputStream, open_stream
from .options import check_threads

__all__ = [
    "Chunk",
    "InputStream",
    "detect",
    "iter_chunks",
    "most_record_bytes",
    "normalize_compression",
    "open_source",
    "open_stream",
]

_CHUNK_SIZE = 1 << 20
_SPILLED = 64 << 20


class Chunk(NamedTuple):
    """A run of good frames.

    ``buffer``: what holds them: the whole map of a mapped file, else fresh bytes that nothing else writes to.
    ``offsets``: where the frames start in ``buffer``, uint64. ``lengths``: sizes of the payloads in bytes,
    uint64. ``base_offset``: where ``buffer`` starts in the (decompressed) stream. ``first_record``: number of
    the first record. ``checksums``: the stored ones of the payloads, 4 bytes each, if they were asked for.
    """

    buffer: memoryview
    offsets: UInt64Array
    lengths: UInt64Array
    base_offset: int
    first_record: int
    checksums: bytes = b""


OnDamage = Callable[[TFRecordError], object]


def iter_chunks(
    source: Any,
    *,
    compression_type: str | None = None,
    verify: int = VERIFY_ALL,
    chunk_size: int = _CHUNK_SIZE,
    max_records: int | None = None,
    start: tuple[int, int] = (0, 0),
    on_damage: OnDamage | None = None,
    num_threads: int = 1,
    mmap: bool = True,
    max_record_bytes: int | None = None,
    payloads: bool = True,
    spill: bool = False,
    checksums: bool = False,
) -> Iterator[Chunk]:
    """The frames of a path, URL, file object, `DataFile` or `InputStream`, in stored order, chunk by chunk.

    Good records come first, then the error is raised: `CorruptRecordError` or `CompressionError`, with file,
    record and offset. With ``on_damage`` the error goes to that function instead. Then a record with a
    damaged payload is skipped; after a damaged length, a truncation or a damaged stream, the rest of the data
    is not read.

    A chunk has about ``chunk_size`` bytes and at most ``max_records`` records. A longer record has a chunk of
    its own, which grows only as its bytes arrive, up to ``max_record_bytes`` (None: `most_record_bytes`;
    mapped data needs no limit). With ``payloads=False`` the chunk of such a record has an empty buffer: its
    bytes are checked as they pass, and not kept. ``spill``: a record of more than 64 MiB is kept in a
    temporary file instead of in memory; the buffer of its chunk is a map of it. ``start``: (offset, record)
    of the frame to begin with; `ValueError` if the data ends before it. ``checksums``: the chunks have them.
    """
    name, num_threads = normalize_compression(compression_type), check_threads(num_threads)
    if (max_records is not None and max_records < 1) or min(start) < 0:
        raise ValueError(
            f"max_records must be at least 1 and start not negative, not {max_records} and {start}"
        )
    closing: Any = None
    if isinstance(source, (str, bytes, os.PathLike)):
        source = closing = open_source(source, name, mmap=mmap)
    elif not isinstance(source, (DataFile, InputStream)):
        source = open_stream(source, name)
    try:
        walk = _Walk(source, verify, chunk_size, max_records, on_damage, num_threads)
        walk.payloads, walk.spill, walk.checksums = payloads, spill, checksums
        walk.max_record_bytes = most_record_bytes() if max_record_bytes is None else max_record_bytes
        if isinstance(source, DataFile):
            if start[0] > source.size:
                raise _beyond(source.path, start[0])
            yield from walk.mapped(start) if source.mapped else walk.read(source.reader(start[0]), start)
        else:
            left = start[0] - source.position
            if left > 0 and source.skip(left) < left:
                raise _beyond(source.path, start[0])
            yield from walk.read(source, start)
    finally:
        if closing is not None:
            closing.close()


def open_source(
    source: Any, compression_type: str | None = None, *, mmap: bool = True
) -> DataFile | InputStream:
    """Open a path or URL for `iter_chunks`: map a plain local file, open anything else as a stream."""
    compression, path = normalize_compression(compression_type), path_name(source)
    if mmap and compression in ("", "auto") and not is_url(path) and os.path.isfile(path):
        data = open_data(source)
        # Files in /proc report a size of 0 and still have content.
        if data.mapped and data.size and (not compression or detect(data.head(HEAD_SIZE)) is None):
            return data
        data.close()
    return open_stream(source, compression)


def most_record_bytes() -> int:
    """The default limit for a record that is read from a stream: 2 GiB, or a quarter of the memory that this
    process may use if that is less."""
    most = [2 << 30]
    try:
        most.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft != resource.RLIM_INFINITY:
            most.append(soft // 4)
        with open("/sys/fs/cgroup/memory.max", "rb") as file:
            most.append(int(file.read()) // 4)
    except (ImportError, OSError, ValueError):
        pass  # unknown here, or without a limit
    return min(most)


def _beyond(path: str, start: int) -> ValueError:
    return ValueError(f"{path}: the start, offset {start}, is beyond the end of the data")


class _Walk:
    """One pass over the frames of one source."""

    def __init__(
        self,
        source: Any,
        verify: int,
        chunk_size: int,
        max_records: int | None,
        on_damage: OnDamage | None,
        num_threads: int,
    ) -> None:
        self.source = source
        self.verify = verify
        self.chunk_size = max(1, chunk_size)
        self.max_records = max_records
        self.on_damage = on_damage
        self.num_threads = num_threads
        self.record = 0
        self.payloads = True
        self.spill = False
        self.checksums = False
        self.max_record_bytes = 0
        self.read_again = -1  # the offset of the last frame that was

    def damaged(self, error: TFRecordError) -> None:
        if self.on_damage is None:
            raise error
        self.on_damage(error)

    def corrupt(self, reason: str, offset: int, head: bytes) -> CorruptRecordError:
        return corrupt_error(
            reason,
            path=self.source.path,
            record=self.record,
            offset=offset,
            buffer_head=head,
            compression=getattr(self.source, "compression", ""),
        )

    def mapped(self, start: tuple[int, int]) -> Iterator[Chunk]:
        data: DataFile = self.source
        at, self.record = start
        while at < data.size:
            try:
                buffer = data.buffer()
            except TruncatedRecordError as error:  # it shrank
                self.damaged(error.at(self.record, at))
                return
            found = self.scan(buffer, at, self.chunk_size)
            if len(found.offsets):
                yield Chunk(buffer, found.offsets, found.lengths, 0, self.record, found.checksums)
                self.record += len(found.offsets)
            at = found.end
            if found.reason is not None:
                self.damaged(self.corrupt(found.reason, at, bytes(buffer[:HEAD_SIZE])))
                if found.reason != "bad_payload_crc":
                    return
                at += FRAME_OVERHEAD + int.from_bytes(buffer[at : at + 8], "little")
                self.record += 1

    def scan(self, buffer: Any, at: int, max_bytes: int | None, final: bool = True) -> framing.Scan:
        return scan(
            buffer,
            start=at,
            max_records=self.max_records,
            max_bytes=max_bytes,
            verify=self.verify,
            final=final,
            num_threads=self.num_threads,
            checksums=self.checksums,
        )

    def read(self, stream: Any, start: tuple[int, int]) -> Iterator[Chunk]:
        base, self.record = start
        rest: Any = b""
        failure: CompressionError | CorruptRecordError | None = None
        final = False
        while not final:
            length = self._claimed(rest)
            if length is not None and length > (self.chunk_size if not self.payloads else self._most_held()):
                chunk, failure = self._long_record(stream, rest, length, base)
                if failure is not None and failure.reason != "bad_payload_crc":
                    break
                if failure is not None:
                    self.damaged(failure)
                    failure = None
                else:
                    yield chunk
                self.record += 1
                base, rest = base + FRAME_OVERHEAD + length, b""
                continue
            filled, final, failure = self._fill(stream, rest, length)
            if length is not None and length > self.max_record_bytes < len(filled) - FRAME_OVERHEAD:
                failure = self._too_long(length, base)
                break
            if failure is not None and failure.reason == "bad_stream":
                self.verify = VERIFY_ALL  # the last bytes it gave may already be damaged
            buffer = memoryview(filled).toreadonly()
            at = 0
            while at < len(buffer):
                found = self.scan(buffer, at, None, final and failure is None)
                if len(found.offsets):
                    yield Chunk(buffer, found.offsets, found.lengths, base, self.record, found.checksums)
                    self.record += len(found.offsets)
                progress, at = found.end > at, found.end
                if found.reason is not None:
                    mended = self._read_again(stream, buffer, base, at, found.reason)
                    if mended is not None:
                        buffer = mended
                        continue
                    if failure is not None and failure.reason == "bad_stream" and self.on_damage is None:
                        break  # the stream is damaged, not the record
                    self.damaged(self.corrupt(found.reason, base + at, bytes(buffer[:HEAD_SIZE])))
                    if found.reason != "bad_payload_crc":
                        return
                    at += FRAME_OVERHEAD + int.from_bytes(buffer[at : at + 8], "little")
                    self.record += 1
                elif not progress:
                    break
            rest = buffer[at:]
            base += at
        if failure is not None:
            self.damaged(failure.at(self.record, base))

    def _read_again(
        self, stream: Any, buffer: memoryview, base: int, at: int, reason: str
    ) -> memoryview | None:
        """The buffer with the damaged frame at ``at`` as a store gives it now; None if that helps nothing."""
        again = getattr(stream, "again", None)
        if again is None or reason == "truncated_record" or base + at == self.read_again:
            return None
        self.read_again = base + at  # once only
        length = int.from_bytes(buffer[at : at + 8], "little")
        size = HEADER_SIZE if reason == "bad_length_crc" else FRAME_OVERHEAD + length
        frame = again(base + at, base + at + size)
        if frame is None or frame == buffer[at : at + size]:
            return None
        return memoryview(b"".join((buffer[:at], frame, buffer[at + size :])))

    def _claimed(self, rest: Any) -> int | None:
        """The length of the record at the start of ``rest``, if its header is complete and good."""
        if len(rest) < HEADER_SIZE:
            return None
        length = int.from_bytes(rest[:8], "little")
        return length if self.verify < VERIFY_LENGTHS or frame_header(length) == rest[:HEADER_SIZE] else None

    def _most_held(self) -> int:
        return max(self.chunk_size, _SPILLED) if self.spill else 1 << 64

    def _long_record(
        self, stream: Any, rest: Any, length: int, base: int
    ) -> tuple[Chunk, CompressionError | CorruptRecordError | None]:
        """A record that begins with ``rest``, of which only a piece is in memory at any time."""
        total = FRAME_OVERHEAD + (min(length, self.max_record_bytes + 1) if self.payloads else length)
        end = HEADER_SIZE + length
        held: Any = tempfile.TemporaryFile(prefix="tfrecord-record-") if self.payloads else None  # noqa: SIM115
        done, crc, footer = 0, 0, b""
        failure: CompressionError | CorruptRecordError | None = None
        with held or nullcontext():
            piece = memoryview(rest)
            try:
                while piece:
                    crc = crc32c(piece[max(HEADER_SIZE - done, 0) : max(end - done, 0)], crc)
                    footer += bytes(piece[max(end - done, 0) :])
                    if held is not None:
                        held.write(piece)
                    done += len(piece)
                    piece = memoryview(
                        stream.read_some(min(total - done, _CHUNK_SIZE)) if done < total else b""
                    )
            except (CompressionError, TruncatedRecordError) as error:
                failure = error
            if failure is None and length > self.max_record_bytes and held is not None and done == total:
                failure = self._too_long(length, base)
            elif failure is None and done < total:
                failure = self.corrupt("truncated_record", base, b"")
            elif (
                failure is None
                and self.verify >= VERIFY_ALL
                and footer != mask_crc32c(crc).to_bytes(4, "little")
            ):
                again = getattr(stream, "again", None)
                frame = None if again is None else again(base, base + total)
                if (
                    frame is not None and check_frame(frame, 0, length) is None
                ):  # a store gave it wrongly before
                    whole = memoryview(frame if self.payloads else b"")
                    return self._chunk_of_one(whole, length, base, bytes(frame[-FOOTER_SIZE:])), None
                failure = self.corrupt("bad_payload_crc", base, b"")
            if held is not None and failure is None:
                held.flush()
                buffer = memoryview(mmap_module.mmap(held.fileno(), 0, access=mmap_module.ACCESS_READ))
            else:
                buffer = memoryview(b"")
        return self._chunk_of_one(buffer, length, base, footer), failure

    def _chunk_of_one(self, buffer: memoryview, length: int, base: int, footer: bytes) -> Chunk:
        places = np.array([0], np.uint64), np.array([length], np.uint64)
        return Chunk(buffer, *places, base, self.record, footer)

    def _too_long(self, length: int, base: int) -> CorruptRecordError:
        detail = f"{length} bytes, max_record_bytes is {self.max_record_bytes}"
        return corrupt_error(
            "record_too_long", path=self.source.path, record=self.record, offset=base, detail=detail
        )

    def _fill(
        self, stream: Any, rest: Any, length: int | None
    ) -> tuple[bytearray, bool, CompressionError | TruncatedRecordError | None]:
        """A fresh buffer: the bytes left over, and at least what the first frame needs.

        Returns (buffer, at end, failure). If the source gives only a little at a time, this waits until a
        chunk of reasonable size has arrived, unless few records are asked for, as when peeking at a pipe.
        """
        filled = bytearray(rest)
        need = len(filled) + 1 if self.max_records is not None else max(len(filled) + 1, self.chunk_size // 4)
        if length is not None:
            need = max(need, FRAME_OVERHEAD + min(length, self.max_record_bytes + 1))
        try:
            while len(filled) < need:
                wanted = max(self.chunk_size - len(filled), min(need - len(filled), _CHUNK_SIZE))
                piece = stream.read_some(wanted)
                if not piece:
                    return filled, True, None
                filled += piece
        except (CompressionError, TruncatedRecordError) as error:
            return filled, True, error
        return filled, False, None
