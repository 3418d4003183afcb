"""The compiled kernels of messages, and the same in plain Python."""
