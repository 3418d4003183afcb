"""What a file that is not TFRecord looks like, from its first and last bytes."""

from __future__ import annotations

import csv
import os

__all__ = ["HEAD_SIZE", "TAIL_SIZE", "file_tail", "sniff"]

HEAD_SIZE = 512
"""How many bytes from the start are examined to tell what a file or stream is."""
TAIL_SIZE = 8
"""How many bytes from the end are examined too."""

# (offset, bytes, name): the first match is the answer.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\x04\x22\x4d\x18", "lz4 data"),
    (0, b"\xff\x06\x00\x00sNaPpY", "snappy data"),
    (0, b"PK\x03\x04", "a zip archive (PyTorch and .npz files are zip archives too)"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a rar archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x0a\x23\xd7\xce", "a RecordIO file of MXNet or SageMaker, another format than TFRecord"),
    (0, b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "a Riegeli or ArrayRecord file, another format than TFRecord"),
    (0, b"SEQ\x04", "a Hadoop SequenceFile"),
    (0, b"SEQ\x05", "a Hadoop SequenceFile"),
    (0, b"SEQ\x06", "a Hadoop SequenceFile"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1", "an Arrow IPC file"),
    (0, b"FEA1", "a Feather file"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"ORC", "an ORC file"),
    (0, b"\x93NUMPY", "a NumPy .npy file"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"CDF\x01", "a NetCDF file"),
    (0, b"CDF\x02", "a NetCDF file"),
    (0, b"MATLAB 5.0", "a MATLAB file"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (16, b"\xde\xc0\xef\xbe", "an LMDB database"),
    (0, b"TFRINDEX", "an index file of this library, not data"),
    (0, b"version https://git-lfs", "a Git-LFS pointer; fetch the file itself with 'git lfs pull'"),
    (0, b"GGUF", "a GGUF model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"\x89PNG\r\n", "a PNG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (8, b"WEBP", "a WebP image"),
    (8, b"WAVE", "a WAV sound"),
    (8, b"AVI ", "an AVI video"),
    (4, b"ftyp", "an MP4 video or HEIF image"),
    (0, b"\x1aE\xdf\xa3", "a Matroska or WebM video"),
    (0, b"fLaC", "a FLAC sound"),
    (0, b"OggS", "an Ogg sound"),
    (0, b"ID3", "an MP3 sound"),
    (0, b"#ROSBAG", "a ROS bag"),
    (0, b"\x89MCAP0\r\n", "an MCAP file"),
    (128, b"DICM", "a DICOM image"),
    (0, b"%PDF-", "a PDF file"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ\x90\x00", "a program"),
)
_SSTABLE = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"
# The opcodes that may follow the version in a pickle: a frame, or a first value.
_PICKLE_NEXT = b"\x95})](ccX\x8cq\x8eKMJGUTB\x88\x89N"


def sniff(head: bytes, tail: bytes = b"") -> str | None:
    """What a file looks like, in words that follow "looks like "; None if unknown.

    Args:
        head: the first bytes; at most 512 of them are examined.
        tail: the last 8 bytes, if known.
    """
    head = bytes(head[:HEAD_SIZE])
    for at, signature, name in _SIGNATURES:
        if head[at : at + len(signature)] == signature:
            return name
    if tail.endswith(_SSTABLE):
        return "an SSTable, as used by LevelDB and for the index of a TensorFlow checkpoint"
    if len(head) >= 2 and head[0] == 0x78 and (head[0] << 8 | head[1]) % 31 == 0 and not head[1] & 0x20:
        return "zlib data"
    if head and not any(head):
        return "zeros, such as space that was reserved and never written"
    if len(head) >= 3 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] in _PICKLE_NEXT:
        return "a Python pickle"
    if _is_safetensors(head):
        return "a safetensors file"
    if head[:4] == b"\xff\xff\xff\xff" and head[8:12] == b"\x10\x00\x00\x00":
        return "an Arrow IPC stream"
    if _is_example(head):
        return (
            "one tf.train.Example without a frame around it; TFRecordWriter.write_bytes writes it as a record"
        )
    size, start = _varint(head, 0)
    if size > 0 and _is_example(head[start : start + size]):
        return "protobuf messages, each after its length; TFRecordWriter.write_bytes writes each as a record"
    return _text(head) if _is_text(head) else None


def file_tail(path: str | None) -> bytes:
    """The last 8 bytes of a local file, ``b""`` if they cannot be read."""
    if path is None:
        return b""
    try:
        with open(path, "rb") as file:
            file.seek(-TAIL_SIZE, os.SEEK_END)
            return file.read(TAIL_SIZE)
    except (OSError, ValueError):
        return b""


def _is_safetensors(head: bytes) -> bool:
    """Whether the head is the length of a JSON header, then the header."""
    return head[8:10] == b'{"' and 2 <= int.from_bytes(head[:8], "little") < 1 << 28


def _is_example(head: bytes) -> bool:
    """Whether the head is nested like an Example: features, an entry, and a key that is text."""
    at, end = 0, 1 << 31
    for _ in range(3):
        if head[at : at + 1] != b"\x0a":
            return False
        length, at = _varint(head, at + 1)
        if not 0 < length <= end - at:
            return False
        end = at + length
    return end < len(head) and head[end] == 0x12 and head[at:end].isascii() and _is_text(head[at:end])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of at most five bytes and where it ends; -1 if there is none."""
    value = 0
    for shift, byte in enumerate(data[at : at + 5]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    return -1, at


def _is_text(head: bytes) -> bool:
    if not head or any(byte < 32 and byte not in b"\t\n\r\f" for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and error.start > 0
    return True


def _text(head: bytes) -> str:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page, perhaps the error page of a failed download"
    if start.startswith(b"<"):
        return "XML"
    if start.startswith((b"{", b"[")):
        return "JSON"
    lines = head.decode("utf-8", "ignore").splitlines()
    words = lines[0].split()
    if len(words) == 2 and all(word.isdigit() for word in words):
        return "a text index, not data"
    return "text (CSV)" if _is_csv(lines) else "text"


def _is_csv(lines: list[str]) -> bool:
    """Whether the first two lines have the same number of fields."""
    if len(lines) < 3:
        return False
    for delimiter, least in ((",", 2), (";", 2), ("\t", 3)):
        counts = {len(fields) for fields in csv.reader(lines[:2], delimiter=delimiter)}
        if len(counts) == 1 and counts.pop() >= least:
            return True
    return False
