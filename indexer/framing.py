"""The record format: constants, checksums, frames, and the scanner that every reader of frames uses.

A frame is the payload's length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes, the payload,
and the masked CRC-32C of the payload. A file is frames and nothing else. See TensorFlow's
``core/lib/io/record_writer.h``.

The functions run on the compiled kernel if it was built, and otherwise on the plain Python below. The tests
compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import crc32c as _crc32c_package
import numpy as np
import numpy.typing as npt

from ._engine import kernel as _kernel
from .errors import ChecksumError, CorruptRecordError, TruncatedRecordError
from .options import check_threads
from .sniffing import file_tail, sniff

__all__ = [
    "FOOTER_SIZE",
    "FRAME_OVERHEAD",
    "HEADER_SIZE",
    "VERIFY_ALL",
    "VERIFY_LENGTHS",
    "VERIFY_NONE",
    "Scan",
    "check_frame",
    "check_frames",
    "corrupt_error",
    "crc32c",
    "footers",
    "frame_footer",
    "frame_header",
    "frame_record",
    "is_frame",
    "mask_crc32c",
    "masked_crc32c",
    "scan",
    "slices",
    "unmask_crc32c",
]

HEADER_SIZE = 12
FOOTER_SIZE = 4
FRAME_OVERHEAD = HEADER_SIZE + FOOTER_SIZE

VERIFY_NONE = 0
"""Bounds only."""
VERIFY_LENGTHS = 1
"""Bounds and the checksum of each length. This is a header scan: payloads are not read."""
VERIFY_ALL = 2
"""Both checksums."""

_MASK_DELTA = 0xA282EAD8
_HEADER = struct.Struct("<QI")
_UINT32 = struct.Struct("<I")
# In the order of the kernel's status numbers, starting at 1.
_ERROR_TYPES: dict[str, Callable[..., CorruptRecordError]] = {
    "truncated_header": TruncatedRecordError,
    "truncated_record": TruncatedRecordError,
    "bad_length_crc": ChecksumError,
    "bad_payload_crc": ChecksumError,
    "index_mismatch": CorruptRecordError,
}
_REASONS: tuple[str | None, ...] = (None, *_ERROR_TYPES)
_FIRST_CAPACITY = 4096

UInt64Array = npt.NDArray[np.uint64]


class Scan(NamedTuple):
    """What `scan` found.

    ``offsets``: where the frames start, counted from the start of the buffer, uint64 ``(n,)``. ``lengths``:
    sizes of the payloads in bytes, uint64 ``(n,)``. ``end``: offset of the first frame that was not accepted
    (or not examined). ``reason``: why it was not accepted, or None if the scan ended where it was told to.
    ``checksums``: the stored checksums of the payloads, 4 bytes each, if they were asked for.
    """

    offsets: UInt64Array
    lengths: UInt64Array
    end: int
    reason: str | None
    checksums: bytes = b""


def crc32c(data: Any, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of a contiguous buffer; ``value`` is the CRC of the bytes before it."""
    if _kernel is not None:
        return int(_kernel.crc32c(data, value))
    return int(_crc32c_package.crc32c(memoryview(data).cast("B"), value))


