"""Writing TFRecord files."""

from tfrecord._writing.sharded import ShardedTFRecordWriter
from tfrecord._writing.whole import write
from tfrecord._writing.writer import TFRecordWriter

__all__ = ["ShardedTFRecordWriter", "TFRecordWriter", "write"]
