"""Reads and writes extended index files.

All numbers are little-endian (docs/formats.md says what each field means)::

    8 bytes   magic "TFRINDEX"
    u32       version, 1
    u32       bytes of the header
    u32       CRC-32C of the header
    u32       0
    header    msgpack map: see `_header`
    arrays    each at a multiple of 64 bytes: offsets (u64), lengths (u64), then the columns
    sections  each at a multiple of 64 bytes: the points of a compressed file

Such a file is mapped and opened in O(1): the header has its own checksum, sizes are compared, and the arrays
are viewed in place. The checksums of the arrays are in the header, for `check_arrays`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import msgpack
import numpy as np
import numpy.typing as npt

from .errors import IndexFileError, TruncatedRecordError
from .files import DataFile
from .fingerprint import DIGEST_SIZE
from .framing import FRAME_OVERHEAD, crc32c
from .index import IndexSummary, RecordIndex
from .inflaters import WINDOW_BITS
from .points import Points
from .stored_columns import StoredArray, StoredColumns

__all__ = ["MAGIC", "PREFIX_SIZE", "Fail", "check_arrays", "load_extended", "summarize", "write_index"]

# Makes the error for a reason.
Fail = Callable[[str], IndexFileError]

MAGIC = b"TFRINDEX"
_VERSION = 1
_PREFIX = struct.Struct("<8s4I")
PREFIX_SIZE = _PREFIX.size
_ALIGNMENT = 64
_POSITION = 8  # bytes of an offset or a length
# More than any schema needs. A hostile header is refused before it is read, or before its many small parts
# take a hundred times their size in memory.
_MOST_HEADER = 16 << 20
_MOST_PARTS = 1 << 18
# Plain numbers and fixed-size byte strings: types that can be viewed in a map without creating objects.
_COLUMN_DTYPE = re.compile(r"([<|][biuf][1248]|\|S[1-9][0-9]{0,8})\Z")
_COMPRESSIONS = ("", "gzip", "zlib", "zstd")


# ---- writing -----------------------------------------------------------------------------------------


def write_index(file: BinaryIO, index: RecordIndex) -> None:
    """Write the extended format to an empty binary file."""
    arrays: list[tuple[str, npt.NDArray[Any]]] = [("", index.offsets), ("", index.lengths)]
    masked: list[list[Any]] = []
    for name, column in index.columns.items():
        if not isinstance(column, np.ma.MaskedArray):
            arrays.append((name, _little_endian(name, column)))
        elif column.ndim == 1:
            # Without names, so that an earlier version does not read missing values as zeros.
            masked.append([name, len(arrays), len(arrays) + 1])
            mask = np.ma.getmaskarray(column)
            values = np.array(column.data)
            values[mask] = np.zeros((), column.dtype)
            arrays.append(("", _little_endian(name, values)))
            arrays.append(("", np.ascontiguousarray(~mask)))
        else:
            raise ValueError(
                f"column {name!r} is masked and has {column.ndim} dimensions; only one is allowed"
            )
    sections = {} if index.points is None else {"points": index.points.stored}
    header = _header(index, arrays, masked, sections)
    at = file.write(_PREFIX.pack(MAGIC, _VERSION, len(header), crc32c(header), 0))
    at += file.write(header)
    for _, array in arrays:
        at += file.write(bytes(-at % _ALIGNMENT))
        at += file.write(array.reshape(-1).view(np.uint8).data)
    for stored in sections.values():
        at += file.write(bytes(-at % _ALIGNMENT))
        at += file.write(stored)


def _little_endian(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    dtype = array.dtype.newbyteorder("<")
    if _COLUMN_DTYPE.match(dtype.str) is None:
        raise ValueError(
            f"column {name!r} has type {array.dtype}; an index keeps only numbers and fixed-size bytes"
        )
    return np.ascontiguousarray(array, dtype)


def _header(
    index: RecordIndex,
    arrays: list[tuple[str, npt.NDArray[Any]]],
    masked: list[list[Any]],
    sections: dict[str, memoryview | bytes],
) -> bytes:
    fields = {
        "num_records": len(index),
        "file_size": index.file_size,
        "stream_size": index.stream_size,
        "mtime_ns": index.mtime_ns,
        "compression": index.compression,
        "fingerprint": index.fingerprint,
        "metadata": dict(index.metadata),
        "digest": index.digest,
        "settled": index.settled,
        **({} if index.etag is None else {"etag": index.etag}),
        "masked": masked,
    }
    section_checksums = {name: crc32c(stored) for name, stored in sections.items()}
    checksums = [crc32c(array.reshape(-1).view(np.uint8)) for _, array in arrays]
    header, length = b"", -1
    # Positions depend on the header's own length, which is stable after one or two rounds.
    while len(header) != length:
        length = len(header)
        at = _PREFIX.size + length
        table = []
        for (name, array), checksum in zip(arrays, checksums, strict=True):
            at += -at % _ALIGNMENT
            table.append([name, array.dtype.str, list(array.shape), at, checksum])
            at += array.nbytes
        places = {}
        for name, stored in sections.items():
            at += -at % _ALIGNMENT
            places[name] = [at, len(stored), section_checksums[name]]
            at += len(stored)
        extra = {"sections": places} if places else {}
        header = msgpack.packb({**fields, **extra, "arrays": table, "index_size": at})
    if len(header) > _MOST_HEADER:
        raise ValueError(f"the metadata needs {len(header)} bytes; an index holds at most {_MOST_HEADER}")
    return header


# ---- loading -----------------------------------------------------------------------------------------


def load_extended(file: DataFile, head: bytes, data_name: str | None, fail: Fail) -> RecordIndex:
    with _valid(fail):
        return _from_fields(file, _fields(file, head, fail), data_name, fail)


def summarize(file: DataFile, size: int, data_name: str, fail: Fail) -> IndexSummary | None:
    """The summary of an index file of ``size`` bytes, of which ``file`` has the first ones; None if these do
    not hold all of its header."""
    head = file.head(PREFIX_SIZE)
    if len(head) == PREFIX_SIZE and file.size < min(size, PREFIX_SIZE + _PREFIX.unpack(head)[2]):
        return None
    with _valid(fail):
        stated = _stated(_fields(file, head, fail), size)
        known = {name: stated[name] for name in ("file_size", "stream_size", "compression", "metadata")}
        return IndexSummary(data_name, file.path, stated["num_records"], **known)


@contextmanager
def _valid(fail: Fail) -> Iterator[None]:
    """Whatever the fields of a header make Python raise is their fault."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise fail(f"its header is not valid ({type(error).__name__}: {error})") from None


