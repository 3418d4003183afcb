"""Payloads by position and in stored order, and what they are decoded to."""
