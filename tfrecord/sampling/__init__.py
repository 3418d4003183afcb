"""Which record is read when, and by whom: orders, shares and mixes. Needs neither torch nor files."""

from tfrecord.sampling.orders import BlockOrder, Order, QueueOrder, StoredOrder, shuffled_order
from tfrecord.sampling.permutation import Permutation, derive_key, hash_places
from tfrecord.sampling.share import SPLITS, Share

__all__ = [
    "BlockOrder",
    "Order",
    "Permutation",
    "QueueOrder",
    "SPLITS",
    "Share",
    "StoredOrder",
    "derive_key",
    "hash_places",
    "shuffled_order",
]
