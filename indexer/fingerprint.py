"""Whether an index is of a data file: by its size, and a few bytes and frames from the first to the last."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .compression import is_frame
from .errors import StaleIndexError
from .files import DataFile, open_data
from .framing import FOOTER_SIZE, FRAME_OVERHEAD, HEADER_SIZE, VERIFY_ALL, check_frame, crc32c, frame_header
from .index import RecordIndex

__all__ = ["bind_index", "fingerprint"]

_SAMPLES = 8


def fingerprint(
    data: DataFile, offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64], compression: str
) -> int:
    """A number of 64 bits that tells files of one size and shape apart by what they hold. O(1).

    A byte for each of eight records, from the first to the last: of the checksum that is stored behind its
    payload, so that damage within a payload does not make the index look like another file's. Of a compressed
    file, its last eight bytes, where the checksum of the stream is.
    """
    if compression or not len(offsets):
        count = min(_SAMPLES, data.size)
        return int.from_bytes(data.view(data.size - count, count), "little")
    return int.from_bytes(
        bytes(
            _stored_checksum(data, int(offsets[position]), int(lengths[position])) & 255
            for position in _sampled(len(offsets))
        ),
        "little",
    )


def _sampled(count: int) -> list[int]:
    return [place * (count - 1) // (_SAMPLES - 1) for place in range(_SAMPLES)]


def _stored_checksum(data: DataFile, offset: int, length: int) -> int:
    return crc32c(data.view(offset + HEADER_SIZE + length, FOOTER_SIZE))


def bind_index(index: RecordIndex, data_path: Any) -> RecordIndex:
    """The index with ``path`` set, if it fits the data file; `StaleIndexError` if it does not. O(1)."""
    data = data_path if isinstance(data_path, DataFile) else open_data(data_path, mmap=False)
    try:
        reason = _misfit(index, data)
        if reason is not None:
            raise StaleIndexError(data.path, index.index_path, reason)
        return index if index.path == data.path else index.replace(path=data.path)
    finally:
        if data is not data_path:
            data.close()


def _misfit(index: RecordIndex, data: DataFile) -> str | None:
    """Why the index is not of this data. Damage of single records is no reason: reading them tells it."""
    other = "the data is not what was indexed (its content differs)"
    if index.file_size != data.size:
        return f"the data has {data.size} bytes, the index is of {index.file_size}"
    if index.compression or not len(index):
        found = fingerprint(data, index.offsets, index.lengths, index.compression)
        return other if index.fingerprint not in (None, found) else None
    misplaced: set[int] = set()
    for place, position in enumerate(_sampled(len(index))):
        offset, length = int(index.offsets[position]), int(index.lengths[position])
        if offset + length + FRAME_OVERHEAD > data.size:
            return f"record {position} would end behind the end of the data"
        header = bytes(data.view(offset, HEADER_SIZE))
        if header != frame_header(length):
            if is_frame(header):
                return f"record {position} is of another length"
            misplaced.add(position)
        elif index.fingerprint is not None:
            indexed = index.fingerprint >> (8 * place) & 255
            if indexed != _stored_checksum(data, offset, length) & 255:
                frame = data.view(offset, length + FRAME_OVERHEAD)
                if check_frame(frame, 0, length, verify=VERIFY_ALL) is None:
                    return other
    if len(misplaced) > max(1, min(_SAMPLES, len(index)) // 2):
        return "no records are where the index has them"
    return None
