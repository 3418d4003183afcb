"""The metadata of a folder prepared by TFDS, and the paths of its shards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexer.errors import TFRecordError, printable
from indexer.files import is_url, open_data
from indexer.names import is_data_name
from indexer.stores import Store, Url, open_store
from indexer.stores.ranges import side_by_side

__all__ = [
    "DatasetInfo",
    "SplitInfo",
    "TFDSError",
    "field",
    "is_prepared",
    "joined",
    "missing_files",
    "prepared_below",
    "read_info",
    "read_json",
    "read_text",
    "shard_path",
]

INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_MOST_TEXT = 256 << 20
MOST_RECORDS = 2**62
_LISTED = 20
_TEXTS = ("name", "config_name", "version", "description")


class TFDSError(TFRecordError, ValueError):
    """The metadata of a TFDS folder is damaged, or needs something that is not supported."""


@dataclass(frozen=True)
class SplitInfo:
    """One split: ``shard_lengths`` are the numbers of examples in its shards, in order."""

    name: str
    shard_lengths: tuple[int, ...]
    template: str = _TEMPLATE

    @property
    def num_examples(self) -> int:
        """How many examples the split has."""
        return sum(self.shard_lengths)


@dataclass(frozen=True)
class DatasetInfo:
    """The content of `dataset_info.json`. ``splits`` maps names to `SplitInfo`, in the order of the file."""

    folder: str
    name: str
    config: str
    version: str
    description: str
    splits: Mapping[str, SplitInfo]


def joined(folder: str, name: str) -> str:
    """The path or URL of a name in a folder; a URL keeps its options."""
    if not is_url(folder):
        return os.path.join(folder, name)
    url = folder if isinstance(folder, Url) else Url(folder)
    path, mark, query = url.full.partition("?")
    return Url(f"{path.rstrip('/')}/{name}{mark}{query}", url.options)


def field(node: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A field of a protobuf message in JSON; its name may be in camelCase or snake_case."""
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    return node.get(camel, node.get(name, default))


def read_text(path: str) -> str:
    """A small text file. Raises FileNotFoundError, or `TFDSError` if it is huge or not UTF-8."""
    with open_data(path, mmap=False) as file:
        if file.size > _MOST_TEXT:
            raise TFDSError(f"{path}: {file.size:,} bytes are too many for a metadata file")
        data = bytes(file.view(0, file.size)) if file.size else b""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TFDSError(f"{path}: not valid UTF-8 at byte {error.start}") from None


def read_json(path: str) -> dict[str, Any]:
    """A JSON file that holds an object."""
    text = read_text(path)
    try:
        found = json.loads(text)
    except RecursionError:
        raise TFDSError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise TFDSError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise TFDSError(f"{path}: holds a JSON {type(found).__name__}, not an object")
    return found


