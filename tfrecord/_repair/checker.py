"""Check every byte of a file: frames, streams and messages. Goes on after damage."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from indexer.errors import CompressionError, CorruptRecordError, TFRecordError
from indexer.files import is_url
from indexer.framing import HEADER_SIZE, VERIFY_LENGTHS, check_frames, corrupt_error, scan
from indexer.outputs import STREAM
from indexer.streams import detect, normalize_compression, open_stream
from tfrecord._columns.batch import BytesColumn
from tfrecord._reading.payload_batches import batches
from tfrecord._repair.inflate import inflate
from tfrecord._repair.mapped import forget, map_file
from tfrecord._repair.resync import FrameFinder
from tfrecord._repair.turns import Turns
from tfrecord.parse import bad_messages, record_kind

_FIRST_BLOCK = 1 << 18
_BLOCK = 1 << 20
# So much of a map stays in this process: letting go of it costs something, too.
_HELD = 32 << 20
_LOOK_AT = 64
_KEPT = 10_000


@dataclass
class FileCheck:
    """What was found in one file, the one at `place`. `records` counts the good ones; `damages` holds at
    most 10,000, `num_damages` counts all."""

    path: str
    place: int = 0
    records: int = 0
    size: int = 0
    compression: str = ""
    record_type: str = ""
    num_damages: int = 0
    damages: list[dict[str, Any]] = field(default_factory=list)


Report = Callable[[TFRecordError], None]


class Checker:
    """Checks files on some threads; `report` gets each damage when it is found, but those of a file after
    those of the files before it.

    `parse=False` leaves messages alone; `record_type` says what payloads are (`auto`: by the first of them).
    `progress` is called with the bytes that were done, from any thread.
    """

    def __init__(
        self,
        *,
        threads: int = 1,
        parse: bool = True,
        record_type: str = "auto",
        report: Report | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.threads, self.parse, self.record_type = threads, parse, record_type
        self.report, self.progress = report, progress
        self._turns: Turns[TFRecordError]
        self._pool: ThreadPoolExecutor

    def check(self, paths: Sequence[str], compression: str | None = None) -> list[FileCheck]:
        """Check files; `-` is standard input. One that cannot be read is damaged, too."""
        results = [FileCheck(path, place) for place, path in enumerate(paths)]
        self._turns = Turns(self._give)
        with ThreadPoolExecutor(self.threads) as self._pool:
            # Reading what is no file may wait for long, which only this thread can be called away from.
            if self.threads == 1 or len(paths) == 1 or not all(map(os.path.isfile, paths)):
                for result in results:
                    self._check_file(result, compression)
                return results
            # A thread that looks after a file mostly waits for the pool, or decompresses.
            with ThreadPoolExecutor(self.threads) as files:
                try:
                    for _ in files.map(lambda result: self._check_file(result, compression), results):
                        pass
                except BaseException:
                    self._turns.stop()
                    raise
        return results

    def _give(self, error: TFRecordError) -> None:
        if self.report is not None:
            self.report(error)

    def _check_file(self, result: FileCheck, compression: str | None) -> None:
        try:
            self._check(result, compression)
        except OSError as error:
            failure: Any = TFRecordError(f"{result.path}: {error.strerror or error}")
            failure.record, failure.offset, failure.reason = None, None, "unreadable"
            self._damaged(failure, result)
        self._turns.done(result.place)

    def _check(self, result: FileCheck, compression: str | None) -> None:
        path, kind = result.path, normalize_compression(compression)
        plain = path != STREAM and not is_url(path) and os.path.isfile(path)
        if plain:
            with open(path, "rb") as file:
                result.size = os.fstat(file.fileno()).st_size
                head = file.read(512)
                if kind == "auto":
                    kind = detect(head) or ""
                if not kind:
                    self._check_buffer(map_file(file), result)
                    return
        result.compression = kind if kind != "auto" else ""
        self._check_stream(path, kind, result, plain)

    # Plain files: hop ahead, then check blocks of frames on the threads.

    def _check_buffer(self, data: memoryview, result: FileCheck, at: int = 0, record: int = 0) -> None:
        finder = FrameFinder(data)
        while at < len(data):
            damage = self._run(data, at, record, result)
            if damage is None:
                return
            at, record, reason = damage
            head = bytes(data[:512])
            self._damaged(
                corrupt_error(reason, path=result.path, record=record, offset=at, buffer_head=head), result
            )
            following = finder.resume(at)
            self._advance(following - at, result)
            at, record = following, record + 1

    def _run(self, data: memoryview, at: int, record: int, result: FileCheck) -> tuple[int, int, str] | None:
        """Check frames up to the first damaged one: its offset, number and reason; None at the end."""
        waiting: deque[tuple[Any, int, Future[Any]]] = deque()
        block, hop_at, kept, reason = _FIRST_BLOCK, at, at, None
        while True:
            if hop_at < len(data) and reason is None and len(waiting) <= self.threads:
                hop = scan(data, start=hop_at, max_bytes=block, verify=VERIFY_LENGTHS)
                if len(hop.offsets):
                    job = self._pool.submit(self._check_block, data, hop.offsets, hop.lengths, result)
                    waiting.append((hop, record, job))
                    record += len(hop.offsets)
                hop_at, reason, block = hop.end, hop.reason, min(2 * block, _BLOCK)
                continue
            if not waiting:
                return None if reason is None else (hop_at, record, reason)
            hop, first, job = waiting.popleft()
            bad, troubles = job.result()
            good = len(hop.offsets) if bad is None else bad[0]
            result.records += good
            for row, text in troubles:
                self._trouble(result, first + row, int(hop.offsets[row]), text)
            if bad is not None:
                for *_, later in waiting:
                    later.cancel()
                self._advance(int(hop.offsets[good]) - int(hop.offsets[0]), result)
                return int(hop.offsets[good]), first + good, bad[1]
            if hop.end - kept >= _HELD:
                forget(data, kept, hop.end)
                kept = hop.end
            self._advance(hop.end - int(hop.offsets[0]), result)

    def _check_block(
        self, data: memoryview, offsets: Any, lengths: Any, result: FileCheck
    ) -> tuple[tuple[int, str] | None, list[tuple[int, str]]]:
        """The first damaged frame of some, and the messages before it that are not valid."""
        bad = check_frames(data, offsets, lengths)
        good = len(offsets) if bad is None else bad[0]
        places = (offsets[:good] + np.uint64(HEADER_SIZE)).astype(np.int64), lengths[:good].astype(np.int64)
        payloads = BytesColumn._trusted((data,), *places)
        return bad, self._messages(payloads, result)

    # Streams: in order, on the thread of the file.

    def _check_stream(self, path: str, kind: str, result: FileCheck, plain: bool) -> None:
        errors: list[TFRecordError] = []
        for batch in batches([path], compression=kind or "none", on_damage=errors.append):
            self._flush(errors, result)
            self._advance(0, result)
            result.records += len(batch.payloads)
            result.size += 0 if plain else batch.num_bytes
            for row, text in self._messages(batch.payloads, result):
                offset = batch.chunk.base_offset + int(batch.chunk.offsets[row])
                self._trouble(result, batch.first + row, offset, text)
        last = errors[-1] if errors else None
        self._flush(errors, result)
        if plain and isinstance(last, CorruptRecordError) and last.reason == "bad_length_crc":
            self._rest_of_stream(path, kind, result, last)
        elif isinstance(last, CorruptRecordError) and last.reason != "bad_payload_crc":
            self._drain(path, kind, result)
        if plain and self.progress is not None:
            self.progress(result.size)

    def _rest_of_stream(self, path: str, kind: str, result: FileCheck, error: CorruptRecordError) -> None:
        """After a damaged length in a compressed file: decompress it to look for what follows."""
        with open(path, "rb") as file, tempfile.TemporaryFile() as spool:
            for damage in inflate(map_file(file), kind, spool, self._turns.check):
                self._damaged(
                    CompressionError(path, None, damage.offset, damage.reason, damage.detail), result
                )
            data = map_file(spool)
            following = FrameFinder(data).resume(int(error.offset or 0))
            self._check_buffer(data, result, following, int(error.record or 0) + 1)

    def _drain(self, path: str, kind: str, result: FileCheck) -> None:
        """Frames ended too early; whether the stream itself is whole is still to be said."""
        if path == STREAM:
            return
        try:
            with open_stream(path, kind) as stream:
                while stream.read_some(1 << 20):
                    self._advance(0, result)
        except CompressionError as error:
            self._damaged(error, result)

    # Messages.

    def _messages(self, payloads: BytesColumn, result: FileCheck) -> list[tuple[int, str]]:
        """(row, what is wrong) of every payload that is no valid message."""
        if not result.record_type:
            result.record_type = self._type_of(payloads)
        if not self.parse or result.record_type in ("", "bytes"):
            return []
        return bad_messages(payloads)

    def _type_of(self, payloads: BytesColumn) -> str:
        """What most of the first payloads are, so that one damaged message does not make a file of raw
        bytes; "" where all are empty, which tells nothing."""
        if self.record_type != "auto":
            return self.record_type
        kinds = [record_kind(payloads.view(int(i))) for i in np.flatnonzero(payloads.lengths)[:_LOOK_AT]]
        if not kinds:
            return ""
        if kinds.count("bytes") * 2 >= len(kinds):
            return "bytes"
        return "sequence_example" if "sequence_example" in kinds else "example"

    # What was found.

    def _advance(self, count: int, result: FileCheck) -> None:
        """So many more bytes of a plain file are done; of a compressed one they are not those of the file."""
        self._turns.check()
        if self.progress is not None and not result.compression:
            self.progress(count)

    def _flush(self, errors: list[TFRecordError], result: FileCheck) -> None:
        for error in errors:
            self._damaged(error, result)
        errors.clear()

    def _trouble(self, result: FileCheck, record: int, offset: int, text: str) -> None:
        result.records -= 1
        self._damaged(CorruptRecordError(result.path, record, offset, "bad_message", text), result)

    def _damaged(self, error: Any, result: FileCheck) -> None:
        result.num_damages += 1
        if len(result.damages) < _KEPT:
            result.damages.append(
                {
                    "record": error.record,
                    "offset": error.offset,
                    "reason": error.reason,
                    "message": str(error),
                }
            )
        self._turns.put(result.place, error)