def _fields(file: DataFile, head: bytes, fail: Fail) -> Any:
    if len(head) < _PREFIX.size:
        raise fail("the file is truncated")
    _, version, length, checksum, zero = _PREFIX.unpack(head)
    if version != _VERSION or zero:
        raise fail(f"it has version {version}, but this library reads version {_VERSION}")
    if length > min(_MOST_HEADER, file.size - _PREFIX.size):
        raise fail("its header is longer than the file, or longer than any header may be")
    packed = file.view(_PREFIX.size, length)
    if crc32c(packed) != checksum:
        raise fail("the checksum of its header does not match")
    return _unpacked(packed)


def _unpacked(packed: memoryview) -> Any:
    """The fields of a header; `ValueError` if there are too many."""
    most = _MOST_PARTS
    if len(packed) <= most:  # each part takes at least a byte
        return msgpack.unpackb(packed)
    parts = 0

    def count(part: Any) -> Any:
        nonlocal parts
        parts += 1
        if parts > most:
            raise ValueError("it has too many parts")
        return part

    return msgpack.unpackb(packed, list_hook=count, object_hook=count, max_array_len=most, max_map_len=most)


def _number(fields: dict[str, Any], key: str, most: int = (1 << 64) - 1) -> int:
    value = fields[key]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} is out of range")
    return value


def _stated(fields: Any, size: int) -> dict[str, Any]:
    """The checked fields of a header, except for those about arrays; ``size``: that of the index file."""
    if _number(fields, "index_size") != size:
        raise ValueError(f"the file should have {fields['index_size']} bytes, and has {size}")
    count, stream_size = _number(fields, "num_records"), _number(fields, "stream_size")
    if count * FRAME_OVERHEAD > stream_size:
        raise ValueError("more records than the data has room for")
    if count * 2 * _POSITION > size:
        raise ValueError("more records than the arrays have room for")
    if count == 0 and stream_size:
        raise ValueError("no records, but bytes")
    file_size = _number(fields, "file_size")
    if fields["compression"] not in _COMPRESSIONS:
        raise ValueError("unknown compression")
    if fields["compression"] == "" and file_size != stream_size:
        raise ValueError("two sizes for one plain file")
    if not isinstance(fields["metadata"], dict):
        raise ValueError("metadata is not a map")
    mtime_ns = fields["mtime_ns"]
    if mtime_ns is not None and type(mtime_ns) is not int:
        raise ValueError("mtime_ns is not a number")
    digest, settled = fields.get("digest"), fields.get("settled", False)
    if not (digest is None or (isinstance(digest, bytes) and len(digest) == DIGEST_SIZE)):
        raise ValueError("digest is not 16 bytes")
    if not isinstance(settled, bool):
        raise ValueError("settled is neither true nor false")
    etag = fields.get("etag")
    if etag is not None and not isinstance(etag, str):
        raise ValueError("etag is not text")
    fingerprint = None if fields["fingerprint"] is None else _number(fields, "fingerprint")
    return {
        "num_records": count,
        "file_size": file_size,
        "stream_size": stream_size,
        "compression": fields["compression"],
        "metadata": fields["metadata"],
        "mtime_ns": mtime_ns,
        "fingerprint": fingerprint,
        "digest": digest,
        "settled": settled,
        "etag": etag,
    }


