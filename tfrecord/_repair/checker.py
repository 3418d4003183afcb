"""Check every byte of a file: frames, streams and messages. Continues after damage."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from indexer.compression import HEAD_SIZE
from indexer.errors import CompressionError, CorruptRecordError
from indexer.files import is_url, open_data
from indexer.framing import (
    FRAME_OVERHEAD,
    HEADER_SIZE,
    VERIFY_LENGTHS,
    check_frame,
    check_frames,
    corrupt_error,
    scan,
)
from indexer.outputs import STREAM
from indexer.streams import detect, open_stream
from tfrecord._columns.batch import BytesColumn
from tfrecord._columns.decoding import INVALID, bad_rows
from tfrecord._kernels.record_type import SAMPLE, settle
from tfrecord._reading.payload_batches import batches
from tfrecord._repair.inflate import inflate
from tfrecord._repair.mapped import forget, map_file, opened, spooled
from tfrecord._repair.reports import MOST_ENTRIES, Damage, FileReport
from tfrecord._repair.resync import FrameFinder
from tfrecord._repair.turns import Turns

_FIRST_BLOCK = 1 << 18
_BLOCK = 1 << 20
# How many bytes of a map may stay in this process: releasing pages costs time, too.
_HELD = 32 << 20


class Checker:
    """Checks files on several threads. `on_damage` gets the damaged places in the order of the files.

    With `parse=False`, messages are not checked. `record_type` is the type of the payloads (`auto`: detected
    from the first ones). `progress` is called, from any thread, with the number of bytes done since its last
    call.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        parse: bool = True,
        record_type: str = "auto",
        on_damage: Callable[[Damage], object] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.threads, self.parse, self.record_type = threads, parse, record_type
        self.on_damage, self.progress = on_damage, progress
        self._turns: Turns[Damage]
        self._places: dict[int, int] = {}
        self._pool: ThreadPoolExecutor

    def check(self, paths: Sequence[str], compression: str) -> list[FileReport]:
        """Check files; `-` is standard input. A file that cannot be read counts as damaged."""
        results = [FileReport(path) for path in paths]
        self._places = {id(result): place for place, result in enumerate(results)}
        self._turns = Turns(self._give)
        with ThreadPoolExecutor(self.threads) as self._pool:
            # Reading from a pipe may block for long, and only this thread can be interrupted.
            if self.threads == 1 or len(paths) == 1 or not all(map(os.path.isfile, paths)):
                for result in results:
                    self._check_file(result, compression)
                return results
            # The thread of a file mostly waits for the pool, or decompresses.
            with ThreadPoolExecutor(self.threads) as files:
                try:
                    for _ in files.map(lambda result: self._check_file(result, compression), results):
                        pass
                except BaseException:
                    self._turns.stop()
                    raise
        return results

    def _give(self, damage: Damage) -> None:
        if self.on_damage is not None:
            self.on_damage(damage)

    def _check_file(self, result: FileReport, kind: str) -> None:
        try:
            self._check(result, kind)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # the disk for temporary files is full
                raise
            words = error.strerror or str(error)
            self._damaged(Damage(result.path, None, None, None, "unreadable", words), result)
        self._turns.done(self._places[id(result)])

    def _check(self, result: FileReport, kind: str) -> None:
        path = result.path
        remote = is_url(path)
        plain = path != STREAM and not remote and os.path.isfile(path)
        if remote:
            with open_data(path, mmap=False) as data:
                result.size = data.size
                kind = detect(data.head(HEAD_SIZE)) or "" if kind == "auto" else kind
        if plain:
            with open(path, "rb") as file:
                result.size = os.fstat(file.fileno()).st_size
                head = file.read(HEAD_SIZE)
                if kind == "auto":
                    kind = detect(head) or ""
                if not kind:
                    self._check_buffer(map_file(file), result)
                    return
        result.compression = kind if kind != "auto" else ""
        self._check_stream(path, kind, result, plain or remote)

    # Plain files: scan headers ahead, then check blocks of frames on the threads.

    def _check_buffer(self, data: memoryview, result: FileReport, at: int = 0, record: int = 0) -> None:
        finder = FrameFinder(data)
        if result.settled is None:
            self._settle(self._first_payloads(data, at), result)
        while at < len(data):
            damage = self._run(data, at, record, result)
            if damage is None:
                return
            at, record, reason = damage
            following = finder.resume(at)
            error = corrupt_error(
                reason, path=result.path, record=record, offset=at, buffer_head=bytes(data[:HEAD_SIZE])
            )
            self._damaged(_entry(error, following - at), result)
            self._advance(following - at, result)
            at, record = following, record + 1

    def _run(self, data: memoryview, at: int, record: int, result: FileReport) -> tuple[int, int, str] | None:
        """Check frames up to the first damaged one: its offset, number and reason; None at the end."""
        waiting: deque[tuple[Any, int, Future[Any]]] = deque()
        block, scan_at, kept, reason = _FIRST_BLOCK, at, at, None
        while True:
            if scan_at < len(data) and reason is None and len(waiting) <= self.threads:
                headers = scan(data, start=scan_at, max_bytes=block, verify=VERIFY_LENGTHS)
                if len(headers.offsets):
                    job = self._pool.submit(self._check_block, data, headers.offsets, headers.lengths, result)
                    waiting.append((headers, record, job))
                    record += len(headers.offsets)
                scan_at, reason, block = headers.end, headers.reason, min(2 * block, _BLOCK)
                continue
            if not waiting:
                return None if reason is None else (scan_at, record, reason)
            headers, first, job = waiting.popleft()
            bad, troubles = job.result()
            good = len(headers.offsets) if bad is None else bad[0]
            result.records += good
            for row, text in troubles:
                place = int(headers.offsets[row]), int(headers.lengths[row]) + FRAME_OVERHEAD
                self._bad_message(result, first + row, place, text)
            if bad is not None:
                for *_, later in waiting:
                    later.cancel()
                self._advance(int(headers.offsets[good]) - int(headers.offsets[0]), result)
                return int(headers.offsets[good]), first + good, bad[1]
            if headers.end - kept >= _HELD:
                forget(data, kept, headers.end)
                kept = headers.end
            self._advance(headers.end - int(headers.offsets[0]), result)

    def _check_block(
        self, data: memoryview, offsets: Any, lengths: Any, result: FileReport
    ) -> tuple[tuple[int, str] | None, list[tuple[int, str]]]:
        """The first damaged frame, and the messages before it that are not valid."""
        bad = check_frames(data, offsets, lengths)
        good = len(offsets) if bad is None else bad[0]
        places = (offsets[:good] + np.uint64(HEADER_SIZE)).astype(np.int64), lengths[:good].astype(np.int64)
        payloads = BytesColumn._trusted((data,), *places)
        return bad, self._messages(payloads, result)

    # Streams: in order, on the thread of the file.

    def _check_stream(self, path: str, kind: str, result: FileReport, sized: bool) -> None:
        errors: list[Any] = []
        for batch in batches([path], compression=kind or "none", on_damage=errors.append, spill=True):
            starts = batch.chunk.base_offset + batch.chunk.offsets.astype(np.int64)
            self._note(errors, result, int(starts[0]))
            self._advance(batch.num_bytes, result)
            result.records += len(batch.payloads)
            result.size += 0 if sized else batch.num_bytes
            for row, text in self._messages(batch.payloads, result):
                place = int(starts[row]), int(batch.chunk.lengths[row]) + FRAME_OVERHEAD
                self._bad_message(result, batch.first + row, place, text)
        last = errors.pop() if errors else None
        self._note(errors, result, last.offset if last else None)
        if sized and last and last.reason == "bad_length_crc":
            self._rest_of_stream(path, kind, result, last)
        elif last:
            self._damaged(_entry(last, None), result)
            if isinstance(last, CorruptRecordError) and last.reason != "bad_payload_crc":
                self._drain(path, kind, result)
        if sized and result.compression and self.progress is not None:
            self.progress(result.size)

    def _rest_of_stream(self, path: str, kind: str, result: FileReport, error: CorruptRecordError) -> None:
        """After a damaged length in a compressed file or behind a URL: find the next frames in a copy."""
        with opened(path, None) as stored, spooled() as spool:
            stream_damages = inflate(stored, kind, spool, self._turns.check) if kind else []
            data = map_file(spool) if kind else stored
            at = int(error.offset or 0)
            following = FrameFinder(data).resume(at)
            self._damaged(_entry(error, following - at), result)
            for damage in stream_damages:
                entry = Damage(path, None, damage.offset, None, damage.reason, damage.detail)
                self._damaged(entry, result)
            self._check_buffer(data, result, following, int(error.record or 0) + 1)

    def _drain(self, path: str, kind: str, result: FileReport) -> None:
        """The frames ended too early; read the rest to learn whether the stream itself is complete."""
        if path == STREAM:
            return
        try:
            with open_stream(path, kind) as stream:
                while stream.read_some(1 << 20):
                    self._advance(0, result)
        except CompressionError as error:
            self._damaged(_entry(error, None), result)

    # Messages.

    def _first_payloads(self, data: memoryview, at: int) -> BytesColumn:
        found = scan(data, start=at, max_records=SAMPLE, verify=VERIFY_LENGTHS)
        frames = zip(found.offsets, found.lengths, strict=True)
        keep = np.array([check_frame(data, int(at), int(size)) is None for at, size in frames], np.bool_)
        offsets = (found.offsets[keep] + np.uint64(HEADER_SIZE)).astype(np.int64)
        return BytesColumn._trusted((data,), offsets, found.lengths[keep].astype(np.int64))

    def _settle(self, payloads: BytesColumn, result: FileReport) -> None:
        if len(payloads):
            result.settled = settle(map(payloads.view, range(len(payloads))), self.record_type)
            result.record_type = result.settled.name

    def _messages(self, payloads: BytesColumn, result: FileReport) -> list[tuple[int, str]]:
        """(row, reason) of every payload that is not a valid message."""
        if result.settled is None:
            self._settle(payloads, result)
        if not self.parse or result.record_type in ("", "bytes"):
            return []
        return [(row, error.reason.removeprefix(f"{INVALID}: ")) for row, error in bad_rows(payloads)]

    # What was found.

    def _advance(self, count: int, result: FileReport) -> None:
        """Report progress: `count` more bytes of a file. Those of a decompressed stream do not count."""
        self._turns.check()
        if self.progress is not None and not result.compression:
            self.progress(count)

    def _note(self, errors: list[Any], result: FileReport, end: int | None) -> None:
        """Add the errors of a stream to the report, in order; the next good record is at `end`."""
        for i, error in enumerate(errors):
            following = errors[i + 1].offset if i + 1 < len(errors) else end
            known = error.reason == "bad_payload_crc" and following is not None
            self._damaged(_entry(error, following - error.offset if known else None), result)
        errors.clear()

    def _bad_message(self, result: FileReport, record: int, place: tuple[int, int], text: str) -> None:
        result.records -= 1
        self._damaged(Damage(result.path, record, *place, "bad_message", text), result)

    def _damaged(self, damage: Damage, result: FileReport) -> None:
        result.num_damages += 1
        if len(result.damages) < MOST_ENTRIES:
            result.damages.append(damage)
        self._turns.put(self._places[id(result)], damage)


def _entry(error: Any, length: int | None) -> Damage:
    """The report entry for an error about a record or a stream."""
    return Damage(error.path, error.record, error.offset, length, error.reason, error.detail, error.hint)
