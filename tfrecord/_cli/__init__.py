"""The commands of `tfrecord`, one module each, and what they share."""
