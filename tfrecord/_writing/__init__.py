"""Encodes values and columns as records, and writes the records."""
