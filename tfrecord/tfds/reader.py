"""`TFDSReader`: the examples of a split of a TFDS folder."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from indexer.errors import printable
from indexer.files import is_url
from indexer.framing import FRAME_OVERHEAD
from indexer.options import check_options, suggests_options, warn_caller
from indexer.stores import StoreOptions, Url
from tfrecord._reading.call_text import call_text
from tfrecord._reading.view import RecordView
from tfrecord.reader import TFRecordReader
from tfrecord.tfds.features import FeaturesDict, Unknown, read_features
from tfrecord.tfds.folder import (
    MOST_RECORDS,
    DatasetInfo,
    TFDSError,
    missing_files,
    read_info,
    shard_path,
)
from tfrecord.tfds.leaves import Leaf, leaves_of
from tfrecord.tfds.nested import NestedDecoder
from tfrecord.tfds.splits import Part, resolve_split
from tfrecord.tfds.steps import StepsReader, steps_of

__all__ = ["TFDSReader"]

_LISTED = 5
_OURS = ("features", "sequence_features", "record_type", "compression_type")


class TFDSReader(TFRecordReader):
    """The examples of a split of a folder prepared by TFDS, by position and in stored order.

    It works like a `TFRecordReader`: `reader[i]` and iteration give examples as nested dicts with the same
    values as `tfds.as_numpy`; `read` and `batches` give a `NestedBatch`, nested dicts of columns.
    ``columns`` are names of features, joined by "/" within a dict; the name of a dict means all its features.
    `tfrecord.torch.TFRecordDataset` and `TFRecordMapDataset` take it in place of a path.

    Args:
        folder: the folder (or URL) of one version, which holds `dataset_info.json`.
        split: in the TFDS split language, such as ``"train"``, ``"train[:10%]+test"`` or ``"all"``; or one of
            `even_splits`.
        decode: False leaves images encoded, as bytes.
        **reader_options: ``index``, ``verify``, ``on_error``, ``max_skips`` and so on, as for
            `TFRecordReader`.

    Attributes:
        features: the tree of connectors.
        info: the content of `dataset_info.json`.
        split: the split as it was given.

    Raises:
        FileNotFoundError: the folder does not exist, or is not the folder of one version (the message lists
            the versions in it), or a shard of the split is missing.
        TFDSError: the metadata is damaged, or needs something that is not supported.
        ValueError: the split is not valid, or has no shards.

    `len` comes from the metadata. A shard with a different number of records raises `CorruptRecordError` when
    it is read. Opening reads only the metadata. An unknown connector gives the values that the record holds
    under its keys, with one warning.
    """

    features: FeaturesDict
    info: DatasetInfo

    def __init__(
        self,
        folder: str | os.PathLike[str],
        split: Any = "train",
        *,
        decode: bool = True,
        **reader_options: Any,
    ) -> None:
        check_options(TFDSReader.__init__, reader_options, list(inspect.signature(TFRecordReader).parameters))
        for name in _OURS:
            if name in reader_options:
                raise TypeError(f"{name} follows from the folder and cannot be given")
        place = os.fsdecode(folder)
        self.info = read_info(_url(place, reader_options) if is_url(place) else place)
        self.features = read_features(self.info.folder)
        self.split = split
        files = _Files(self.info, resolve_split(split, self.info.splits))
        super().__init__(files.paths, record_type="example", compression_type="", **reader_options)
        self._call = call_text(type(self).__name__, TFDSReader.__init__, locals())
        store = self._view.store
        store.expect(files.counts)
        leaves = list(leaves_of(self.features, bool(decode)))
        if any(isinstance(leaf.feature, Unknown) for leaf in leaves):
            leaves = list(_with_raw_keys(leaves, self.schema))
        decoder = NestedDecoder(leaves, store.policy)
        self._view = RecordView(store, decoder, files.selection())

    def episodes(self) -> Iterator[dict[str, Any]]:
        """The episodes of an RLDS dataset in stored order; ``["steps"]`` of each is a dict of columns with
        one entry per step. Raises TFDSError if the features have no steps."""
        steps_of(self.features)
        return iter(self)

    @suggests_options
    def steps(self, window: int = 1, stride: int = 1, pad: bool = False) -> StepsReader:
        """Windows of ``window`` consecutive steps of RLDS episodes, never across two episodes.

        Args:
            window: steps per window, the first axis of each value (even if it is 1).
            stride: steps between the starts of consecutive windows; the first one starts at step 0.
            pad: give a window at every start. At the end of an episode the real steps come first, and
                ``is_padding`` is True for the rest. Otherwise all windows are complete.

        This counts the steps of all episodes, and reads as little of each as it can.

        Raises:
            TFDSError: the features have no steps.
            ValueError: a window or stride is below 1, or the reader skips damage.
        """
        if self._view.store.policy.skips:
            raise ValueError("windows need every episode: on_error must be 'raise'")
        return StepsReader(self, steps_of(self.features), window, stride, pad)


def _url(folder: str, reader_options: Mapping[str, Any]) -> Url:
    """The URL of the folder with the options of a reader that are of its store."""
    if isinstance(folder, Url):
        return folder
    names = [field.name for field in fields(StoreOptions)]
    given = {name: reader_options[name] for name in names if name in reader_options}
    if given.get("cache") is not None:
        given["cache"] = os.fspath(given["cache"])
    return Url(folder, StoreOptions(**given))


class _Files:
    """The shards that parts of splits need, each once, and the ranges of their examples."""

    def __init__(self, info: DatasetInfo, parts: Sequence[Part]) -> None:
        self.paths: list[str] = []
        self.counts: list[int] = []
        self._ranges: list[tuple[int, int, int]] = []  # file, first record, record after the last
        numbers: dict[str, int] = {}
        for part in parts:
            first = 0
            for shard, count in enumerate(part.split.shard_lengths):
                start, stop = max(part.start, first), min(part.stop, first + count)
                if start < stop or (count and not self.paths):  # an empty part still has a file
                    path = shard_path(info, part.split, shard)
                    if path not in numbers:
                        numbers[path] = len(self.paths)
                        self.paths.append(path)
                        self.counts.append(count)
                    self._ranges.append((numbers[path], start - first, max(start, stop) - first))
                first += count
        if not self.paths:
            raise ValueError(f"the split has no examples: {info.folder} holds none")
        _check_there(self.paths)
        if sum(self.counts) > MOST_RECORDS:
            raise TFDSError(f"{info.folder}: the split claims {sum(self.counts):,} records")

    def selection(self) -> Any:
        """Positions in the files, int64; None if it is all of them in order."""
        starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        ends = [(int(starts[file]) + start, int(starts[file]) + stop) for file, start, stop in self._ranges]
        whole = all(stop == following for (_, stop), (following, _) in zip(ends, ends[1:], strict=False))
        if whole and ends[0][0] == 0 and ends[-1][1] == starts[-1]:
            return None
        for path, count in zip(self.paths, self.counts, strict=True):
            if not is_url(path) and count > os.path.getsize(path) // FRAME_OVERHEAD:
                raise TFDSError(f"{path}: the metadata claims {count:,} records, more than fit into the file")
        selection = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in ends])
        selection.setflags(write=False)
        return selection


def _check_there(paths: Sequence[str]) -> None:
    """Raise FileNotFoundError for missing shards."""
    missing = missing_files(paths)
    if missing:
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        names = ", ".join(missing[:_LISTED])
        raise FileNotFoundError(
            printable(f"{len(missing)} of {len(paths)} shards of the split are missing: {names}{more}")
        )


def _with_raw_keys(leaves: Sequence[Leaf], schema: Iterable[str]) -> Iterator[Leaf]:
    """The leaves; an unknown connector gives one leaf per key in the records, with a warning."""
    known = {key for leaf in leaves if not isinstance(leaf.feature, Unknown) for key in leaf.specs()}
    kinds = sorted({leaf.feature.connector for leaf in leaves if isinstance(leaf.feature, Unknown)})
    warn_caller(f"unknown connectors, whose features stay as stored: {', '.join(kinds)}")
    for leaf in leaves:
        if not isinstance(leaf.feature, Unknown):
            yield leaf
            continue
        above = leaf.key[: len(leaf.key) - len(leaf.path[-1])]
        for key in schema:
            if key not in known and (key == leaf.key or key.startswith(leaf.key + "/")):
                known.add(key)
                yield Leaf((*leaf.path[:-1], key[len(above) :]), key, (), leaf.feature)
