"""The datasets for PyTorch."""

from tfrecord.torch._mapstyle import TFRecordMapDataset
from tfrecord.torch._multi import MultiTFRecordDataset
from tfrecord.torch._single import TFRecordDataset

__all__ = ["MultiTFRecordDataset", "TFRecordDataset", "TFRecordMapDataset"]
