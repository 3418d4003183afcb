"""zstd, by the package zstandard, with bounded memory."""

from __future__ import annotations

from typing import Any

from .inflaters import BadStreamError

__all__ = ["FRAME_MAGIC", "LEVELS", "ZstdInflater", "begins_frame", "package"]

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
LEVELS = range(1, 23)
# A skippable frame holds no data: magic, then its size.
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
# What the command zstd accepts too; a larger window would take more memory.
_MOST_WINDOW = 128 << 20
_HEADER_OF_BLOCK = 3
_RUN = 1  # the type of a block that repeats one byte


def package() -> Any:
    """The package; `ImportError` with the pip command if it is not installed."""
    try:
        import zstandard
    except ModuleNotFoundError:
        text = "zstd files need the package zstandard, which is not installed: pip install 'tfrecord[zstd]'"
        raise ImportError(text, name="zstandard") from None
    return zstandard


def begins_frame(head: bytes) -> bool:
    """Whether a zstd frame, or one to skip, begins here."""
    return head[:4] == FRAME_MAGIC or int.from_bytes(head[:4], "little") in _SKIPPABLE


class ZstdInflater:
    """One frame.

    It goes to the package block by block, because a block gives at most 128 KiB. So memory is bounded.
    """

    def __init__(self) -> None:
        self.eof = False
        self.unused = b""
        self._package = package()
        engine = self._package.ZstdDecompressor(max_window_size=_MOST_WINDOW)
        self._engine: Any = engine.decompressobj()
        self._input = bytearray()
        self._output = b""
        self._skip = self._checksum = 0
        self._left: int | None = None  # so much output is to come, if the header says how much there is
        self._next = self._header

    def feed(self, data: bytes) -> None:
        self._input += data

    def read(self, limit: int) -> bytes:
        while not self._output and not self.eof:
            size = self._next()
            if not size:
                return b""
            piece = bytes(self._input[:size])
            del self._input[:size]
            self._give(piece)
        data, self._output = self._output[:limit], self._output[limit:]
        return data

    def _give(self, piece: bytes) -> None:
        """Decompress the next part of the frame."""
        if self._skip:
            self._skip -= len(piece)
            done = not self._skip
        else:
            try:
                self._output = self._engine.decompress(piece)
            except self._package.ZstdError as error:
                raise BadStreamError(str(error)) from None
            done = self._engine.eof
            if self._left is not None:
                self._left -= len(self._output)
            # The package does not notice this if the last block is empty.
            if done and self._left:
                raise BadStreamError("the frame has less content than its header says")
        if done:
            self.eof, self.unused = True, bytes(self._input)

    def _header(self) -> int:
        """The size of the frame's header, 0 if it is not there yet."""
        head = self._input
        if len(head) < 5:
            return 0
        if int.from_bytes(head[:4], "little") in _SKIPPABLE:
            if len(head) < 8:
                return 0
            self._skip = 8 + int.from_bytes(head[4:8], "little")
            self._next = self._rest_to_skip
            return self._rest_to_skip()
        # RFC 8878, 3.1.1.1: flags, window, dictionary, and size of the content.
        flags = head[4]
        single = flags >> 5 & 1
        sizes = (0 if single else 1), (0, 1, 2, 4)[flags & 3], (single, 2, 4, 8)[flags >> 6]
        size = 5 + sum(sizes)
        if len(head) < size:
            return 0
        width = sizes[2]
        if width:
            self._left = int.from_bytes(head[size - width : size], "little") + (256 if width == 2 else 0)
        self._checksum = 4 if flags & 4 else 0
        self._next = self._block
        return size

    def _rest_to_skip(self) -> int:
        return min(self._skip, len(self._input))

    def _block(self) -> int:
        """The size of the next block, the last one with the checksum that follows it."""
        if len(self._input) < _HEADER_OF_BLOCK:
            return 0
        head = int.from_bytes(self._input[:_HEADER_OF_BLOCK], "little")
        size = _HEADER_OF_BLOCK + (1 if head >> 1 & 3 == _RUN else head >> 3)
        if head & 1:
            size += self._checksum
        if len(self._input) < size:
            return 0
        if head & 1:
            self._next = self._behind
        return size

    def _behind(self) -> int:
        raise BadStreamError("the frame does not end after its last block")
