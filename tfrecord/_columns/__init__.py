"""Columns of records: arrays, byte strings, ragged rows, and batches of them."""
