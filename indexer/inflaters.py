"""Decompressors that take a stream piece by piece and give at most as much output as was asked for.

Each undoes one gzip member, zlib stream, raw deflate stream or zstd frame. The caller feeds it when `read`
gives nothing and `eof` is false.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import weakref
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

__all__ = [
    "RAW",
    "WINDOW_BITS",
    "WINDOW_SIZE",
    "BadStreamError",
    "BlockInflater",
    "FastInflater",
    "FastInflaterError",
    "Inflater",
    "ZlibInflater",
    "fast_zlib",
    "finds_blocks",
    "shifted",
]

WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "zlib": zlib.MAX_WBITS}
"""The ``wbits`` argument of zlib for each compression."""
RAW = -zlib.MAX_WBITS
WINDOW_SIZE = 1 << zlib.MAX_WBITS
"""How far back deflate data may refer, in bytes."""


class BadStreamError(Exception):
    """The stream is damaged; all output before the damage was given."""


class FastInflaterError(Exception):
    """The fast decompressor has met damage; zlib must tell which."""


class Inflater(Protocol):
    """``eof``: the end was reached and all output was given; ``unused`` is then what follows it."""

    eof: bool
    unused: bytes

    def feed(self, data: bytes) -> None:
        """Give it input."""

    def read(self, limit: int) -> bytes:
        """At most ``limit`` bytes of output; nothing if it needs input, or at the end."""


class ZlibInflater:
    """Python's zlib. ``window``: what comes before a raw deflate stream, at most 32 KiB."""

    def __init__(self, bits: int, window: bytes = b"") -> None:
        self.eof = False
        self.unused = b""
        self._engine: Any = zlib.decompressobj(bits, window) if window else zlib.decompressobj(bits)
        self._pending = b""
        # A copy of the engine from before the current input, that input, and how much output it gave.
        self._before = self._engine.copy(), b""
        self._given = 0
        self._rescued: Iterator[bytes] | None = None
        self._rest = b""
        self._damage = ""

    def feed(self, data: bytes) -> None:
        self._pending += data
        self._before = self._engine.copy(), self._pending
        self._given = 0

    def read(self, limit: int) -> bytes:
        if self._rescued is not None:
            self._rest = self._rest or next(self._rescued, b"")
            if not self._rest:
                raise BadStreamError(self._damage)
            piece, self._rest = self._rest[:limit], self._rest[limit:]
            return piece
        if self.eof:
            return b""
        try:
            data: bytes = self._engine.decompress(self._pending, limit)
        except zlib.error as error:
            self._damage = str(error)
            self._rescued = self._rescue()
            return self.read(limit)
        self._given += len(data)
        self._pending = self._engine.unconsumed_tail
        if self._engine.eof:
            self.eof, self.unused = True, self._engine.unused_data
        return data

    def _rescue(self) -> Iterator[bytes]:
        """The output before the damage.

        zlib discards the output of the call that fails. So the last input is fed to it again, byte by byte.
        """
        engine, stored = self._before
        known = self._given
        for place in range(len(stored)):
            try:
                data = engine.decompress(stored[place : place + 1])
            except zlib.error:
                return
            fresh = data[known:]
            known -= min(known, len(data))
            if fresh:
                yield fresh


@functools.cache
def fast_zlib() -> Any:
    """``isal.isal_zlib``, which decompresses about twice as fast as zlib; None if it is not installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return None
    return isal_zlib


class FastInflater:
    """isal. Its output before damage is lost, so the caller then begins again with zlib."""

    def __init__(self, bits: int, window: bytes = b"") -> None:
        engine = fast_zlib()
        self.eof = False
        self.unused = b""
        self._engine: Any = engine.decompressobj(bits, window) if window else engine.decompressobj(bits)
        self._errors = (engine.error, EOFError, ValueError)
        self._pending = b""

    def feed(self, data: bytes) -> None:
        self._pending += data

    def read(self, limit: int) -> bytes:
        if self.eof:
            return b""
        data: bytes
        try:
            data = self._engine.decompress(self._pending, limit)
        except self._errors as error:
            raise FastInflaterError from error
        self._pending = self._engine.unconsumed_tail
        if self._engine.eof:
            self.eof, self.unused = True, self._engine.unused_data
        return data


# ---- where the blocks of a deflate stream end ----------------------------------------------------------


class _ZStream(ctypes.Structure):
    """zlib's ``z_stream``."""

    _fields_ = [
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint),
        ("total_in", ctypes.c_ulong),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint),
        ("total_out", ctypes.c_ulong),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    ]


