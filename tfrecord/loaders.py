"""The loader functions: one file, or a mix of several, read forward, one dict per record.

All arguments, and whether the files exist, are checked when a function is called; files are opened when the
first record is asked for. Records come in stored order, with or without an index.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from indexer.files import is_url, path_name
from indexer.formats import load_index
from indexer.options import suggests_options, warn_caller
from indexer.streams import normalize_compression
from tfrecord._columns.decoding import decode_record, decode_records
from tfrecord._kernels.record_type import MESSAGES, SAMPLE, settle
from tfrecord._reading.damage import DamagePolicy, OnError
from tfrecord._reading.decoder import LocatedError, decoded_ahead, is_damage, warn_of_feature_lists
from tfrecord._reading.open_files import folder_of, place
from tfrecord._reading.runs import ReadOptions, RecordRun, stream_records
from tfrecord.features import FeaturePlan, one_of
from tfrecord.iterator_utils import check_weights, sample_iterators

__all__ = [
    "example_loader",
    "multi_tfrecord_loader",
    "sequence_loader",
    "tfrecord_iterator",
    "tfrecord_loader",
]

Record = dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]
Shard = tuple[int, int]


class _Source:
    """One file (or stream), a shard of it, and the rule for damage."""

    def __init__(
        self,
        data_path: Any,
        index_path: Any,
        shard: Shard | None,
        compression_type: str | None,
        verify: bool,
        policy: DamagePolicy,
    ) -> None:
        self.options = ReadOptions(normalize_compression(compression_type), bool(verify))
        self.policy = policy
        self.start, self.step = _check_shard(shard)
        self.path = path_name(data_path)
        self.source = data_path
        if isinstance(data_path, str | bytes | os.PathLike):
            self.source = self.path
            self.folder = folder_of([self.path])
            _check_file(self.path)
        elif not hasattr(data_path, "read"):
            kind = type(data_path).__name__
            raise TypeError(f"data_path must be a path or a binary file object, not {kind}")
        if index_path is None or index_path == "":
            return
        if self.source is data_path and not isinstance(data_path, str):
            raise ValueError(f"{self.path}: an index belongs to a file with a name, not to a stream")
        load_index(os.fsdecode(index_path), self.path)

    def runs(self) -> Iterator[RecordRun]:
        source = place(self.source, self.folder) if isinstance(self.source, str) else self.source
        yield from stream_records(
            source, self.options, self.policy, path=self.path, start=self.start, step=self.step
        )

    def payloads(self) -> Iterator[memoryview]:
        return chain.from_iterable(group for run in self.runs() for group in run.groups())

    def records(self, plan: FeaturePlan, sequence_plan: FeaturePlan | None) -> Iterator[Any]:
        """Each record decoded."""
        return chain.from_iterable(self._records(plan, sequence_plan))

    def _records(self, plan: FeaturePlan, sequence_plan: FeaturePlan | None) -> Iterator[list[Any]]:

        def decode(payload: memoryview) -> Any:
            return decode_record(payload, plan, sequence_plan)

        def decode_many(payloads: tuple[memoryview, ...]) -> list[Any]:
            return decode_records(payloads, plan, sequence_plan)

        looked = False
        for run in self.runs():
            if not looked:
                looked = True
                self._look(islice(run.payloads(), SAMPLE), sequence_plan is not None)

            def failed(place: int, payload: memoryview, error: LocatedError, run: RecordRun = run) -> None:
                located = error.at(
                    self.path, run.first + place * run.step, run.base + int(run.offsets[place])
                )
                if not is_damage(payload, error):
                    raise located from None
                self.policy.handle(located)

            yield from decoded_ahead(run.payloads(), 0, run.check, decode, decode_many, failed)

    def _look(self, payloads: Iterator[memoryview], wants_lists: bool) -> None:
        """Warn if the first records are not of the type that the loader is for."""
        first = list(payloads)
        found = settle(first, MESSAGES)
        if found.warning:
            warn_caller(f"{self.path}: {found.warning}")
        if not wants_lists:
            warn_of_feature_lists(self.path, first)


def _check_shard(shard: Shard | None) -> Shard:
    if shard is None:
        return 0, 1
    try:
        index, count = shard
    except (TypeError, ValueError):
        raise ValueError(f"shard is {shard!r}; it must be a pair (i, n) with 0 <= i < n") from None
    for value in (index, count):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"shard is {shard!r}; it must be a pair of integers")
    if not 0 <= index < count:
        raise ValueError(f"shard is {shard!r}; it must be a pair (i, n) with 0 <= i < n")
    return int(index), int(count)


def _check_file(path: str) -> None:
    if is_url(path):
        return
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    os.stat(path)  # raises FileNotFoundError, or PermissionError for a folder on the way


@suggests_options
def tfrecord_iterator(
    data_path: Any,
    index_path: Any = None,
    shard: Shard | None = None,
    compression_type: str | None = None,
    *,
    verify: bool = True,
    on_error: OnError = "raise",
    max_skips: int | None = None,
) -> Iterator[memoryview]:
    """The payloads of one file in stored order: read-only memoryviews that stay valid as long as you hold
    them.

    Args:
        data_path: a path or URL, or a binary file object (a pipe, standard input), which is read forward.
        index_path: an index file. It is not needed; one that does not match the data is refused.
        shard: ``(i, n)``: the records i, i + n, i + 2n, ... Every record is in exactly one of the n shards.
        compression_type: None detects it from the content; ``""``, ``"GZIP"``, ``"ZLIB"``,
            ``"ZSTD"`` in any case.
        verify, on_error, max_skips: as for `TFRecordReader`.

    Raises:
        CorruptRecordError: a record is damaged; raised after all good records before it.
        CompressionError: the compressed stream is damaged; raised after all good records before that.
        StaleIndexError: the index does not match the data; raised at the call.
        FileNotFoundError: a file does not exist; raised at the call.
        ValueError: an argument has an invalid value; raised at the call.
        TypeError: an argument has the wrong type; raised at the call.
    """
    policy = DamagePolicy(on_error, max_skips)
    return _Source(data_path, index_path, shard, compression_type, verify, policy).payloads()


@suggests_options
def example_loader(
    data_path: Any,
    index_path: Any = None,
    description: Any = None,
    shard: Shard | None = None,
    compression_type: str | None = None,
    *,
    features: Any = None,
    verify: bool = True,
    on_error: OnError = "raise",
    max_skips: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The records of a file of `tf.train.Example`, each as a dict.

    One byte string is `bytes`, several are an object array of exact bytes; numbers are int64 and float32
    arrays. A feature without a type or values is an empty array of the declared type, or None if no type is
    known.

    Args:
        description: which features: None, ``[]`` or ``{}`` for all; a list or tuple of names; or a dict from
            name to ``"byte"``, ``"int"``, ``"float"``, None (any type), or a spec such as `FixedLenFeature`.
            A feature named without a spec must be in every record.
        features: the same, but a record that lacks a feature named without a spec has an empty one. Give one
            of the two.

    The other arguments are those of `tfrecord_iterator`.

    Raises:
        ValueError: a type name is unknown (the message lists the valid ones); raised at the call.
        MissingFeatureError: a required feature is missing. A KeyError that names key, file and record.
        FeatureKindError: a feature has another type. A TypeError that names key, file and record.
    """
    plan = one_of(features, description)
    policy = DamagePolicy(on_error, max_skips)
    return _Source(data_path, index_path, shard, compression_type, verify, policy).records(plan, None)


