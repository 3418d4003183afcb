"""The local page of `tfrecord view`."""
