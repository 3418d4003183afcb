"""Values to the bytes of tf.train.Example and tf.train.SequenceExample, without protobuf."""

from tfrecord._writing.encoder import MAX_EXAMPLE_BYTES, encode_example, encode_sequence_example

__all__ = ["MAX_EXAMPLE_BYTES", "encode_example", "encode_sequence_example"]
