"""Finds and checks the good parts of damaged files."""