def mask_crc32c(crc: Any) -> Any:
    """A CRC-32C (an int, or a uint32 array) as the format stores it: rotated, with a constant added, so that
    the CRC of data that holds CRCs stays useful."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def unmask_crc32c(masked: int) -> int:
    """The CRC-32C that the format stores as ``masked``."""
    rotated = (masked - _MASK_DELTA) & 0xFFFFFFFF
    return ((rotated << 15) | (rotated >> 17)) & 0xFFFFFFFF


def masked_crc32c(data: Any) -> int:
    """The checksum that the format stores for these bytes."""
    return int(mask_crc32c(crc32c(data)))


def frame_header(length: int) -> bytes:
    """The 12 bytes that precede a payload of ``length`` bytes."""
    packed = length.to_bytes(8, "little")
    return packed + _UINT32.pack(masked_crc32c(packed))


def frame_footer(payload: Any) -> bytes:
    """The 4 bytes that follow ``payload``."""
    return _UINT32.pack(masked_crc32c(payload))


def frame_record(payload: Any) -> bytes:
    """``payload`` as a complete frame."""
    view = memoryview(payload).cast("B")
    return b"".join((frame_header(view.nbytes), view, frame_footer(view)))


def scan(
    buffer: Any,
    *,
    start: int = 0,
    max_records: int | None = None,
    max_bytes: int | None = None,
    verify: int = VERIFY_ALL,
    final: bool = True,
    num_threads: int = 1,
    checksums: bool = False,
) -> Scan:
    """Find and check the frames of ``buffer``, beginning at ``start``.

    Stops after ``max_records`` frames, or after the frame that reaches ``start + max_bytes``, or at the first
    damaged frame (``reason`` says why; the frames before it are returned). With ``final=False`` more bytes
    may follow the buffer, so an incomplete frame at its end is not an error. ``num_threads`` share the
    payload checks; the result is the same as with one thread. The GIL is released while frames are checked.
    ``checksums``: also return the stored checksums of the payloads.
    """
    size = memoryview(buffer).nbytes
    if not 0 <= start <= size:
        raise ValueError(f"start {start} is outside the buffer of {size} bytes")
    if (num_threads := check_threads(num_threads)) > 1 and verify >= VERIFY_ALL:
        whole = _scan_in_threads(buffer, start, max_records, max_bytes, final, num_threads)
        return whole._replace(checksums=footers(buffer, whole.offsets, whole.lengths)) if checksums else whole
    limit = size if max_bytes is None else min(size, start + max(max_bytes, 0))
    most = size if max_records is None else max(max_records, 0)
    most = min(most, (size - start) // FRAME_OVERHEAD + 1)
    step = _scan_reference if _kernel is None else _kernel.scan
    offsets, lengths, stored = (np.empty(0, np.uint64) for _ in range(3))
    count, end, status = 0, start, 0
    capacity = min(most, _FIRST_CAPACITY)
    while count < most and end < limit and status == 0:
        offsets, lengths = _grown(offsets, count, capacity), _grown(lengths, count, capacity)
        if checksums:
            stored = _grown(stored, count, capacity)
        more = (stored[count:],) if checksums else ()
        found, stopped, status = step(
            buffer, end, limit, offsets[count:], lengths[count:], verify, final, *more
        )
        if found == 0 and stopped == end:
            break
        count, end = count + found, stopped
        if count < capacity:
            break
        per_record = max(FRAME_OVERHEAD, (end - start) // count)
        capacity = min(most, max(count + (limit - end) // per_record * 17 // 16, 2 * count))
    return Scan(
        offsets[:count], lengths[:count], end, _REASONS[status], stored[:count].astype("<u4").tobytes()
    )


def _grown(array: UInt64Array, used: int, capacity: int) -> UInt64Array:
    larger = np.empty(capacity, np.uint64)
    larger[:used] = array[:used]
    return larger


def _scan_in_threads(
    buffer: Any, start: int, max_records: int | None, max_bytes: int | None, final: bool, num_threads: int
) -> Scan:
    """Scan the headers first, then check the payloads: one run of records per thread, of about equal size."""
    headers = scan(
        buffer, start=start, max_records=max_records, max_bytes=max_bytes, verify=VERIFY_LENGTHS, final=final
    )
    bad = check_frames(buffer, headers.offsets, headers.lengths, num_threads=num_threads)
    if bad is None:
        return headers
    index, reason = bad
    return Scan(headers.offsets[:index], headers.lengths[:index], int(headers.offsets[index]), reason)


def check_frame(buffer: Any, offset: int, length: int, *, verify: int = VERIFY_ALL) -> str | None:
    """Why there is no good frame at ``offset`` with a payload of ``length`` bytes; None if there is one."""
    status: int
    if _kernel is not None:
        status = _kernel.check_frame(buffer, offset, length, verify)
    else:
        status = _check_reference(memoryview(buffer).cast("B"), offset, length, verify)
    return _REASONS[status]


def check_frames(
    buffer: Any, offsets: UInt64Array, lengths: UInt64Array, *, verify: int = VERIFY_ALL, num_threads: int = 1
) -> tuple[int, str] | None:
    """The first of the frames at ``offsets`` that is damaged or does not have ``lengths[i]`` payload bytes.

    The frames may come in any order. Returns its position in the arrays and the reason (``index_mismatch`` if
    it is out of bounds or has another length), or None if all are good. The GIL is released meanwhile.
    """
    offsets = np.ascontiguousarray(offsets, np.uint64)
    lengths = np.ascontiguousarray(lengths, np.uint64)
    count = len(offsets)
    if len(lengths) != count:
        raise ValueError("offsets and lengths differ in size")
    if (num_threads := check_threads(num_threads)) == 1 or count < 2:
        place, status = _check_run(buffer, offsets, lengths, verify)
        reason = _REASONS[status]
        return None if reason is None else (place, reason)
    ends = np.cumsum(lengths + np.uint64(FRAME_OVERHEAD))
    shares = np.linspace(0, float(ends[-1]), num_threads + 1)[1:-1]
    cuts = [0, *np.searchsorted(ends, shares).tolist(), count]
    with ThreadPoolExecutor(num_threads) as pool:
        results = pool.map(
            lambda run: _check_run(buffer, offsets[run[0] : run[1]], lengths[run[0] : run[1]], verify),
            zip(cuts, cuts[1:], strict=False),
        )
        for first, (place, status) in zip(cuts, results, strict=False):
            reason = _REASONS[status]
            if reason is not None:
                return first + place, reason
    return None


def _check_run(buffer: Any, offsets: UInt64Array, lengths: UInt64Array, verify: int) -> tuple[int, int]:
    if _kernel is not None:
        place, status = _kernel.check_frames(buffer, offsets, lengths, verify)
        return int(place), int(status)
    view = memoryview(buffer).cast("B")
    for place, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        status = _check_reference(view, offset, length, verify)
        if status:
            return place, status
    return len(offsets), 0


def slices(buffer: Any, offsets: UInt64Array, lengths: UInt64Array, shift: int = 0) -> list[memoryview]:
    """Read-only views of ``lengths[i]`` bytes at ``offsets[i] + shift``; each keeps ``buffer`` alive.

    With the offsets of frames and ``shift=HEADER_SIZE`` these are the payloads. `IndexError` if a view would
    extend beyond the buffer.
    """
    if _kernel is not None:
        found: list[memoryview] = _kernel.slices(
            buffer, np.ascontiguousarray(offsets, np.uint64), np.ascontiguousarray(lengths, np.uint64), shift
        )
        return found
    view = memoryview(buffer).toreadonly().cast("B")
    found = []
    for i, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        if offset + shift + length > view.nbytes:
            raise IndexError(f"slice {i} is outside the buffer")
        found.append(view[offset + shift : offset + shift + length])
    return found


def footers(buffer: Any, offsets: UInt64Array, lengths: UInt64Array) -> bytes:
    """The stored checksums of the payloads of these frames, 4 bytes each, in order.

    `IndexError` if a frame is outside the buffer.
    """
    offsets, lengths = np.ascontiguousarray(offsets, np.uint64), np.ascontiguousarray(lengths, np.uint64)
    if _kernel is not None:
        return bytes(_kernel.footers(buffer, offsets, lengths))
    view = np.frombuffer(buffer, np.uint8)
    room = np.uint64(max(len(view) - FRAME_OVERHEAD, 0))
    if len(offsets) and (
        len(view) < FRAME_OVERHEAD or (offsets > room).any() or (lengths > room - offsets).any()
    ):
        raise IndexError("a frame is outside the buffer")
    places = (offsets + lengths).astype(np.int64) + HEADER_SIZE
    return bytes(view[places[:, None] + np.arange(FOOTER_SIZE)].tobytes())


# ---- the reference: slow and obvious -----------------------------------------------------------------


def _scan_reference(
    buffer: Any,
    at: int,
    limit: int,
    offsets: UInt64Array,
    lengths: UInt64Array,
    verify: int,
    final: bool,
    checksums: UInt64Array | None = None,
) -> tuple[int, int, int]:
    view = memoryview(buffer).cast("B")
    count = 0
    while count < len(offsets) and at < limit:
        if view.nbytes - at < HEADER_SIZE:
            return count, at, 1 if final else 0
        (length, length_crc) = _HEADER.unpack_from(view, at)
        if verify >= VERIFY_LENGTHS and masked_crc32c(view[at : at + 8]) != length_crc:
            return count, at, 3
        if length > view.nbytes - at - FRAME_OVERHEAD:
            return count, at, 2 if final else 0
        status = _check_reference(view, at, length, verify)
        if status:
            return count, at, status
        offsets[count], lengths[count] = at, length
        if checksums is not None:
            (checksums[count],) = _UINT32.unpack_from(view, at + HEADER_SIZE + length)
        at += FRAME_OVERHEAD + length
        count += 1
    return count, at, 0


def _check_reference(view: memoryview, offset: int, length: int, verify: int) -> int:
    end = offset + HEADER_SIZE + length
    if end + FOOTER_SIZE > view.nbytes:
        return 5
    (stored, length_crc) = _HEADER.unpack_from(view, offset)
    if verify >= VERIFY_LENGTHS and masked_crc32c(view[offset : offset + 8]) != length_crc:
        return 3
    if stored != length:
        return 5
    if verify >= VERIFY_ALL:
        (payload_crc,) = _UINT32.unpack_from(view, end)
        if masked_crc32c(view[offset + HEADER_SIZE : end]) != payload_crc:
            return 4
    return 0


# ---- what went wrong, in words -----------------------------------------------------------------------


def is_frame(head: bytes) -> bool:
    """Whether a stream that begins with ``head`` begins with a valid frame header."""
    return len(head) >= HEADER_SIZE and frame_header(int.from_bytes(head[:8], "little")) == head[:HEADER_SIZE]


def corrupt_error(
    reason: str,
    *,
    path: str | None,
    record: int | None,
    offset: int,
    buffer_head: bytes | Sequence[int] = b"",
    detail: str = "",
    compression: str = "",
) -> CorruptRecordError:
    """The exception for a reason of `scan` or `check_frames`.

    ``buffer_head``: the first bytes of the stream, used for a hint at what it looks like if the failure is at
    offset 0. ``compression``: what they were decompressed from.
    """
    hint = ""
    head = bytes(buffer_head)
    if offset == 0 and head and not is_frame(head):
        looks = sniff(head, b"" if compression else file_tail(path))
        if looks is not None:
            hint = _hint(looks, compression)
    elif reason == "index_mismatch":
        hint = "The index does not fit the data; rebuild it."
    return _ERROR_TYPES.get(reason, CorruptRecordError)(path, record, offset, reason, detail, hint)


def _hint(looks: str, compression: str) -> str:
    """What to do about a stream that does not begin with a record."""
    if not looks.startswith(("gzip", "zlib", "zstd")):
        where = f"the content of its {compression} stream" if compression else "it"
        return f"This is not a TFRecord file: {where} looks like {looks}."
    if compression:
        return f"The file is compressed twice: its {compression} stream holds {looks}. Decompress it once."
    return f"It looks like {looks}: leave compression_type out, or name it."
