"""What the processes that read one dataset share."""