_Z_OK, _Z_STREAM_END, _Z_BUF_ERROR = 0, 1, -5
_Z_NO_FLUSH, _Z_BLOCK = 0, 5
_UNUSED_BITS, _LAST_BLOCK, _BLOCK_ENDS = 7, 64, 128
_FLUSHED = b"\0\0\xff\xff"
# A hostile stream may have a block for every few bits.
_MOST_STOPS = 64


@functools.cache
def _libz() -> Any:
    """The system's zlib, None where there is none; Python's own module does not stop at blocks."""
    # Python's module may be linked to the library, which is then found through it; a search is slow.
    for name in (getattr(zlib, "__file__", None), "libz.so.1", "libz.dylib", ""):
        try:
            found: Any = ctypes.CDLL(name or ctypes.util.find_library("z") or "none")
            if hasattr(found, "inflateGetDictionary"):
                found.zlibVersion.restype = ctypes.c_char_p
                return found
        except OSError:
            continue
    return None


def finds_blocks() -> bool:
    """Whether this system has a zlib that tells where blocks end."""
    return _libz() is not None


class Places(Protocol):
    """What a `BlockInflater` tells the ends of blocks. Positions count from the start of its stream."""

    def distance(self, out: int, free: bool) -> int:
        """How many bytes after ``out`` the end of a block is wanted; ``free``: one that needs no window."""

    def add(self, bit: int, out: int, window: bytes) -> None:
        """A block ends at ``bit`` of the input and ``out`` of the output. ``window`` is the output before it,
        empty if nothing that follows refers to it."""


class BlockInflater:
    """The system's zlib, which can stop where blocks end."""

    def __init__(self, bits: int, places: Places) -> None:
        lib: Any = _libz()
        self.eof = False
        self.unused = b""
        self._lib, self._places = lib, places
        self._stream = _ZStream()
        code = lib.inflateInit2_(ctypes.byref(self._stream), bits, lib.zlibVersion(), ctypes.sizeof(_ZStream))
        if code != _Z_OK:
            raise MemoryError(f"zlib cannot begin: error {code}")
        weakref.finalize(self, lib.inflateEnd, ctypes.byref(self._stream))
        self._data = b""
        self._at = 0  # so much of `_data` is consumed
        self._consumed = self._made = 0  # in bytes, before `_data` and before this call
        self._room: Any = None
        self._damage: str | None = None
        self._stops = 0  # since the last place that was added

    def feed(self, data: bytes) -> None:
        self._consumed += self._at
        self._data, self._at = self._data[self._at :] + data, 0

    def read(self, limit: int) -> bytes:
        if self._damage is not None:
            raise BadStreamError(self._damage)
        if self.eof:
            return b""
        if self._room is None or len(self._room) < limit:
            self._room = np.empty(limit, np.uint8)
        made = self._inflate(ctypes.cast(ctypes.c_char_p(self._data), ctypes.c_void_p).value or 0, limit)
        self._made += made
        if not made and self._damage is not None:
            raise BadStreamError(self._damage)
        return bytes(self._room[:made].data)

    def _inflate(self, source: int, limit: int) -> int:
        stream, target, made = self._stream, self._room.ctypes.data, 0
        while made < limit:
            # One byte less, because it goes on where a block ends just there.
            far = max(0, self._places.distance(self._made + made, self._stops < _MOST_STOPS) - 1)
            room = min(limit - made, far or limit)
            stream.next_in, stream.avail_in = source + self._at, len(self._data) - self._at
            stream.next_out, stream.avail_out = target + made, room
            code = self._lib.inflate(ctypes.byref(stream), _Z_NO_FLUSH if far else _Z_BLOCK)
            self._at, made = len(self._data) - stream.avail_in, made + room - stream.avail_out
            if code == _Z_STREAM_END:
                self.eof, self.unused = True, self._data[self._at :]
                break
            if code not in (_Z_OK, _Z_BUF_ERROR):
                text = f": {stream.msg.decode('latin-1')}" if stream.msg else ""
                self._damage = f"Error {code} while decompressing data{text}"
                break
            if not far:
                self._tell(stream.data_type, self._made + made)
            if code == _Z_BUF_ERROR or (not stream.avail_in and stream.avail_out):
                break
        return made

    def _tell(self, state: int, out: int) -> None:
        # After the header it also stops, with no output yet.
        if not state & _BLOCK_ENDS or state & _LAST_BLOCK or not out:
            return
        self._stops += 1
        free = self._stops <= _MOST_STOPS and self._needs_no_window(state)
        if free or self._places.distance(out, False) <= 1:
            window = b"" if free else self._window()
            self._places.add((self._consumed + self._at) * 8 - (state & _UNUSED_BITS), out, window)
            self._stops = 0

    def _needs_no_window(self, state: int) -> bool:
        """Whether what follows is seen to refer to nothing before it, as after a full flush."""
        if state & _UNUSED_BITS or self._data[max(0, self._at - 4) : self._at] != _FLUSHED:
            return False
        try:
            ahead = zlib.decompressobj(RAW).decompress(self._data[self._at :], WINDOW_SIZE)
        except zlib.error:
            return False
        return len(ahead) == WINDOW_SIZE

    def _window(self) -> bytes:
        window, size = ctypes.create_string_buffer(WINDOW_SIZE), ctypes.c_uint(0)
        self._lib.inflateGetDictionary(ctypes.byref(self._stream), window, ctypes.byref(size))
        return window.raw[: size.value]


