"""Writing TFRecord files."""

from tfrecord._sharded_writer import ShardedTFRecordWriter
from tfrecord._writer import TFRecordWriter

__all__ = ["ShardedTFRecordWriter", "TFRecordWriter"]
