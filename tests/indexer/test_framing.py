from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import crc32c as crc32c_package
import numpy as np
import pytest

from indexer import framing
from indexer._engine import kernel
from indexer.errors import ChecksumError, CorruptRecordError, TruncatedRecordError
from indexer.framing import (
    VERIFY_ALL,
    VERIFY_LENGTHS,
    VERIFY_NONE,
    check_frame,
    check_frames,
    corrupt_error,
    frame_footer,
    frame_record,
    scan,
    slices,
)

needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel is not loaded")
PAYLOADS = [b"alpha", b"", b"xyz" * 700, b"\x00" * 16, b"q"]
DATA = b"".join(map(frame_record, PAYLOADS))


def starts(payloads: list[bytes]) -> list[int]:
    ends = np.cumsum([0] + [len(payload) + 16 for payload in payloads])
    return [int(end) for end in ends[:-1]]


# The values of the format's description.
def test_known_bytes() -> None:
    assert framing.masked_crc32c(b"") == 0xA282EAD8
    assert frame_record(b"").hex() == "000000000000000029039807d8ea82a2"
    assert frame_record(b"alpha").hex() == "0500000000000000eab2043e616c7068618adc8501"
    assert framing.frame_header(0).hex() == "000000000000000029039807"
    assert framing.crc32c(b"123456789") == 0xE3069283


def test_crc_goes_on_from_a_value() -> None:
    assert framing.crc32c(b"6789", framing.crc32c(b"12345")) == framing.crc32c(b"123456789")
    assert framing.crc32c(np.arange(5, dtype=np.uint16)) == crc32c_package.crc32c(b"\0\0\1\0\2\0\3\0\4\0")


@needs_kernel
def test_every_crc_path_agrees_with_the_package() -> None:
    assert kernel is not None
    assert kernel.PATHS[0] == "table"
    source = random.Random(5)
    sizes = [*range(0, 700), *range(1020, 1800, 3), 3071, 3072, 3073, 9000, 24_575, 24_576, 24_577, 70_001]
    for size in sizes:
        data = source.randbytes(size)
        value = source.getrandbits(32)
        expected = crc32c_package.crc32c(data, value)
        for path in range(len(kernel.PATHS)):
            assert kernel.crc32c(data, value, path=path) == expected, (size, kernel.PATHS[path])
    with pytest.raises(ValueError, match="no such CRC path"):
        kernel.crc32c(b"", path=len(kernel.PATHS))


def test_scan_finds_all() -> None:
    found = scan(DATA)
    assert found.offsets.tolist() == starts(PAYLOADS)
    assert found.lengths.tolist() == [len(payload) for payload in PAYLOADS]
    assert (found.end, found.reason) == (len(DATA), None)
    assert found.offsets.dtype == found.lengths.dtype == np.uint64


@pytest.mark.parametrize("verify", [VERIFY_NONE, VERIFY_LENGTHS, VERIFY_ALL])
def test_scan_gives_stored_checksums(verify: int) -> None:
    payloads = [b"x" * size for size in range(6000)]  # more than one call of the kernel
    data = b"".join(map(frame_record, payloads))
    found = scan(data, verify=verify, checksums=True)
    assert found.checksums == b"".join(map(frame_footer, payloads))
    assert scan(data, verify=verify).checksums == b""


def test_scan_of_nothing() -> None:
    for buffer in (b"", bytearray(), memoryview(b""), np.empty(0, np.uint8)):
        found = scan(buffer)
        assert (len(found.offsets), found.end, found.reason) == (0, 0, None)


def test_scan_starts_and_stops_where_asked() -> None:
    second = starts(PAYLOADS)[1]
    found = scan(DATA, start=second, max_records=2)
    assert found.offsets.tolist() == starts(PAYLOADS)[1:3]
    assert (found.end, found.reason) == (starts(PAYLOADS)[3], None)
    assert scan(DATA, max_bytes=22).offsets.tolist() == starts(PAYLOADS)[:2]
    assert scan(DATA, max_records=0).end == 0
    assert scan(DATA, start=len(DATA)).end == len(DATA)
    for start in (-1, len(DATA) + 1):
        with pytest.raises(ValueError, match="outside the buffer"):
            scan(DATA, start=start)


