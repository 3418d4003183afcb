"""The target of a writer: gets whole frames or nothing, plain or compressed; a path, URL or binary file."""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from indexer import framing, streams
from indexer.atomic import unlock
from indexer.commits import settle
from indexer.compressors import Compressor, check_level
from indexer.errors import TFRecordError
from indexer.inflaters import WINDOW_BITS, finds_blocks
from indexer.inputstream import open_stream
from indexer.options import warn_caller
from indexer.points import SPACING, PointBuilder
from indexer.stores.upload import Upload
from tfrecord._writing.targets import is_file, local_path, open_locked, open_url, take_lock

_MODES = ("w", "x", "a")
_READ_SIZE = 1 << 14
# A gzip or zlib stream is flushed after so many bytes of content, so that it can be entered there: a little
# earlier than a point is wanted.
_FLUSH_EVERY = SPACING * 7 // 8


class Output:
    """One open target.

    `path` is None for a file object without a name. `size` counts the bytes of the record stream (before
    compression). With `mode="a"` it starts at the size of the existing records, whose payload lengths are in
    `lengths`. `broken`: the file ends inside a record, and no more are accepted. `points`: where the
    compressed file can be entered.
    """

    def __init__(
        self, target: Any, mode: str, compression_type: str | None, compression_level: int | None = None
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}; it must be 'w' (replace), 'x' (new file) or 'a' (append)")
        compression = "" if compression_type is None else streams.normalize_compression(compression_type)
        if compression == "auto":
            raise ValueError(
                "compression_type 'auto' is for reading; for writing use None, 'GZIP', 'ZLIB' or 'ZSTD'"
            )
        level = check_level(compression, compression_level)
        compressor = Compressor(compression, level) if compression else None
        self.compression = compression
        self.points = PointBuilder() if compression in WINDOW_BITS else None
        self.path: str | None = None
        self.is_local = False
        self.size = 0
        self.lengths = np.empty(0, np.uint64)
        self._owned: list[Any] = []  # what close() closes, in this order
        self._file: Any = None
        self._upload: Upload | None = None
        self.broken = False
        self._parked = False
        self._pid = os.getpid()
        self._open(target, mode)
        # Offset of our first byte in the file; None if the file cannot be truncated.
        self._base = _position(self._file)
        self._sent = 0
        self._compressor = compressor
        self._since_flush, self._compressed = 0, self.size
        if self.points is not None:
            self.points.begin(8 * (self._base or 0), self.size)

    def _open(self, target: Any, mode: str) -> None:
        if is_file(target):
            self._adopt(target, mode)
            return
        path = local_path(target)
        if path is None:
            self.path = os.fsdecode(target)
            self._file = self._upload = open_url(self.path, mode)
        else:
            self.path = path
            self.is_local = True
            settle(os.path.dirname(path))
            self._file = open_locked(path, mode)
            try:
                keep = self._check_tail(path) if mode == "a" and os.path.isfile(path) else None
                if keep is not None:
                    self._file.truncate(keep)
                    self._file.seek(keep)
            except BaseException:
                self._file.close()
                raise
        self._owned = [self._file]

    def _adopt(self, target: Any, mode: str) -> None:
        if mode != "w":
            raise ValueError(f"mode {mode!r} needs a path; writing to a file object begins at its position")
        if not hasattr(target, "write"):  # fsspec.open(...) returns a file that is opened and closed here
            if set(getattr(target, "mode", "wb")) & set("rt+"):
                raise ValueError(f"the fsspec file has mode {target.mode!r}; open it with mode 'wb'")
            self._file = target.open()
            self._owned = [self._file, target]
        else:
            self._file = target
        if isinstance(self._file, io.TextIOBase):
            raise TypeError("the file is open for text; records need a binary file (mode 'wb')")
        if isinstance(self._file, io.FileIO | io.BufferedReader) and not self._file.writable():
            raise ValueError("the file is not open for writing")
        name = getattr(self._file, "name", None)
        self.path = name if isinstance(name, str) else None

    def _check_tail(self, path: str) -> int | None:
        """Scan a file to append to. Returns where to truncate it, None if it is complete.

        Only an incomplete last record of a plain file that begins as a TFRecord file is cut off, with a
        warning. Any other damage raises.
        """
        with open(path, "rb") as file:
            head = file.read(1 << 12)
            if not head:
                return None
            found = streams.detect(head) or ""
            if found != self.compression:
                raise ValueError(
                    f"{path}: cannot append {self.compression or 'uncompressed'} records to "
                    f"{'an uncompressed' if not found else f'a {found}'} file; "
                    f"use compression_type={found.upper() or None!r}"
                )
            if found == "zlib":
                raise ValueError(
                    f"{path}: cannot append to a zlib file, because it is a single zlib stream; use GZIP"
                )
        if found:
            with open_stream(path, found, points=self.points if finds_blocks() else None) as stream:
                chunks = streams.iter_chunks(stream, verify=framing.VERIFY_LENGTHS, payloads=False)
                self.lengths = np.concatenate([self.lengths, *(chunk.lengths for chunk in chunks)])
            self.size = int(self.lengths.sum()) + framing.FRAME_OVERHEAD * len(self.lengths)
            return _padding_start(path) if found == "gzip" else None
        return self._check_plain_tail(path)

    def _check_plain_tail(self, path: str) -> int | None:
        view = np.memmap(path, np.uint8, "r")
        scan = framing.scan(view, verify=framing.VERIFY_LENGTHS)
        self.lengths, self.size = scan.lengths, scan.end
        count = len(scan.lengths)
        if count:
            last = framing.check_frames(view, scan.offsets[-1:], scan.lengths[-1:])
            if last is not None:
                raise framing.corrupt_error(
                    last[1], path=path, record=count - 1, offset=int(scan.offsets[-1])
                )
        if scan.reason is None:
            return None
        cut = scan.reason == "truncated_record" or (scan.reason == "truncated_header" and count)
        if not cut:
            head = bytes(view[: 1 << 12])
            raise framing.corrupt_error(
                scan.reason, path=path, record=count, offset=scan.end, buffer_head=head
            )
        warn_caller(
            f"{path}: record {count} at offset {scan.end} is incomplete; "
            f"its {len(view) - scan.end} bytes are cut off before appending",
            RuntimeWarning,
        )
        return scan.end

    def write(self, parts: Iterable[Any], size: int) -> None:
        """Write one or more whole frames, given in parts that have `size` bytes in total.

        If a part cannot be written, the file is truncated to its previous size and the error propagates. A
        target that cannot be truncated (a pipe, a compressed stream) accepts no more records after that.
        """
        if self.broken:
            raise TFRecordError(
                f"{self.path or '<stream>'}: an earlier write failed in the middle of a record "
                "and could not be undone"
            )
        start = self._sent
        try:
            if self._compressor is not None:
                for part in parts:
                    self._compress(self._compressor, memoryview(part))
            else:
                self._send_parts(parts)
        except OSError as error:
            self._name(error)
            self._undo(start)
            raise
        except BaseException:  # an interrupt may come after a write but before it was counted
            self._undo(start, uncounted=True)
            raise
        self.size += size

    @property
    def needs_close(self) -> bool:
        """Whether something would be lost or left open without `close`."""
        return bool(self._owned) or self._compressor is not None

    def park(self) -> None:
        """Release the descriptor until the next write, if the path can be opened again."""
        if self.is_local and self._base is not None and self._owned:
            unlock(self._file.fileno())
            self._file.close()
            self._file, self._owned = None, []
            self._parked = True

    def _resume(self) -> None:
        assert self.path is not None and self._base is not None
        self._file = open(self.path, "r+b", buffering=0)  # noqa: SIM115
        take_lock(self._file, self.path)
        self._owned = [self._file]
        self._parked = False
        self._file.seek(self._base + self._sent)

    def mark(self) -> tuple[int, int]:
        """A position that `rewind` can return to."""
        return self._sent, self.size

    def rewind(self, mark: tuple[int, int]) -> None:
        """Undo what was written since `mark`; if that is impossible, accept no more records."""
        if self.size != mark[1]:
            self._undo(mark[0])
            self.size = mark[1]

    def _send(self, data: Any) -> None:
        if self._parked:
            self._resume()
        size = len(data)
        if not size:
            return
        try:
            written = self._file.write(data)
            while written != size:
                written = self._checked(written, size)
                self._sent += written
                size -= written
                if not size:
                    return
                data = memoryview(data)[written:]
                written = self._file.write(data)
        except OSError as error:  # of a full disk, say, where Python does not tell the file
            if error.filename is None and error.errno is not None:
                error.filename = self.path
            raise
        self._sent += size

    def _compress(self, compressor: Compressor, part: memoryview) -> None:
        if self.points is None:
            self._send(compressor.compress(part))
            return
        while part:
            if self._since_flush == _FLUSH_EVERY:
                self._send(compressor.restart())
                self._since_flush = 0
                self.points.add(8 * ((self._base or 0) + self._sent), self._compressed, inside=True)
            piece = part[: _FLUSH_EVERY - self._since_flush]
            self._send(compressor.compress(piece))
            self._since_flush += len(piece)
            self._compressed += len(piece)
            part = part[len(piece) :]

    def _send_parts(self, parts: Iterable[Any]) -> None:
        """Send them in one write if the system can do that, so that nobody sees half a record."""
        few = list(parts)
        if len(few) > 1 and isinstance(self._file, io.FileIO) and hasattr(os, "writev"):
            written = os.writev(self._file.fileno(), few)
            self._sent += written
            for place, part in enumerate(few):
                done = min(written, len(part))
                few[place] = memoryview(part)[done:]
                written -= done
        for part in few:
            self._send(part)

    def _name(self, error: OSError) -> None:
        """Name the file in an error such as a full disk."""
        if error.errno is not None and error.filename is None and self.path is not None:
            error.filename = self.path

    def _checked(self, written: Any, size: int) -> int:
        """The number of bytes that a short write accepted."""
        if written is None:
            if isinstance(self._file, io.RawIOBase):
                raise BlockingIOError("the file is non-blocking and accepts nothing now")
            return size  # some file objects return nothing
        if not isinstance(written, int | np.integer) or not 0 < written <= size:
            raise OSError(f"write() returned {written!r} for {size} bytes")
        return int(written)

    def _undo(self, start: int, uncounted: bool = False) -> None:
        """Truncate the file to the first `start` bytes that we wrote."""
        if self._parked:
            if self._sent == start:
                return
            self._resume()
        # A buffered file may still hold part of what failed.
        uncounted = uncounted or not isinstance(self._file, io.RawIOBase)
        if self._compressor is not None:
            self.broken = True
        elif self._sent != start or uncounted:
            try:
                if self._base is None:
                    raise OSError("not seekable")
                self._file.seek(self._base + start)
                self._file.truncate()
            except (OSError, ValueError, AttributeError):
                self.broken = True
            else:
                self._sent = start

    def flush(self) -> None:
        """Pass everything written so far to the system; a compressed file can be read up to here."""
        if self._compressor is not None and not self.broken:
            self._complete(self._compressor.flush())
        if not self._parked and hasattr(self._file, "flush"):
            self._file.flush()

    def _complete(self, data: bytes) -> None:
        try:
            self._send(data)
        except BaseException as error:
            self.broken = True
            if isinstance(error, OSError):
                self._name(error)
            raise

    @property
    def has_changed(self) -> bool:
        """Whether what lies at the path may differ from before: an object does once it has been created."""
        return self._upload is None or self._upload.made

    def close(self, clean: bool = True) -> None:
        """End the stream and close what was opened here; a caller's file is flushed but stays open.

        An object behind a URL is created only if ``clean``.
        """
        if self._upload is not None and not (clean and not self.broken):
            self.abandon()
            return
        try:
            if self._compressor is not None and not self.broken:
                self._complete(self._compressor.finish())
            if not self._parked and not self._owned and hasattr(self._file, "flush"):
                self._file.flush()
            if self._upload is not None:
                self._upload.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without ending the stream."""
        # A forked child may hold the descriptor too; only the process that opened it releases the lock.
        if self._owned and isinstance(self._file, io.FileIO) and os.getpid() == self._pid:
            unlock(self._file.fileno())
        with contextlib.ExitStack() as stack:
            for file in reversed(self._owned):
                stack.callback(file.abort if isinstance(file, Upload) else file.close)
            self._owned = []


def _position(file: Any) -> int | None:
    """The current position of a seekable file."""
    try:
        seekable = file.seekable
        return int(file.tell()) if (seekable() if callable(seekable) else seekable) else None
    except (OSError, ValueError, AttributeError):
        return None


def _padding_start(path: str) -> int | None:
    """Where zero padding begins, which may follow the last gzip member but not precede another one."""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\0":
            return None
        file.seek(0)  # padding, or the high byte of a member's size: scan to find out
        inflater = zlib.decompressobj(WINDOW_BITS["gzip"])
        data = file.read(_READ_SIZE)
        while data:
            inflater.decompress(data)
            data = inflater.unused_data if inflater.eof else b""
            end = file.tell() - len(data)
            data = data or file.read(_READ_SIZE)
            if inflater.eof:
                if data[:1] == b"\0":
                    return end
                inflater = zlib.decompressobj(WINDOW_BITS["gzip"])
    return None
