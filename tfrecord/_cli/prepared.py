"""What `info` and `view` say about folders that TFDS prepared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from indexer.errors import TFRecordError
from indexer.names import is_data_name, is_url
from indexer.stores import open_store
from tfrecord.tfds.features import ClassLabel, Feature, FeaturesDict, Image, Sequence, Tensor, read_features
from tfrecord.tfds.folder import (
    TFDSError,
    is_prepared,
    joined,
    missing_files,
    prepared_below,
    read_info,
    shard_path,
)

__all__ = ["about", "describe", "title_of", "versions"]


def versions(path: str) -> list[str]:
    """The prepared versions below a folder that is not one itself and has no data; relative to the folder."""
    if is_data_name(path.rpartition("/")[2]) or not _is_folder_without_data(path):
        return []
    return [] if is_prepared(path) else list(prepared_below(path))


def _is_folder_without_data(path: str) -> bool:
    if not is_url(path):
        return os.path.isdir(path) and not any(map(is_data_name, os.listdir(path)))
    if path.startswith("http") or any(sign in path for sign in "*?[@"):
        return False
    store, key = open_store(joined(path, ""))
    try:
        return not any(is_data_name(info.key.rpartition("/")[2]) for info in store.list(key))
    except (OSError, TFRecordError):  # it may not be listed
        return False


def describe(paths: Iterable[str], counts: Mapping[str, int | None] | None = None) -> list[dict[str, Any]]:
    """What the metadata says about each path that is a prepared folder.

    ``counts`` are the numbers of records in files; if they disagree with the metadata, ``problem`` says so.
    """
    found = []
    for path in paths:
        if is_prepared(path):
            try:
                found.append(_described(path, counts or {}))
            except (TFDSError, OSError) as error:
                found.append({"folder": path, "problem": str(error)})
    return found


def _described(folder: str, counts: Mapping[str, int | None]) -> dict[str, Any]:
    info = read_info(folder)
    splits, problem = [], None
    shards = [
        shard_path(info, split, number)
        for split in info.splits.values()
        for number, length in enumerate(split.shard_lengths)
        if length
    ]
    missing = set(missing_files([path for path in shards if counts.get(path) is None]))
    for split in info.splits.values():
        lengths = split.shard_lengths
        splits.append({"name": split.name, "examples": split.num_examples, "shards": len(lengths)})
        for number, length in enumerate(lengths):
            path = shard_path(info, split, number)
            if length and path in missing:
                problem = problem or f"{path} of split {split.name!r} is missing"
            elif counts.get(path) not in (None, length):
                problem = problem or f"{path} holds {counts[path]:,} records, not {length:,}"
    return {
        "folder": folder,
        "name": info.name,
        "config": info.config or None,
        "version": info.version,
        "splits": splits,
        "features": list(_features(read_features(folder), "")),
        "problem": problem,
    }


def _features(feature: Feature, name: str) -> Iterator[dict[str, Any]]:
    """One entry per leaf; a leaf in a sequence has ``[]`` in its connector."""
    if isinstance(feature, FeaturesDict):
        for key, below in feature.items():
            yield from _features(below, f"{name}/{key}" if name else key)
    elif isinstance(feature, Sequence):
        for inner in _features(feature.feature, name):
            yield {**inner, "connector": f"{feature.connector}[{inner['connector']}]"}
    else:
        entry: dict[str, Any] = {"name": name, "connector": feature.connector}
        if isinstance(feature, Tensor | Image):
            entry |= {"dtype": feature.dtype, "shape": list(feature.shape)}
        if isinstance(feature, ClassLabel | Image) and feature.names:
            entry["classes"] = len(feature.names)
        yield entry


def about(described: Mapping[str, Any]) -> list[str]:
    """A description as lines of text."""
    if "name" not in described:
        return [f"wrong: {described['problem']}"]
    splits = ", ".join(f"{split['name']} ({split['examples']:,})" for split in described["splits"])
    lines = [f"TFDS {title_of(described)}: {splits or 'no splits'}"]
    for entry in described["features"]:
        form = f" {entry['dtype']}{_shape(entry['shape'])}" if "dtype" in entry else ""
        classes = f", {entry['classes']:,} classes" if "classes" in entry else ""
        lines.append(f"  {entry['name']}: {entry['connector']}{form}{classes}")
    return lines + ([f"wrong: {described['problem']}"] if described["problem"] else [])


def title_of(described: Mapping[str, Any]) -> str:
    """The name, the config and the version, "" where the metadata is damaged."""
    return "/".join(filter(None, (described.get(key) for key in ("name", "config", "version"))))


def _shape(sizes: list[int | None]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in sizes)})" if sizes else ""
