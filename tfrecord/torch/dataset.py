"""The datasets for PyTorch."""

from tfrecord import iterator_utils as iterator_utils  # 1.x has these two names here
from tfrecord import reader as reader
from tfrecord.torch._mapstyle import TFRecordMapDataset
from tfrecord.torch._multi import MultiTFRecordDataset
from tfrecord.torch._single import TFRecordDataset

__all__ = ["MultiTFRecordDataset", "TFRecordDataset", "TFRecordMapDataset"]