@suggests_options
def sequence_loader(
    data_path: Any,
    index_path: Any = None,
    context_description: Any = None,
    features_description: Any = None,
    shard: Shard | None = None,
    compression_type: str | None = None,
    *,
    features: Any = None,
    sequence_features: Any = None,
    verify: bool = True,
    on_error: OnError = "raise",
    max_skips: int | None = None,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The records of a file of `tf.train.SequenceExample`, each as a pair of dicts: context, feature lists.

    A feature list is a list with one item per step. ``context_description`` and ``features_description``, or
    ``features`` and ``sequence_features``, and all other arguments are as for `example_loader`.
    """
    plan = one_of(features, context_description, ("features", "context_description"))
    lists = one_of(sequence_features, features_description, ("sequence_features", "features_description"))
    policy = DamagePolicy(on_error, max_skips)
    return _Source(data_path, index_path, shard, compression_type, verify, policy).records(plan, lists)


@suggests_options
def tfrecord_loader(
    data_path: Any,
    index_path: Any = None,
    description: Any = None,
    shard: Shard | None = None,
    sequence_description: Any = None,
    compression_type: str | None = None,
    *,
    features: Any = None,
    sequence_features: Any = None,
    verify: bool = True,
    on_error: OnError = "raise",
    max_skips: int | None = None,
) -> Iterator[Any]:
    """`sequence_loader` if there is a ``sequence_description`` (or ``sequence_features``), else
    `example_loader`."""
    plan, lists = _asked(features, description, sequence_features, sequence_description)
    policy = DamagePolicy(on_error, max_skips)
    return _Source(data_path, index_path, shard, compression_type, verify, policy).records(plan, lists)


@suggests_options
def multi_tfrecord_loader(
    data_pattern: str,
    index_pattern: str | None,
    splits: Mapping[str, float],
    description: Any = None,
    sequence_description: Any = None,
    compression_type: str | None = None,
    infinite: bool = True,
    shard: Shard | None = None,
    *,
    features: Any = None,
    sequence_features: Any = None,
    seed: int | None = None,
    verify: bool = True,
    on_error: OnError = "raise",
    max_skips: int | None = None,
) -> Iterator[Any]:
    """A mix of several files: each record comes from a random split, with probability by weight.

    Args:
        data_pattern, index_pattern: paths in which ``{}`` stands for the name of a split; other braces are
            plain text.
        splits: a mapping from name to weight; weights are finite and not negative, at least one positive. A
            split of weight zero is not opened.
        infinite: start a file again when it ends; else leave it out from then on.
        shard: the shard of each file, as for `tfrecord_iterator`.
        seed: makes the mix repeatable; None draws one. The global random generators are not touched.

    Files and shards without records are left out. If all are empty, the mix ends, even if it is infinite. The
    other arguments are those of `tfrecord_loader`.
    """
    if not isinstance(splits, Mapping):
        raise TypeError(f"splits must be a mapping of name to weight, not {type(splits).__name__}")
    weights = check_weights(splits.values(), list(splits))
    check_pattern(data_pattern, sum(weight > 0 for weight in weights))
    plan, lists = _asked(features, description, sequence_features, sequence_description)
    policy = DamagePolicy(on_error, max_skips)
    loaders: list[Callable[[], Iterator[Record]]] = []
    for split, weight in zip(splits, weights, strict=True):
        if not weight:
            loaders.append(_never)
            continue
        index_path = None if not index_pattern else fill_pattern(index_pattern, split)
        path = fill_pattern(data_pattern, split)
        source = _Source(path, index_path, shard, compression_type, verify, policy)
        loaders.append(lambda source=source: source.records(plan, lists))  # type: ignore[misc]
    return sample_iterators(loaders, weights, infinite, seed=seed)


def _asked(
    features: Any, description: Any, sequence_features: Any, sequence_description: Any
) -> tuple[FeaturePlan, FeaturePlan | None]:
    plan = one_of(features, description)
    if sequence_features is None and sequence_description is None:
        return plan, None
    return plan, one_of(
        sequence_features, sequence_description, ("sequence_features", "sequence_description")
    )


def check_pattern(pattern: Any, num_splits: int) -> None:
    """ValueError if several splits would all be the same file."""
    if num_splits > 1 and "{}" not in os.fsdecode(pattern):
        raise ValueError(
            f"{os.fsdecode(pattern)!r} has no {{}} to stand for the names of {num_splits} splits"
        )


def fill_pattern(pattern: Any, split: str) -> str:
    """The pattern with each ``{}`` replaced by the name of a split; other braces mean nothing."""
    return os.fsdecode(pattern).replace("{}", str(split))


def _never() -> Iterator[Record]:
    raise AssertionError("a source of weight zero was opened")
