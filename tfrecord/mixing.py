"""Mixing several sources into one sequence by weights."""

from tfrecord.sampling.mixing import ENDLESS, MixOrder

__all__ = ["ENDLESS", "MixOrder"]
