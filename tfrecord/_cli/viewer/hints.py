"""What the metadata of a TFDS folder says about the keys of its records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from indexer.errors import TFRecordError
from tfrecord.tfds import features as tree
from tfrecord.tfds.folder import is_prepared
from tfrecord.tfds.leaves import leaves_of


@dataclass
class Hints:
    """By key of a record: the names of classes, which keys are boxes or masks, and how many values each entry
    of a sequence has. ``sequences``: the prefixes of sequences, with their keys."""

    names: dict[str, list[str]] = field(default_factory=dict)
    boxes: set[str] = field(default_factory=set)
    masks: set[str] = field(default_factory=set)
    sequences: dict[str, dict[str, int]] = field(default_factory=dict)

    def class_text(self, key: str, number: int) -> str:
        """The name of a class, "" if it has none."""
        names = self.names.get(key, ())
        return names[number] if 0 <= number < len(names) else ""


def hints_of(folders: Iterable[str]) -> Hints:
    """The hints of the folders that are prepared; a damaged one, of which `describe` tells, gives none."""
    made = Hints()
    for folder in folders:
        try:
            if is_prepared(folder):
                add_features(made, tree.read_features(folder))
        except (TFRecordError, OSError):
            continue
    return made


def add_features(made: Hints, features: tree.FeaturesDict) -> None:
    """Add what a tree of connectors says."""
    for leaf in leaves_of(features, False):
        feature = leaf.feature
        if isinstance(feature, tree.ClassLabel) and feature.names:
            made.names[leaf.key] = feature.names
        if feature.connector == "BBoxFeature":
            made.boxes.add(leaf.key)
        if feature.connector == "LabeledImage":
            made.masks.add(leaf.key)
        if len(leaf.levels) != 1:
            continue
        size: int | None = 1
        if isinstance(feature, tree.Tensor) and feature.encoding == "none":
            size = None if None in feature.shape else math.prod(s or 0 for s in feature.shape)
        if size:
            prefix = "/".join(leaf.path[: _depth(features, leaf.path)])
            made.sequences.setdefault(prefix, {})[leaf.key] = size


def _depth(features: tree.FeaturesDict, path: tuple[str, ...]) -> int:
    """How many names of a path lead to the sequence in it."""
    node: tree.Feature = features
    for depth, name in enumerate(path):
        if isinstance(node, tree.FeaturesDict):
            node = node[name]
        if isinstance(node, tree.Sequence):
            return depth + 1
    return len(path)
