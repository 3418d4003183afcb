"""Index files of both formats, extended and text, and the one loader that tells them apart.

Text: one line ``offset size`` per record, where size is that of the whole frame. It is byte for byte what
``tfrecord2idx`` of DALI and of tfrecord 1.x write. It has no checksum, so every line is checked when read.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np

from .compression import HEAD_SIZE, detect, is_frame
from .errors import IndexFileError, StaleIndexError
from .extendedindex import MAGIC, PREFIX_SIZE, Fail, check_arrays, load_extended, summarize, write_index
from .files import BytesFile, DataFile, open_data, path_name
from .fingerprint import bind_index, size_misfit
from .framing import FRAME_OVERHEAD
from .index import IndexSummary, RecordIndex
from .options import suggests_options
from .paths import find_index
from .textindex import format_text, parse_text

__all__ = [
    "MAGIC",
    "load_index",
    "load_summary",
    "text_lines",
    "verify_arrays",
    "write_index",
    "write_text_index",
]

_MOST_TEXT_LINE = 48
_LOOK = 1 << 15
_READ_WHOLE = 256 << 10
_LARGEST_FILE = np.uint64((1 << 63) - 1)


def text_lines(index: RecordIndex) -> bytes:
    """The text format of an index."""
    return b"".join(format_text(index.offsets, index.lengths))


def write_text_index(file: BinaryIO, index: RecordIndex) -> None:
    """Write the text format; `ValueError` for a compressed stream, which it cannot describe."""
    if index.compression:
        raise ValueError(
            f"{index.path}: the text format cannot describe {index.compression} data; use 'extended'"
        )
    file.writelines(format_text(index.offsets, index.lengths))


@suggests_options
def load_index(index_path: Any, data_path: Any = None) -> RecordIndex:
    """Read an index file of either format.

    With ``data_path`` (a path, or a `DataFile` of the stored bytes) the index is checked against that file:
    size, fingerprint, first and last frame. `StaleIndexError` if it does not match, `IndexFileError` if it is
    damaged; both name the two files and say how to rebuild. Opening an extended index takes the same time for
    any number of records; its arrays are views of the mapped file.
    """
    name = path_name(index_path)
    data_name = data_path.path if isinstance(data_path, DataFile) else None
    if data_path is not None and data_name is None:
        data_name = path_name(data_path)

    def fail(reason: str) -> IndexFileError:
        return IndexFileError(data_name, name, reason)

    with ExitStack() as stack:
        file = _open_index(index_path)
        stack.callback(file.close)
        head = file.head(PREFIX_SIZE)
        if head.startswith(MAGIC) or (head and MAGIC.startswith(head)):
            index = load_extended(file, head, data_name, fail)
            if data_path is not None:
                index = bind_index(index, data_path)
            if file.mapped:
                stack.pop_all()  # the index keeps it open
            return index
        if data_path is None:
            if (beside := _index_of_data(file)) is not None:
                return load_index(beside, index_path)
            return _load_text(file, None, fail)
    opened = data_path if isinstance(data_path, DataFile) else open_data(data_path, mmap=False)
    try:
        with _open_index(index_path) as file:
            index = _load_text(file, opened, fail)
        return bind_index(index, opened)
    finally:
        if opened is not data_path:
            opened.close()


def load_summary(index_path: str, data_path: str) -> IndexSummary | None:
    """What the header of a local extended index says. None for a text index, and for a header longer than 32
    KiB: these need `load_index`.

    `StaleIndexError` if the data file has another size, `IndexFileError` if the header is damaged.
    """
    with open(index_path, "rb", buffering=0) as file:
        start, size = file.read(_LOOK), os.fstat(file.fileno()).st_size
    if not start.startswith(MAGIC):
        return None

    def fail(reason: str) -> IndexFileError:
        return IndexFileError(data_path, index_path, reason)

    found = summarize(BytesFile(index_path, memoryview(start)), size, data_path, fail)
    reason = None if found is None else size_misfit(found, os.stat(data_path).st_size)
    if reason is not None:
        raise StaleIndexError(data_path, index_path, reason)
    return found


def _index_of_data(file: DataFile) -> str | None:
    """The index beside ``file``, if that turns out to be a data file."""
    head = file.head(HEAD_SIZE)
    if not is_frame(head) and detect(head) is None:
        return None
    beside = find_index(file.path)
    if beside is None:
        raise IndexFileError(file.path, None, "this is data, not an index, and it has no index beside it")
    return beside


def _open_index(index_path: Any) -> DataFile:
    """Read a small index, so that later changes of the file do not matter; map a large one.

    An index behind a URL is read whole, in one request.
    """
    file = open_data(index_path, mmap=False)
    if file.remote:
        return BytesFile(file.path, file.view(0, file.size))
    if file.size <= _READ_WHOLE:
        return file
    file.close()
    return open_data(index_path)


def _load_text(file: DataFile, data: DataFile | None, fail: Fail) -> RecordIndex:
    if data is not None:
        if file.size == 0 and data.size:
            raise StaleIndexError(data.path, file.path, f"the index is empty, the data has {data.size} bytes")
        if data.size and detect(data.head(HEAD_SIZE)) is not None:
            raise fail("the data is compressed, and a text index can only belong to a plain file")
        if file.size > (data.size // FRAME_OVERHEAD + 2) * _MOST_TEXT_LINE:
            raise fail("it is longer than any index of this data can be")
    elif file.size > _READ_WHOLE:  # look at the beginning first, since this may be any file
        head = file.head(_LOOK)
        line = parse_text(memoryview(head[: head.rfind(b"\n") + 1] or head))[2]
        if line:
            raise fail(f"line {line} is not 'offset size'")
    offsets, sizes, line = parse_text(file.view(0, file.size))
    if line:
        raise fail(f"line {line} is not 'offset size'")
    index = RecordIndex(
        offsets,
        sizes - np.uint64(FRAME_OVERHEAD),
        path=None if data is None else data.path,
        index_path=file.path,
        format="text",
        checked=True,
    )
    ends = offsets + sizes
    starts = np.concatenate((np.zeros(1, np.uint64), ends[:-1]))[: len(offsets)]
    bad = (offsets != starts) | (sizes < FRAME_OVERHEAD) | (ends < offsets) | (ends > _LARGEST_FILE)
    if bad.any():
        entry = int(np.argmax(bad))
        raise fail(f"entry {entry} (from 0) does not begin where the one before it ends, or is too small")
    return index


def verify_arrays(index_path: Any) -> None:
    """Check all of an extended index file; `IndexFileError` if a checksum does not match."""
    with _open_index(index_path) as file:
        if file.head(PREFIX_SIZE).startswith(MAGIC):
            check_arrays(file, lambda reason: IndexFileError(None, file.path, reason))
