"""State shared by the processes that read one dataset."""
