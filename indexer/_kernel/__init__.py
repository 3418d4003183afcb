"""The compiled kernel of frames and checksums."""