def test_scan_of_more_records_than_it_first_makes_room_for() -> None:
    sizes = [7] * 3000 + [1] * 9000
    found = scan(b"".join(frame_record(b"y" * size) for size in sizes))
    assert found.lengths.tolist() == sizes
    assert found.offsets.tolist() == starts([b"y" * size for size in sizes])


@pytest.mark.parametrize(
    ("place", "reason", "verify"),
    [
        (0, "bad_length_crc", VERIFY_LENGTHS),
        (9, "bad_length_crc", VERIFY_LENGTHS),
        (13, "bad_payload_crc", VERIFY_ALL),
        (19, "bad_payload_crc", VERIFY_ALL),
    ],
)
def test_one_damaged_byte(place: int, reason: str, verify: int) -> None:
    data = bytearray(DATA)
    at = starts(PAYLOADS)[2] + place
    data[at] ^= 16
    found = scan(data)
    assert found.offsets.tolist() == starts(PAYLOADS)[:2]
    assert (found.end, found.reason) == (starts(PAYLOADS)[2], reason)
    assert scan(data, verify=verify).reason == reason
    assert scan(data, verify=verify - 1).reason != reason


def test_every_cut() -> None:
    whole = starts(PAYLOADS) + [len(DATA)]
    for cut in range(len(DATA) + 1):
        found = scan(DATA[:cut])
        last = max(end for end in whole if end <= cut)
        assert found.end == last
        left = cut - last
        assert found.reason == (
            None if left == 0 else "truncated_header" if left < 12 else "truncated_record"
        )
        found = scan(DATA[:cut], final=False)
        assert (found.end, found.reason) == (last, None)


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, 2**63, 2**64 - 17, 2**64 - 16, 2**64 - 5, 2**64 - 1])
def test_huge_lengths_with_a_good_checksum(length: int) -> None:
    data = frame_record(b"ok") + framing.frame_header(length) + b"data"
    for verify in (VERIFY_NONE, VERIFY_LENGTHS, VERIFY_ALL):
        found = scan(data, verify=verify)
        assert (len(found.offsets), found.end, found.reason) == (1, 18, "truncated_record")
    assert check_frame(data, 18, length) == "index_mismatch"


@pytest.mark.parametrize("num_threads", [2, 3, 16])
def test_threads_give_the_result_of_one(num_threads: int) -> None:
    source = random.Random(1)
    payloads = [source.randbytes(source.choice((0, 3, 50, 5000))) for _ in range(200)]
    data = bytearray(b"".join(map(frame_record, payloads)))
    offsets = starts(payloads)
    for damage in ([], [150], [150, 20], [199], [0]):
        broken = bytearray(data)
        for record in damage:
            broken[offsets[record] + 12 + len(payloads[record])] ^= 1
        one = scan(broken, checksums=True)
        many = scan(broken, num_threads=num_threads, checksums=True)
        assert one.offsets.tolist() == many.offsets.tolist()
        assert (one.end, one.reason, one.checksums) == (many.end, many.reason, many.checksums)
    data[offsets[100]] ^= 1  # a length
    data[offsets[50] + 12 + len(payloads[50])] ^= 1
    one, many = scan(data), scan(data, num_threads=num_threads)
    assert (one.end, one.reason) == (many.end, many.reason) == (offsets[50], "bad_payload_crc")


def test_check_frames_in_any_order() -> None:
    offsets = np.array(starts(PAYLOADS), np.uint64)
    lengths = np.array([len(payload) for payload in PAYLOADS], np.uint64)
    order = [4, 0, 2, 2, 1, 3]
    assert check_frames(DATA, offsets[order], lengths[order]) is None
    data = bytearray(DATA)
    data[-1] ^= 1
    assert check_frames(data, offsets[order], lengths[order]) == (0, "bad_payload_crc")
    assert check_frames(data, offsets[order[1:]], lengths[order[1:]]) is None
    assert check_frames(data, offsets[order], lengths[order], verify=VERIFY_LENGTHS) is None
    assert check_frames(DATA, offsets[:0], lengths[:0]) is None
    with pytest.raises(ValueError, match="differ in size"):
        check_frames(DATA, offsets, lengths[:1])


