"""What a file name says: local or a URL, data, an index, one shard of a set, compression."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

__all__ = [
    "ShardName",
    "ShardedName",
    "index_names",
    "is_candidate",
    "is_data_name",
    "is_index_name",
    "is_url",
    "local_path",
    "natural_key",
    "path_name",
    "shard_name",
    "sharded_name",
    "split_compression",
]

# A chain such as simplecache::s3://... has a scheme in its last link; a local name may hold "::" too.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+(://|::.*://)", re.DOTALL)
_COMPRESSION = {
    **{".gz": "gzip", ".gzip": "gzip", ".zz": "zlib", ".zlib": "zlib"},
    **{".zst": "zstd", ".zstd": "zstd"},
}
_COMPRESSED = re.compile(r"\.(gz|gzip|zz|zlib|zst|zstd)$", re.IGNORECASE)
_SUFFIX = re.compile(r"(\.(tfrecords?|tfrecs?|tfr|record)|[\-_](tfrecords?|tfrecs?))$", re.IGNORECASE)
_SHARD = re.compile(
    r"^(?P<base>.*)-(?P<number>\d+)-of-(?P<total>\d+)(?P<tail>(?:\.[A-Za-z0-9]+)*)$", re.DOTALL
)
# Without a TFRecord suffix a shard number must have five digits, as every writer of shards uses.
_DIGITS_ALONE = 5
# Other formats use the same shard names.
_FOREIGN = re.compile(
    r"\.(array_?record|arrow|avro|bagz|bin|bz2|ckpt|csv|data|feather|gif|h5|hdf5|html?|ipc|jpe?g|jsonl?|log|lz4"
    r"|md|mp4|msgpack|ndjson|np[yz]|onnx|orc|parquet|pb|pdf|pickle|pkl|png|pth?|pq|py|recordio|riegeli"
    r"|safetensors|sstable|tar|tgz|tsv|txt|wav|webp|xml|xz|ya?ml|zip)$",
    re.IGNORECASE,
)
_SHARDED = re.compile(r"^(?P<base>.+)@(?P<total>\d+|\*)(?P<tail>(?:\.[A-Za-z0-9]+)*)$", re.DOTALL)
_INDEX_NAME = re.compile(r"\.(tfindex|index|idx)$", re.IGNORECASE)
_TEMPORARY_NAME = re.compile(
    r"(\.(tmp|temp|partial|part|crdownload|crc|md5|sha\d+|lock|swp|bak|old|orig)|~)$", re.IGNORECASE
)
_DIGITS = re.compile(r"([0-9]+)")


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL (``scheme://...``) and not a local file."""
    return _URL.match(path) is not None


def local_path(path: str) -> str | None:
    """The path of a local file, also if given as ``file://``; None for any other URL."""
    if path.startswith("file://"):
        return path.removeprefix("file://")
    return None if is_url(path) else path


def path_name(source: Any) -> str:
    """The name of a path or file object, for use in messages."""
    if isinstance(source, (str, bytes, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else "<stream>"


class ShardName(NamedTuple):
    """``base-NUMBER-of-TOTAL`` and what follows; ``total`` is the text as written."""

    base: str
    number: int
    total: str
    tail: str


class ShardedName(NamedTuple):
    """``base@TOTAL`` and what follows: a complete set of shards. ``total`` is None for ``base@*``."""

    base: str
    total: int | None
    tail: str

    def has(self, name: str) -> bool:
        """Whether a file of this name belongs to the set, if the set is the only one of its base."""
        shard = shard_name(name)
        if shard is None or shard.base != self.base or is_index_name(name) or _TEMPORARY_NAME.search(name):
            return False
        if len(shard.total) < _DIGITS_ALONE or (self.total is not None and int(shard.total) != self.total):
            return False
        return shard.tail == self.tail or (not self.tail and shard.tail.count(".") == 1)


def is_data_name(name: str) -> bool:
    """Whether a file of this name is TFRecord data by one of the usual names.

    These are ``*.tfrecord``, ``*.tfrecords``, ``*.tfrec``, ``*.tfr``, ``*.record``, and whatever has
    ``-00000-of-00010`` before or after the suffix, unless it is the suffix of another format; each also with
    ``.gz``, ``.gzip``, ``.zz``, ``.zlib``, ``.zst`` or ``.zstd``. ``*-tfrecord`` and ``*_tfrecord`` count
    too.
    """
    stem = _COMPRESSED.sub("", os.path.basename(name))
    if _SUFFIX.search(stem):
        return True
    shard = shard_name(stem)
    if shard is None or is_index_name(stem) or _TEMPORARY_NAME.search(stem):
        return False
    if _SUFFIX.search(shard.base):
        return not shard.tail
    long_enough = len(shard.total) >= _DIGITS_ALONE
    return long_enough and not _FOREIGN.search(shard.tail) and not _FOREIGN.search(shard.base)


def shard_name(name: str) -> ShardName | None:
    """The parts of a shard's name (without folders), None for any other name."""
    match = _SHARD.match(name)
    return (
        None
        if match is None
        else ShardName(match["base"], int(match["number"]), match["total"], match["tail"])
    )


def sharded_name(name: str) -> ShardedName | None:
    """The parts of ``name@8``, ``name@*`` or ``name@8.gz`` (without folders), None for any other name."""
    match = _SHARDED.match(name)
    if match is None:
        return None
    return ShardedName(match["base"], None if match["total"] == "*" else int(match["total"]), match["tail"])


def split_compression(path: str) -> tuple[str, str]:
    """The name without its compression suffix, and the compression: ``"gzip"``, ``"zlib"``,
    ``"zstd"`` or ``""``."""
    stem, suffix = os.path.splitext(path)
    kind = _COMPRESSION.get(suffix.lower(), "")
    return (stem, kind) if kind else (path, "")


def is_index_name(name: str) -> bool:
    """Whether a file of this name is an index."""
    return _INDEX_NAME.search(name) is not None


def index_names(data_name: str) -> list[str]:
    """The names that the index of a file may have: the sidecar's, and ``a.tfindex`` for ``a.tfrecord``, as in
    1.x."""
    stem, extension = os.path.splitext(data_name)
    return [data_name + ".tfindex", *([stem + ".tfindex"] if extension == ".tfrecord" else [])]


def natural_key(path: str) -> tuple[Any, ...]:
    """Sort key that puts ``a-2`` before ``a-10``."""
    return tuple(int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(path))), path


def is_candidate(path: str) -> bool:
    """Whether a name found in a folder may be data: not an index, a marker, a hidden or a temporary file."""
    name = os.path.basename(path)
    if is_index_name(name) or _TEMPORARY_NAME.search(name) or name.startswith("."):
        return False
    return not name.startswith("_") or is_data_name(name)
