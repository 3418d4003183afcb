"""The kernel against the Python reference, and both against streams cut, damaged and stored in every way."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import crc32c as crc32c_package
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexer import framing
from indexer._engine import kernel
from indexer.errors import TFRecordError
from indexer.framing import check_frames, frame_header, frame_record, scan
from indexer.sniffing import sniff
from indexer.streams import detect, iter_chunks

needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel is not loaded")

payloads = st.lists(st.binary(max_size=90), max_size=12)
huge = st.integers(0, 2**64 - 1).map(frame_header)
# Mostly frames, with things between them that are nearly frames.
streams = st.lists(
    st.one_of(
        st.binary(max_size=40).map(frame_record),
        st.binary(max_size=30),
        huge,
        st.binary(max_size=20).map(lambda data: frame_record(data)[:-1]),
    ),
    max_size=8,
).map(b"".join)
damages = st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=2)


def damaged(data: bytes, places: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, flip in places:
        if changed:
            changed[place % len(changed)] ^= flip
    return bytes(changed)


@needs_kernel
@given(data=st.binary(max_size=900), value=st.integers(0, 2**32 - 1), skip=st.integers(0, 70))
def test_crc_of_any_bytes_at_any_alignment(data: bytes, value: int, skip: int) -> None:
    assert kernel is not None
    view = memoryview(data)[skip:]
    expected = crc32c_package.crc32c(view, value)
    assert [kernel.crc32c(view, value, path=path) for path in range(len(kernel.PATHS))] == [expected] * len(
        kernel.PATHS
    )


@needs_kernel
@given(
    data=st.builds(damaged, streams, damages),
    start=st.integers(0, 30),
    capacity=st.integers(1, 9),
    verify=st.integers(0, 2),
    final=st.booleans(),
    limit=st.integers(0, 400),
)
@example(data=b"", start=0, capacity=1, verify=2, final=True, limit=9)
@example(data=frame_header(2**64 - 1), start=0, capacity=1, verify=0, final=True, limit=9)
def test_scan_of_anything(
    data: bytes, start: int, capacity: int, verify: int, final: bool, limit: int
) -> None:
    assert kernel is not None
    start = min(start, len(data))
    limit = min(limit, len(data))
    results: list[Any] = []
    for path in range(-1, len(kernel.PATHS)):
        offsets, lengths = np.zeros(capacity, np.uint64), np.zeros(capacity, np.uint64)
        found = kernel.scan(data, start, limit, offsets, lengths, verify, final, path=path)
        results.append((found, offsets.tolist(), lengths.tolist()))
    offsets, lengths = np.zeros(capacity, np.uint64), np.zeros(capacity, np.uint64)
    reference = framing._scan_reference(data, start, limit, offsets, lengths, verify, final)
    for found, kernel_offsets, kernel_lengths in results:
        assert found == reference
        assert kernel_offsets == offsets.tolist() and kernel_lengths == lengths.tolist()


@needs_kernel
@given(
    data=st.builds(damaged, streams, damages),
    places=st.lists(
        st.tuples(st.integers(0, 2**64 - 1) | st.integers(0, 200), st.integers(0, 40)), max_size=6
    ),
    verify=st.integers(0, 2),
)
def test_check_of_any_places(data: bytes, places: list[tuple[int, int]], verify: int) -> None:
    assert kernel is not None
    found = scan(data, verify=verify)
    offsets = np.array([*found.offsets.tolist(), *(offset for offset, _ in places)], np.uint64)
    lengths = np.array([*found.lengths.tolist(), *(length for _, length in places)], np.uint64)
    expected = (len(offsets), 0)
    for place, (offset, length) in enumerate(zip(offsets.tolist(), lengths.tolist(), strict=True)):
        status = framing._check_reference(memoryview(data), offset, length, verify)
        assert kernel.check_frame(data, offset, length, verify) == status
        if status and not expected[1]:
            expected = (place, status)
    for path in range(len(kernel.PATHS)):
        assert kernel.check_frames(data, offsets, lengths, verify, path=path) == expected


@given(payloads=payloads, threads=st.integers(1, 4), damage=damages)
def test_threads_change_nothing(payloads: list[bytes], threads: int, damage: list[tuple[int, int]]) -> None:
    data = damaged(b"".join(map(frame_record, payloads)), damage)
    one, many = scan(data), scan(data, num_threads=threads)
    assert one.offsets.tolist() == many.offsets.tolist() and one.lengths.tolist() == many.lengths.tolist()
    assert (one.end, one.reason) == (many.end, many.reason)
    assert check_frames(data, one.offsets, one.lengths, num_threads=threads) is None


@given(payloads=payloads, damage=damages, cut=st.none() | st.integers(0, 1000))
def test_no_damaged_record_is_passed_as_good(
    payloads: list[bytes], damage: list[tuple[int, int]], cut: int | None
) -> None:
    whole = b"".join(map(frame_record, payloads))
    data = damaged(whole, damage)[:cut]
    found = scan(data)
    for place, (offset, length) in enumerate(
        zip(found.offsets.tolist(), found.lengths.tolist(), strict=True)
    ):
        assert data[offset + 12 : offset + 12 + length] == payloads[place]
    if data == whole:
        assert len(found.offsets) == len(payloads)
    elif cut is None:
        assert found.reason is not None


@given(
    payloads=payloads,
    damage=damages,
    chunk_size=st.integers(1, 300),
    max_records=st.none() | st.integers(1, 4),
    skip=st.booleans(),
    compression=st.sampled_from(["", "gzip", "zlib"]),
)
def test_a_stream_says_the_same_as_one_buffer(
    payloads: list[bytes],
    damage: list[tuple[int, int]],
    chunk_size: int,
    max_records: int | None,
    skip: bool,
    compression: str,
) -> None:
    data = damaged(b"".join(map(frame_record, payloads)), damage)
    stored = {"": data, "gzip": gzip.compress(data, 1), "zlib": zlib.compress(data, 1)}[compression]
    errors: list[Any] = []
    found: list[tuple[int, bytes]] = []
    try:
        for chunk in iter_chunks(
            io.BytesIO(stored),
            compression_type=compression,
            chunk_size=chunk_size,
            max_records=max_records,
            on_damage=errors.append if skip else None,
        ):
            for record, (offset, length) in enumerate(
                zip(chunk.offsets.tolist(), chunk.lengths.tolist(), strict=True), chunk.first_record
            ):
                found.append((record, bytes(chunk.buffer[offset + 12 : offset + 12 + length])))
    except TFRecordError as error:
        errors.append(error)
    one = scan(data)
    good = len(one.offsets)
    assert found[:good] == list(enumerate(payloads[:good]))
    assert [error.reason for error in errors[:1]] == ([] if one.reason is None else [one.reason])
    if errors:
        assert (errors[0].record, errors[0].offset) == (good, one.end)
    if not skip:
        assert len(found) == good
    for record, payload in found:
        assert payload == payloads[record]


@given(stored=st.binary(max_size=300), compression=st.sampled_from([None, "", "gzip", "zlib"]))
def test_random_bytes_end_in_an_error_of_the_family(stored: bytes, compression: str | None) -> None:
    try:
        records = sum(
            len(chunk.offsets) for chunk in iter_chunks(io.BytesIO(stored), compression_type=compression)
        )
    except TFRecordError as error:
        assert "<stream>" in str(error)
    else:
        assert records == 0 or stored
    detect(stored)
    sniff(stored)


@given(
    payloads=payloads,
    pieces=st.lists(st.integers(0, 200), max_size=5),
    zeros=st.integers(0, 50),
    cut=st.none() | st.integers(1, 60),
)
def test_gzip_members_cut_anywhere(
    payloads: list[bytes], pieces: list[int], zeros: int, cut: int | None
) -> None:
    data = b"".join(map(frame_record, payloads))
    stored, at = b"", 0
    for piece in [*pieces, len(data)]:
        stored += gzip.compress(data[at : at + piece], 1)
        at += piece
    last = len(gzip.compress(data[at - len(data) :], 1))
    if cut is None or cut >= last:
        stored += bytes(zeros)
    else:
        stored = stored[:-cut]
    found = 0
    try:
        for chunk in iter_chunks(io.BytesIO(stored), compression_type="gzip"):
            found += len(chunk.offsets)
    except TFRecordError:
        assert cut is not None and cut < last
        assert found <= len(payloads)
    else:
        assert cut is None or cut >= last
        assert found == len(payloads)
