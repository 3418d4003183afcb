"""The compiled kernels for messages, and the same in plain Python."""
