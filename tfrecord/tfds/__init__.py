"""Folders prepared by TFDS (TensorFlow Datasets, RLDS), read without TensorFlow and tensorflow-datasets.

>>> from tfrecord import tfds
>>> reader = tfds.open("data/mnist/3.0.1", "train[:90%]")  # doctest: +SKIP
>>> reader[0]["image"].shape  # doctest: +SKIP
(28, 28, 1)
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from indexer.options import check_options
from tfrecord.reader import TFRecordReader
from tfrecord.tfds.folder import DatasetInfo, SplitInfo, TFDSError
from tfrecord.tfds.nested import NestedBatch
from tfrecord.tfds.reader import TFDSReader
from tfrecord.tfds.splits import SubSplit, even_splits
from tfrecord.tfds.steps import StepsReader

__all__ = [
    "DatasetInfo",
    "NestedBatch",
    "SplitInfo",
    "StepsReader",
    "SubSplit",
    "TFDSError",
    "TFDSReader",
    "even_splits",
    "open",
]


def open(
    folder: str | os.PathLike[str], split: Any = "train", *, decode: bool = True, **reader_options: Any
) -> TFDSReader:
    """The examples of a split of a folder prepared by TFDS; see `TFDSReader`."""
    check_options(open, reader_options, list(inspect.signature(TFRecordReader).parameters))
    return TFDSReader(folder, split, decode=decode, **reader_options)