def _from_fields(file: DataFile, fields: Any, data_name: str | None, fail: Fail) -> RecordIndex:
    stated = _stated(fields, file.size)
    count = stated.pop("num_records")
    arrays = [_view(file, entry) for entry in fields["arrays"]]
    if len(arrays) < 2 or any(len(array) != count for _, array in arrays):
        raise ValueError("the arrays have the wrong size")
    if any(array.dtype.str != "<u8" or array.ndim != 1 for _, array in arrays[:2]):
        raise ValueError("offsets and lengths have the wrong type")
    index = RecordIndex(
        arrays[0][1],
        arrays[1][1],
        path=data_name,
        index_path=file.path,
        columns=_columns(file, fields, arrays, fail),
        format="extended",
        points=_points(file, fields, fail),
        file=file if file.mapped else None,
        **stated,
    )
    if count:
        index.entry(0)
        index.entry(count - 1)
    return index


def _columns(
    file: DataFile, fields: Any, arrays: list[tuple[str, npt.NDArray[Any]]], fail: Fail
) -> StoredColumns:
    """The arrays after the first two: by their names, or as the entries of ``masked`` say."""
    stored = [
        StoredArray(array, entry[4]) for (_, array), entry in zip(arrays, fields["arrays"], strict=True)
    ]
    columns: dict[str, tuple[StoredArray, StoredArray | None]] = {}
    taken: set[int] = set()
    for name, values, present in fields.get("masked", ()):
        if not isinstance(name, str) or any(
            type(place) is not int or not 2 <= place < len(arrays) or arrays[place][0] or place in taken
            for place in (values, present)
        ):
            raise ValueError("a masked column is out of place")
        if values == present or arrays[present][1].dtype != np.bool_ or arrays[values][1].ndim != 1:
            raise ValueError("a masked column has no mask")
        taken |= {values, present}
        columns[name] = stored[values], stored[present]
    for place, (name, _) in enumerate(arrays[2:], 2):
        if place not in taken:
            columns[name] = stored[place], None
    return StoredColumns(columns, before_read=_size_check(file, fail), damaged=fail)


def _size_check(file: DataFile, fail: Fail) -> Callable[[], object]:
    """Raises if the mapped index has shrunk: reading it would kill the process."""

    def check() -> None:
        try:
            file.check_size()
        except TruncatedRecordError:
            raise fail("the index file became shorter while it was open") from None

    return check if file.mapped else lambda: None


def _section(file: DataFile, fields: Any, name: str) -> tuple[memoryview, int] | None:
    """A section and its checksum, None if there is none of this name."""
    sections = fields.get("sections", {})
    if not isinstance(sections, dict):
        raise ValueError("sections is not a map")
    if name not in sections:
        return None
    at, size, checksum = sections[name]
    if any(type(number) is not int or number < 0 for number in (at, size, checksum)) or at % _ALIGNMENT:
        raise ValueError(f"its section {name} is out of place")
    if at > file.size or size > file.size - at:
        raise ValueError(f"its section {name} is outside the file")
    return file.view(at, size), checksum


def _points(file: DataFile, fields: Any, fail: Fail) -> Points | None:
    section = _section(file, fields, "points")
    if section is None or fields["compression"] not in WINDOW_BITS:
        return None
    sizes = _number(fields, "file_size"), _number(fields, "stream_size")
    return Points(section[0], *sizes, before_read=_size_check(file, fail), damaged=fail)


def _view(file: DataFile, entry: Any) -> tuple[str, npt.NDArray[Any]]:
    name, type_name, shape, at, checksum = entry
    if not isinstance(name, str) or not isinstance(type_name, str) or _COLUMN_DTYPE.match(type_name) is None:
        raise ValueError("an array has an unknown type")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 8:
        raise ValueError("an array has no shape")
    if type(at) is not int or type(checksum) is not int or at % _ALIGNMENT:
        raise ValueError("an array is out of place")
    dtype = np.dtype(type_name)
    items = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError("an array has no size")
        items *= size
    if dtype.itemsize * items > file.size - at or at < 0:
        raise ValueError("an array is outside the file")
    raw = file.view(at, dtype.itemsize * items)
    return name, np.frombuffer(raw, dtype, items).reshape(shape) if items else np.empty(shape, dtype)


def check_arrays(file: DataFile, fail: Fail) -> None:
    """Compare every array and section of an extended index with its checksum."""
    head = file.head(PREFIX_SIZE)
    index = load_extended(file, head, None, fail)
    fields = _unpacked(file.view(PREFIX_SIZE, _PREFIX.unpack(head)[2]))
    for place, entry in enumerate(fields["arrays"]):
        name, array = _view(file, entry)
        if crc32c(array.reshape(-1).view(np.uint8)) != entry[4]:
            masked = [entry[0] for entry in fields.get("masked", ()) if place in entry[1:]]
            which = ("offsets", "lengths")[place] if place < 2 else f"column {(masked or [name])[0]!r}"
            raise fail(f"the checksum of its {which} does not match")
    section = _section(file, fields, "points")
    if section is not None and crc32c(section[0]) != section[1]:
        raise fail("the checksum of its points does not match")
    if index.points is not None:
        index.points.check_all()