def as_count(value: Any, what: str) -> int:
    """A number of records: protobuf writes 64-bit integers as strings."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST_RECORDS:
        raise TFDSError(f"{what} is {str(value)[:40]!r}, not a number of records")
    return value


def _text_field(node: Mapping[str, Any], name: str, path: str, default: str = "") -> str:
    value = field(node, name, default)
    if not isinstance(value, str):
        raise TFDSError(f"{path}: {name} is a JSON {type(value).__name__}, not a string")
    return value


def _split_info(node: Any, path: str) -> SplitInfo:
    if not isinstance(node, dict):
        raise TFDSError(f"{path}: a split is a JSON {type(node).__name__}, not an object")
    name = _text_field(node, "name", path)
    if not name:
        raise TFDSError(f"{path}: a split has no name")
    lengths = field(node, "shard_lengths", [])
    if not isinstance(lengths, list):
        raise TFDSError(f"{path}: shardLengths of split {name!r} is not a list")
    if not lengths and field(node, "num_shards") not in (None, 0, "0"):
        raise TFDSError(
            f"{path}: split {name!r} has no shardLengths, as in folders of TFDS before 2.0; prepare it again"
        )
    counts = tuple(as_count(value, f"{path}: a shard length of split {name!r}") for value in lengths)
    if sum(counts) > MOST_RECORDS:
        raise TFDSError(f"{path}: split {name!r} claims {sum(counts):,} records")
    return SplitInfo(name, counts, _text_field(node, "filepath_template", path) or _TEMPLATE)


def read_info(folder: str) -> DatasetInfo:
    """Read `dataset_info.json` of the folder of one version.

    Raises:
        FileNotFoundError: the file is missing; the message lists the versions in the folders below.
        TFDSError: the file is damaged, or its records have a format other than TFRecord.
    """
    path = joined(folder, INFO_NAME)
    try:
        info = read_json(path)
    except FileNotFoundError:
        raise FileNotFoundError(_what_is_there(folder)) from None
    file_format = _text_field(info, "file_format", path) or "tfrecord"
    if file_format != "tfrecord":
        raise TFDSError(f"{path}: the records have the format {file_format!r}; only 'tfrecord' can be read")
    nodes = field(info, "splits", [])
    if not isinstance(nodes, list):
        raise TFDSError(f"{path}: splits is not a list")
    splits: dict[str, SplitInfo] = {}
    for node in nodes:
        split = _split_info(node, path)
        if split.name in splits:
            raise TFDSError(f"{path}: the split {split.name!r} occurs twice")
        splits[split.name] = split
    name, config, version, description = (_text_field(info, key, path) for key in _TEXTS)
    return DatasetInfo(folder, name, config, version, description, splits)


def shard_path(info: DatasetInfo, split: SplitInfo, number: int) -> str:
    """The file of one shard, from the split's template; TFDSError if it is not in the folder."""
    count = len(split.shard_lengths)
    digits = max(5, len(str(count)))
    index, total = f"{number:0{digits}d}", f"{count:0{digits}d}"
    values = {
        "DATASET": info.name,
        "SPLIT": split.name,
        "FILEFORMAT": "tfrecord",
        "SHARD_INDEX": index,
        "NUM_SHARDS": total,
        "SHARD_X_OF_Y": f"{index}-of-{total}",
    }
    said = f"{joined(info.folder, INFO_NAME)}: the file template {split.template!r} of split {split.name!r}"

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise TFDSError(f"{said} has an unknown part {match[0]!r}; known are {', '.join(values)}")
        return values[match[1]]

    name = re.sub(r"\{([^{}]*)\}", value, split.template)
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or ":" in parts[0] or not parts[-1]:
        raise TFDSError(f"{said} leads out of the folder: {name!r}")
    return joined(info.folder, name)


def is_prepared(folder: str) -> bool:
    """Whether this is the folder of one prepared version. For a URL that may be a folder it is a request."""
    if not is_url(folder):
        return os.path.isfile(os.path.join(folder, INFO_NAME))
    if is_data_name(folder.rpartition("/")[2]) or any(sign in folder for sign in "*?["):
        return False
    store, key = open_store(joined(folder, INFO_NAME))
    try:
        return store.exists(key)
    except PermissionError:  # what S3 says of missing objects to those who may not list
        return False


def missing_files(paths: Sequence[str]) -> list[str]:
    """Those that do not exist. Folders in stores are listed, or asked name by name where none can list."""
    listed: dict[tuple[Store, str], set[str]] = {}

    def is_there(path: str) -> bool:
        if not is_url(path):
            return os.path.isfile(path)
        store, key = open_store(path)
        folder = key.rpartition("/")[0]
        place = store, folder
        if place not in listed:
            try:
                listed[place] = {info.key for info in store.list(f"{folder}/" if folder else "")}
            except ValueError:
                return store.exists(key)
        return key in listed[place]

    if paths and all(path.startswith("http") for path in paths):
        there = side_by_side(is_there, paths)
    else:
        there = [is_there(path) for path in paths]
    return [path for path, found in zip(paths, there, strict=True) if not found]


def prepared_below(folder: str, depth: int = 3) -> Iterator[str]:
    """The prepared versions in a folder, at most dataset, config and version deep: paths relative to it."""
    if is_url(folder):
        store, key = open_store(joined(folder, ""))
        names = list(store.folders(key))
    elif os.path.isdir(folder):
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    else:
        return
    for name in sorted(name for name in names if not name.startswith(".")):
        below = joined(folder, name)
        if is_prepared(below):
            yield name
        elif depth > 1:
            yield from (f"{name}/{rest}" for rest in prepared_below(below, depth - 1))


def _what_is_there(folder: str) -> str:
    """Why a folder cannot be opened, and which folders can."""
    if not is_url(folder) and not os.path.isdir(folder):
        return printable(f"no such folder: {folder}")
    found = list(prepared_below(folder))
    if not found:
        return printable(f"{folder}: no {INFO_NAME}, so this is not a folder prepared by TFDS")
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return printable(
        f"{folder} is not the folder of one version; there are {', '.join(found[:_LISTED])}{more}"
    )
