"""Which record is read when, and by whom: orders, shares and mixes, without torch and without a file."""

from tfrecord.sampling.orders import (
    SPLITS,
    BlockOrder,
    Order,
    Permutation,
    QueueOrder,
    Share,
    StoredOrder,
    derive_key,
    hash_places,
    shuffled_order,
)

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