@pytest.mark.parametrize(
    ("offset", "length", "reason"),
    [
        (0, 4, "index_mismatch"),
        (21, 5, "index_mismatch"),
        (1, 5, "bad_length_crc"),
        (len(DATA), 0, "index_mismatch"),
        (len(DATA) - 15, 0, "index_mismatch"),
        (2**64 - 1, 5, "index_mismatch"),
        (0, 2**64 - 16, "index_mismatch"),
        (2**63, 2**63, "index_mismatch"),
    ],
)
def test_frames_that_are_not_there(offset: int, length: int, reason: str) -> None:
    assert check_frame(DATA, offset, length) == reason
    arrays = np.array([0, offset], np.uint64), np.array([5, length], np.uint64)
    assert check_frames(DATA, *arrays) == (1, reason)


def test_slices_are_read_only_views() -> None:
    found = scan(DATA)
    buffer = bytearray(DATA)
    views = slices(buffer, found.offsets, found.lengths, framing.HEADER_SIZE)
    assert [bytes(view) for view in views] == PAYLOADS
    assert all(view.readonly for view in views)
    buffer[12] = ord("A")
    assert bytes(views[0]) == b"Alpha"
    for offset, length in ((len(DATA), 1), (0, len(DATA) + 1), (2**64 - 1, 1), (2**64 - 1, 2)):
        with pytest.raises(IndexError):
            slices(DATA, np.array([offset], np.uint64), np.array([length], np.uint64), 1)


@needs_kernel
@pytest.mark.parametrize("call", ["scan", "checksums", "check_frames", "slices", "parse_text"])
def test_the_kernel_refuses_arrays_of_two_sizes(call: str) -> None:
    two, one = np.zeros(2, np.uint64), np.zeros(1, np.uint64)
    calls: dict[str, Callable[[], Any]] = {
        "scan": lambda: kernel.scan(DATA, 0, 9, two, one, 2, True),  # type: ignore[union-attr]
        "checksums": lambda: kernel.scan(DATA, 0, 9, two, two, 2, True, one),  # type: ignore[union-attr]
        "check_frames": lambda: kernel.check_frames(DATA, two, one, 2),  # type: ignore[union-attr]
        "slices": lambda: kernel.slices(DATA, two, one),  # type: ignore[union-attr]
        "parse_text": lambda: kernel.parse_text(b"", two, one),  # type: ignore[union-attr]
    }
    with pytest.raises(ValueError, match="size"):
        calls[call]()


@needs_kernel
def test_kernel_scan_by_every_path() -> None:
    assert kernel is not None
    source = random.Random(2)
    payloads = [source.randbytes(size) for size in (*range(0, 120), 300, 1000, 5000)]
    data = bytearray(b"".join(map(frame_record, payloads)))
    for path in range(len(kernel.PATHS)):
        offsets, lengths = np.empty(200, np.uint64), np.empty(200, np.uint64)
        count, end, status = kernel.scan(data, 0, len(data), offsets, lengths, 2, True, path=path)
        assert (count, end, status) == (len(payloads), len(data), 0)
        assert offsets[:count].tolist() == starts(payloads)
        assert kernel.check_frames(data, offsets[:count], lengths[:count], 2, path=path) == (count, 0)
        for record in (0, 60, 122):
            broken = bytearray(data)
            broken[int(offsets[record]) + 12 + len(payloads[record])] ^= 128
            assert kernel.scan(broken, 0, len(data), offsets, lengths, 2, True, path=path)[::2] == (record, 4)


def test_corrupt_error() -> None:
    error = corrupt_error("bad_length_crc", path="p", record=0, offset=0, buffer_head=b"\x1f\x8b\x08\0")
    assert type(error) is ChecksumError and "gzip" in error.hint
    error = corrupt_error("bad_length_crc", path="p", record=3, offset=99, buffer_head=b"\x1f\x8b\x08\0")
    assert error.hint == ""
    assert type(corrupt_error("truncated_record", path="p", record=0, offset=0)) is TruncatedRecordError
    error = corrupt_error("index_mismatch", path="p", record=4, offset=7)
    assert type(error) is CorruptRecordError
    assert (error.path, error.record, error.offset, error.reason) == ("p", 4, 7, "index_mismatch")
