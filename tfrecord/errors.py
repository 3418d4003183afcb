"""The errors of this library; see `tfrecord.TFRecordError`."""

from indexer.errors import (
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

__all__ = [
    "ChecksumError",
    "CompressionError",
    "CorruptRecordError",
    "DecodeError",
    "FeatureKindError",
    "ImageError",
    "IndexFileError",
    "MissingFeatureError",
    "RemoteError",
    "StaleIndexError",
    "TFRecordError",
    "TruncatedRecordError",
    "UnsupportedCompressionError",
]
