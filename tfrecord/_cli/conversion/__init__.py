"""The formats that `tfrecord convert` reads and writes."""
