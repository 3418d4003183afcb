"""TFRecord files without TensorFlow: index once, read any record, decode to columns, shuffle truly, resume.

The names below are the public ones. ``connect``, ``tfrecord.flight``, ``tfrecord.ray``, ``tfrecord.tfds``
and ``tfrecord.torch`` are loaded when they are first used, so that importing this package never imports
pyarrow, Ray or torch.
"""

from . import _startup  # isort: skip  # first, because it is for the time that all other imports take

import importlib as _importlib
import importlib.metadata as _metadata
from typing import TYPE_CHECKING as _TYPE_CHECKING

from indexer import (
    ChecksumError,
    CompressionError,
    CorruptRecordError,
    DecodeError,
    FeatureKindError,
    ImageError,
    IndexFileError,
    MissingFeatureError,
    RecordIndex,
    RemoteError,
    StaleIndexError,
    TFRecordError,
    TruncatedRecordError,
    UnsupportedCompressionError,
    load_index,
)
from indexer.options import near_matches as _near_matches

from . import example_pb2, iterator_utils, reader, sampling, tools, writer
from ._kernels.engine import engine
from ._optional import is_installed as _is_installed
from .columns import BytesColumn, ColumnBatch, Ragged, SequenceBatch, concat
from .encode import encode_example, encode_sequence_example
from .example_lists import parse_example_list
from .features import FixedLenFeature, RaggedFeature, VarLenFeature
from .images import ImageFeature
from .iterator_utils import cycle, sample_iterators, shuffle_iterator
from .loaders import (
    example_loader,
    multi_tfrecord_loader,
    sequence_loader,
    tfrecord_iterator,
    tfrecord_loader,
)
from .parse import (
    parse_example,
    parse_sequence_example,
    parse_single_example,
    parse_single_sequence_example,
)
from .process import extract_feature_dict, process_feature
from .reader import TFRecordReader, build_index, build_indexes
from .repair import salvage, verify
from .schema import Schema
from .splits import Split, make_splits
from .tensor_proto import decode_tensor_proto
from .writer import ShardedTFRecordWriter, TFRecordWriter, write

__all__ = [
    "BytesColumn",
    "ChecksumError",
    "ColumnBatch",
    "CompressionError",
    "CorruptRecordError",
    "DecodeError",
    "FeatureKindError",
    "FixedLenFeature",
    "ImageError",
    "ImageFeature",
    "IndexFileError",
    "MissingFeatureError",
    "Ragged",
    "RaggedFeature",
    "RecordIndex",
    "RemoteError",
    "Schema",
    "SequenceBatch",
    "ShardedTFRecordWriter",
    "Split",
    "StaleIndexError",
    "TFRecordError",
    "TFRecordReader",
    "TFRecordWriter",
    "TruncatedRecordError",
    "UnsupportedCompressionError",
    "VarLenFeature",
    "__version__",
    "build_index",
    "build_indexes",
    "concat",
    "cycle",
    "decode_tensor_proto",
    "encode_example",
    "encode_sequence_example",
    "engine",
    "example_loader",
    "example_pb2",
    "extract_feature_dict",
    "iterator_utils",
    "load_index",
    "make_splits",
    "multi_tfrecord_loader",
    "parse_example",
    "parse_example_list",
    "parse_sequence_example",
    "parse_single_example",
    "parse_single_sequence_example",
    "process_feature",
    "reader",
    "salvage",
    "sample_iterators",
    "sampling",
    "sequence_loader",
    "shuffle_iterator",
    "tfrecord_iterator",
    "tfrecord_loader",
    "tools",
    "verify",
    "write",
    "writer",
]


_startup.raise_again()

# Modules that are loaded when they are first used, each with the package that it needs.
_LAZY = {"flight": "pyarrow", "ray": "ray", "tfds": "numpy", "torch": "torch"}

if _TYPE_CHECKING:
    from . import flight as flight
    from . import ray as ray
    from . import tfds as tfds
    from . import torch as torch
    from .flight import connect as connect

    __version__: str
else:

    def __getattr__(name: str) -> object:
        if name in _LAZY:
            return _importlib.import_module(f"tfrecord.{name}")
        if name == "connect":
            return _importlib.import_module("tfrecord.flight").connect
        if name == "__version__":
            return _metadata.version("tfrecord")
        near = _near_matches(name, __all__) if not name.startswith("_") else ""
        if name.endswith("Dataset"):
            near = "; the datasets are in tfrecord.torch"
        if name == "FixedLenSequenceFeature":
            near = "; use VarLenFeature in features, and FixedLenFeature in sequence_features"
        raise AttributeError(f"module 'tfrecord' has no attribute {name!r}{near}")

    def __dir__() -> list[str]:
        # help() imports all that is named here.
        return [*__all__, "connect", *(name for name, package in _LAZY.items() if _is_installed(package))]
