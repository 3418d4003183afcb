"""The commands of `tfrecord`, one module a group of them."""
