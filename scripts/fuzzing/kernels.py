"""Targets for the compiled kernels: they must agree with the Python reference on any bytes."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["check_example", "check_framing", "check_index", "check_sequence"]


def same(what: str, native: Any, reference: Any) -> None:
    if native != reference:
        raise AssertionError(f"{what} differ:\n  kernel    {native!r}\n  reference {reference!r}")


def values_of(kind: int, values: Any, buffers: tuple[bytes, ...]) -> Any:
    if kind == 1:
        parts = (part.tolist() for part in values[:2])
        return [buffers[0][start : start + size] for start, size in zip(*parts, strict=True)]
    return None if values is None else values.tobytes()


def decoded(decoder: Any, buffers: tuple[bytes, ...], threads: int) -> Any:
    """The columns of a batch in comparable form, or None if it is refused."""
    import numpy as np

    # In one buffer with more data after them, as in a file, the kernel may read ahead.
    lengths = np.array([len(buffer) for buffer in buffers], np.int64)
    whole = (b"".join(buffers) + bytes(100),)
    failure, *found = decoder.decode(whole, np.cumsum(lengths) - lengths, lengths, None, threads)
    if failure is not None:
        return None
    result = []
    for present, columns in filter(None, found):
        for flags, (key, kind, *arrays, values) in zip(present.tolist(), columns, strict=True):
            tables = [None if array is None else array.tolist() for array in arrays]
            result.append((key, kind, flags, tables, values_of(kind, values, whole)))
    return result


def check_messages(data: bytes, lists: bool) -> None:
    """The first byte says which columns to decode, the second where to split the rest into two records."""
    import numpy as np

    from tfrecord._kernels import decode, decode_reference

    if len(data) < 2:
        return
    cut = data[1] * (len(data) - 2) // 255
    first, second = data[2 : 2 + cut], data[2 + cut :]
    some = (("a", 3, None, None), ("b", 2, (), b"\0\0\0\0"), ("cc", 0, None, None), ("", 1, None, None))
    more = (("a", 3, (2,), None), ("key_of_more_than_sixteen_bytes", 1, (), None))
    columns = (None, some, more, some[:1])[data[0] & 3]
    level = min(data[0] >> 2 & 3, decode.BEST_LEVEL)
    request = (columns, columns if lists else False)
    decoder, oracle = decode.Decoder(*request, simd=level), decode_reference.Decoder(*request)
    batch = (first, second, second, second, first, first) if data[0] & 16 else (first, second)
    same("columns", decoded(decoder, batch, 1), decoded(oracle, batch, 1))
    native, reference = decoder.record(second), oracle.record(second)
    same("refusals of one record", native[0] is None, reference[0] is None)
    if native[0] is None:
        for own, others in zip(native[1:], reference[1:], strict=True):
            same("records", repr(own), repr(others))
    together = [native[1]] * 3 if native[0] is None and not lists else []
    same("records together", repr(decoder.records((second,) * 3)), repr(together))
    same("kinds", decode.record_class(second), decode_reference.record_class(second))
    lengths = np.array([len(record) for record in batch], np.int64)
    places = (b"".join(batch),), np.cumsum(lengths) - lengths, lengths
    same("checks", decode.check_records(*places).tolist(), decode_reference.check_records(*places).tolist())


def check_example(data: bytes) -> None:
    check_messages(data, False)


def check_sequence(data: bytes) -> None:
    check_messages(data, True)


def check_framing(data: bytes) -> None:
    """The first byte says how to scan, and whether the rest is frames as it is or the payloads to make them
    of."""
    from indexer import framing

    if not data:
        return
    mode, rest = data[0], data[1:]
    if (
        mode & 1
    ):  # payloads of up to 63 bytes; a length byte above that damages a byte of what is there so far
        made = bytearray()
        while rest:
            size, rest = rest[0], rest[1:]
            if size < 64:
                made += framing.frame_record(rest[:size])
                rest = rest[size:]
            elif made:
                made[(size * 7919) % len(made)] ^= size
        rest = bytes(made)
    options = {"verify": (mode >> 1) % 3, "final": bool(mode & 16), "num_threads": 1 + (mode >> 5)}
    kernel = framing._kernel
    native = framing.scan(rest, **options)
    checked = framing.check_frames(
        rest, native.offsets, native.lengths + (mode >> 7), verify=options["verify"]
    )
    framing._kernel = None
    try:
        reference = framing.scan(rest, **options)
        again = framing.check_frames(
            rest, native.offsets, native.lengths + (mode >> 7), verify=options["verify"]
        )
    finally:
        framing._kernel = kernel
    same(
        "scans", [str(part) for part in map(list_of, native)], [str(part) for part in map(list_of, reference)]
    )
    same("checks of frames", checked, again)


def list_of(part: Any) -> Any:
    return part.tolist() if hasattr(part, "tolist") else part


def check_index(data: bytes) -> None:
    """An index file for a data file of five records; an extended one gets the checksum that its header
    needs."""
    import numpy as np

    from indexer import formats, framing
    from indexer.errors import IndexFileError

    if not data:
        return
    payloads = [b"", b"one", b"four", bytes(40), b"last"]
    stored = b"".join(map(framing.frame_record, payloads))
    mode, content = data[0], data[1:]
    if mode & 1 and len(content) >= 24:
        length = min(struct.unpack("<I", content[12:16])[0], len(content) - 24)
        header = content[24 : 24 + length]
        fixed = (formats.MAGIC, 1, length, framing.crc32c(header), 0)
        content = struct.pack("<8s4I", *fixed) + content[24:]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        data_path, index_path = os.path.join(folder, "d"), os.path.join(folder, "i")
        Path(data_path).write_bytes(stored)
        Path(index_path).write_bytes(content)
        try:
            index = formats.load_index(index_path, data_path)
        except IndexFileError as error:
            assert error.index_path == index_path and error.path == data_path
            return
        end = index.offsets[-1] + index.lengths[-1] + np.uint64(framing.FRAME_OVERHEAD) if len(index) else 0
        assert int(end) == len(stored), "an index that does not end where its file ends was accepted"
        if not framing.check_frames(stored, np.asarray(index.offsets), np.asarray(index.lengths)):
            for position, offset in enumerate(index.offsets.tolist()):
                framing.slices(
                    stored, index.offsets[position : position + 1], index.lengths[position : position + 1]
                )
                assert offset < len(stored)
