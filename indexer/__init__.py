"""Bytes on disk: the record format, files and streams of it, and indexes of where each record is.

It knows nothing about what the records hold. The package ``tfrecord``, which builds on this one, does that.
"""

from ._engine import engine
from .build import (
    IndexWriter,
    build_index,
    check_index,
    find_index,
    scan_index,
    sidecar_path,
)
from .build_many import BuildResult, build_indexes
from .errors import (
    ChecksumError,
    CompressionError,
    CorruptRecordError,
    DecodeError,
    FeatureKindError,
    ImageError,
    IndexFileError,
    MissingFeatureError,
    RemoteError,
    StaleIndexError,
    TFRecordError,
    TruncatedRecordError,
    UnsupportedCompressionError,
)
from .files import DataFile, open_data
from .formats import load_index
from .framing import crc32c, frame_record, masked_crc32c, scan
from .index import RecordIndex
from .paths import expand_paths
from .streams import iter_chunks, open_stream

__all__ = [
    "BuildResult",
    "ChecksumError",
    "CompressionError",
    "CorruptRecordError",
    "DataFile",
    "DecodeError",
    "FeatureKindError",
    "ImageError",
    "IndexFileError",
    "IndexWriter",
    "MissingFeatureError",
    "RecordIndex",
    "RemoteError",
    "StaleIndexError",
    "TFRecordError",
    "TruncatedRecordError",
    "UnsupportedCompressionError",
    "build_index",
    "build_indexes",
    "check_index",
    "crc32c",
    "engine",
    "expand_paths",
    "find_index",
    "frame_record",
    "iter_chunks",
    "load_index",
    "masked_crc32c",
    "open_data",
    "open_stream",
    "scan",
    "scan_index",
    "sidecar_path",
]
