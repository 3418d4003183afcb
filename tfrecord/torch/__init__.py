"""Datasets for PyTorch: each record exactly once over ranks and workers, fully shuffled, resumable."""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":  # torch is installed but a dependency of it is missing: its own error says so
        raise
    raise ImportError(
        "tfrecord.torch needs PyTorch, which is not installed: pip install 'tfrecord[torch]'", name="torch"
    ) from None

from tfrecord._columns.batch import Ragged
from tfrecord.torch.collate import pad_collate
from tfrecord.torch.dataset import MultiTFRecordDataset, TFRecordDataset, TFRecordMapDataset

__all__ = ["MultiTFRecordDataset", "Ragged", "TFRecordDataset", "TFRecordMapDataset", "pad_collate"]

del _torch
