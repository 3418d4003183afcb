"""Reads payloads by position and in stored order, and decodes them."""