# ---- streams that begin inside a byte ------------------------------------------------------------------


class _Bits:
    def __init__(self) -> None:
        self.value = self.count = 0

    def number(self, value: int, count: int) -> None:
        self.value |= value << self.count
        self.count += count

    def code(self, text: str) -> None:
        for bit in text:
            self.number(int(bit), 1)


def _empty_block(bits: _Bits) -> None:
    """A block with fixed codes that holds only its end: 10 bits."""
    bits.number(0b010, 3)
    bits.number(0, 7)


def _odd_empty_block(bits: _Bits) -> None:
    """A block with codes of its own that holds only its end: 93 bits (RFC 1951, 3.2.7)."""
    bits.number(0b100, 3)
    bits.number(0, 5)  # 257 literal and length codes
    bits.number(0, 5)  # one distance code
    bits.number(14, 4)  # 18 lengths of code length codes, in this order:
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1):
        bits.number({18: 1, 0: 2, 1: 3, 2: 3}.get(symbol, 0), 3)
    for zeros in (138, 118):  # literals that do not occur
        bits.code("0")
        bits.number(zeros - 11, 7)
    bits.code("110")  # the end of a block has a code of one bit
    bits.code("10")  # distances do not occur
    bits.code("0")  # the end


@functools.cache
def _lead(shift: int) -> tuple[bytes, int]:
    """Empty blocks that end ``shift`` bits into a byte: whole bytes, and the low bits of the next one."""
    bits = _Bits()
    if shift % 2:
        _odd_empty_block(bits)
    while bits.count % 8 != shift:
        _empty_block(bits)
    packed = bits.value.to_bytes(bits.count // 8 + 1, "little")
    return packed[:-1], packed[-1]


def shifted(data: bytes, shift: int) -> bytes:
    """A deflate stream that begins ``shift`` bits into the first byte of ``data``, as one that begins with a
    byte.

    Empty blocks go before it, so that nothing has to be shifted.
    """
    if not shift:
        return data
    whole, low = _lead(shift)
    high = data[0] & 0xFF << shift
    return whole + bytes([high & 0xFF | low]) + data[1:]
