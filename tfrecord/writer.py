"""Writing TFRecord files."""

from tfrecord import example_pb2 as example_pb2  # 1.x has this name here
from tfrecord._writing.sharded import ShardedTFRecordWriter
from tfrecord._writing.whole import write
from tfrecord._writing.writer import TFRecordWriter

__all__ = ["ShardedTFRecordWriter", "TFRecordWriter", "write"]
